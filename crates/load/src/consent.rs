//! The question whether a host has agreed to receive in a run, and its answer.
//!
//! Who has agreed knows the token of the run, which never travels between hosts: the answer is a keyed
//! hash, by the token, of the question's random number and of what the host says. An answer that was
//! overheard answers no other question.

use ring::hmac::{HMAC_SHA256, Key, Tag, sign, verify};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use wirecost_model::plan::ServiceAddresses;
use wirecost_program::hello::Hello;

/// Bytes of the hash in front of an answer.
const HASH: usize = 32;

/// What a host agrees to.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Consent {
    pub(crate) host: u32,
    pub(crate) services: Vec<ServiceAddresses>,
}

/// Answers questions for a host that has agreed.
#[derive(Debug)]
pub(crate) struct ConsentResponder {
    key: Key,
    body: Vec<u8>,
}

impl ConsentResponder {
    pub(crate) fn new(token: &str, consent: &Consent) -> Self {
        let body = serde_json::to_vec(consent).unwrap_or_default();
        Self { key: key(token), body }
    }

    pub(crate) fn answer(&self, question: &Hello) -> Vec<u8> {
        let hash = sign(&self.key, &asked(question, &self.body));
        [hash.as_ref(), &self.body].concat()
    }
}

/// A question that nobody has asked before.
#[derive(Debug)]
pub(crate) struct Question(Hello);

impl Question {
    /// # Errors
    /// When the operating system has no random numbers.
    pub(crate) fn new(run: u32) -> io::Result<Self> {
        let mut bytes = [0; 16];
        let random = SystemRandom::new();
        random.fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
        let number = |place: usize| {
            bytes[4 * place..].first_chunk().map_or(0, |part| u32::from_le_bytes(*part))
        };
        let (group, strand, id, cookie) = (number(0), number(1), number(2), number(3));
        Ok(Self(Hello { run, group, strand, id, ordinal: 0, cookie }))
    }

    pub(crate) fn hello(&self) -> &Hello {
        &self.0
    }

    /// What the host has agreed to, if the answer is to this question and of one that knows the token.
    pub(crate) fn verify_answer(&self, token: &str, answer: &[u8]) -> Option<Consent> {
        let (hash, body) = answer.split_at_checked(HASH)?;
        verify(&key(token), &asked(&self.0, body), hash).ok()?;
        serde_json::from_slice(body).ok()
    }
}

fn key(token: &str) -> Key {
    Key::new(HMAC_SHA256, token.as_bytes())
}

fn asked(question: &Hello, body: &[u8]) -> Vec<u8> {
    [question.bytes().as_slice(), body].concat()
}

/// Makes the cookies that a datagram socket's hello has to bring back: only who receives at an
/// address can know that of the address.
#[derive(Debug)]
pub(crate) struct Cookies(Key);

impl Cookies {
    /// # Errors
    /// When the operating system has no random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        let key = Key::generate(HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| io::Error::other("no random numbers"))
    }

    /// Never 0, which stands for none.
    pub(crate) fn of(&self, from: SocketAddr) -> u32 {
        let address = match from.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let bytes: Vec<u8> = address.into_iter().chain(from.port().to_le_bytes()).collect();
        first_number(&sign(&self.0, &bytes)) | 1
    }
}

fn first_number(hash: &Tag) -> u32 {
    hash.as_ref().first_chunk().map_or(0, |part| u32::from_le_bytes(*part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn consent() -> Consent {
        Consent { host: 3, services: Vec::new() }
    }

    #[test]
    fn an_answer_is_to_one_question_of_one_run() {
        let question = Question::new(7).unwrap();
        let answer = ConsentResponder::new("token", &consent()).answer(question.hello());
        assert_eq!(question.verify_answer("token", &answer), Some(consent()));
        assert_eq!(question.verify_answer("another", &answer), None);
        // Replayed to the next who asks.
        assert_eq!(Question::new(7).unwrap().verify_answer("token", &answer), None);
        // With another host in it.
        let mut forged = answer.clone();
        let place = forged.iter().rposition(|&byte| byte == b'3').unwrap();
        forged[place] = b'4';
        assert_eq!(question.verify_answer("token", &forged), None);
        for length in 0..answer.len() {
            assert_eq!(question.verify_answer("token", &answer[..length]), None);
        }
    }

    #[test]
    fn the_token_is_not_in_what_travels() {
        let question = Question::new(7).unwrap();
        let answer = ConsentResponder::new("a token", &consent()).answer(question.hello());
        assert!(!answer.windows(7).any(|part| part == b"a token"));
        assert!(!question.hello().bytes().windows(7).any(|part| part == b"a token"));
    }

    #[test]
    fn cookies_are_of_an_address_and_of_their_maker() {
        let cookies = Cookies::new().unwrap();
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let of = |text: &str| cookies.of(address(text));
        assert_eq!(of("192.0.2.1:5"), of("192.0.2.1:5"));
        let different: BTreeSet<u32> =
            ["192.0.2.1:5", "192.0.2.1:6", "192.0.2.2:5", "[2001:db8::1]:5"].map(of).into();
        assert_eq!(different.len(), 4);
        assert!(!different.contains(&0));
        assert_ne!(of("192.0.2.1:5"), Cookies::new().unwrap().of(address("192.0.2.1:5")));
    }
}
