//! What a connection says of itself where its strand does not have an address of its own.

use std::io;

/// Bytes of a hello on the wire.
pub const LENGTH: usize = 28;
const HELLO: [u8; 4] = *b"wcHi";
const CHALLENGE: [u8; 4] = *b"wcAs";
const WELCOME: [u8; 4] = *b"wcOk";
const PROBE: [u8; 4] = *b"wcPr";
const AGAIN: [u8; 4] = *b"wcAg";
const ARRIVED: [u8; 4] = *b"wcOn";
const DONE: [u8; 4] = *b"wcBy";

/// What the connecting host says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Whose connection this is.
    Hello,
    /// It asks which CPU handles the packets of this connection.
    Probe,
    /// It asks no more.
    Done,
}

/// Says whose connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Derived from the run's token: a stranger does not know it.
    pub run: u32,
    pub group: u32,
    pub strand: u32,
    pub id: u32,
    /// How many connections of this id the strand has opened before.
    pub ordinal: u32,
    /// What a datagram socket's hello has been challenged with; 0 before, and over streams.
    pub cookie: u32,
}

impl Hello {
    pub fn bytes(&self) -> [u8; LENGTH] {
        self.with(HELLO)
    }

    /// Asks who sent a hello as a datagram to send it again with this cookie. Anybody can write any
    /// address on a datagram as its sender's; only who is there gets the cookie, and what is sent to
    /// others is one datagram as short as the one that asked for it.
    pub fn challenge(&self) -> [u8; LENGTH] {
        self.with(CHALLENGE)
    }

    /// The same hello with the cookie of a challenge to it.
    pub fn challenged(&self, bytes: &[u8]) -> Option<Self> {
        let asked = Self::fields(bytes).filter(|asked| asked.challenge() == bytes)?;
        (Self { cookie: self.cookie, ..asked } == *self).then_some(asked)
    }

    /// The answer to a hello that came as a datagram.
    pub fn welcome(&self) -> [u8; LENGTH] {
        self.with(WELCOME)
    }

    /// Asks on which CPU of the other end this arrives.
    pub fn probe(&self) -> [u8; LENGTH] {
        self.with(PROBE)
    }

    /// Asks to send the probe again to where data goes: a socket that can tell the CPU is there now.
    pub fn again(&self) -> [u8; LENGTH] {
        self.with(AGAIN)
    }

    /// Says after an answer that no hello and no further probe will follow.
    pub fn done(&self) -> [u8; LENGTH] {
        self.with(DONE)
    }

    /// The answer to a probe that arrived on this CPU. It is no longer than the probe.
    pub fn arrived(&self, cpu: u32) -> [u8; LENGTH] {
        Self { cookie: cpu, ..*self }.with(ARRIVED)
    }

    /// The CPU that an answer to this probe names.
    pub fn cpu_in(&self, bytes: &[u8]) -> Option<u32> {
        let said = Self::fields(bytes).filter(|said| said.with(ARRIVED) == bytes)?;
        (Self { cookie: self.cookie, ..said } == *self).then_some(said.cookie)
    }

    fn with(&self, magic: [u8; 4]) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&magic);
        let fields = [self.run, self.group, self.strand, self.id, self.ordinal, self.cookie];
        for (place, field) in bytes[4..].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// # Errors
    /// When the bytes are not a hello of this run.
    pub fn read(bytes: &[u8], run: u32) -> io::Result<Self> {
        let hello = Self::fields(bytes)
            .filter(|hello| hello.bytes() == bytes && hello.run == run)
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "not a connection of this run")
            })?;
        Ok(hello)
    }

    /// A hello, a probe or its end.
    ///
    /// # Errors
    /// When the bytes are neither of this run.
    pub fn read_either(bytes: &[u8], run: u32) -> io::Result<(Said, Self)> {
        match Self::fields(bytes) {
            Some(probe) if probe.probe() == bytes && probe.run == run => Ok((Said::Probe, probe)),
            Some(done) if done.done() == bytes && done.run == run => Ok((Said::Done, done)),
            _ => Ok((Said::Hello, Self::read(bytes, run)?)),
        }
    }

    fn fields(bytes: &[u8]) -> Option<Self> {
        let mut fields = bytes.get(4..LENGTH)?.chunks_exact(4);
        let mut next = || Some(u32::from_le_bytes(fields.next()?.try_into().ok()?));
        Some(Self {
            run: next()?,
            group: next()?,
            strand: next()?,
            id: next()?,
            ordinal: next()?,
            cookie: next()?,
        })
    }
}

/// Whether a datagram is part of opening a connection and not of the traffic.
pub fn is_greeting(datagram: &[u8]) -> bool {
    let magics = [HELLO, CHALLENGE, WELCOME, PROBE, AGAIN, ARRIVED, DONE];
    datagram.len() == LENGTH && magics.iter().any(|magic| datagram[..4] == *magic)
}

/// The number by which connections of a run know each other.
pub fn run_number(token: &str) -> u32 {
    let parts: Vec<u64> = token.bytes().map(u64::from).collect();
    crate::draw::key(&parts) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_back_and_nothing_else_is() {
        let hello = Hello { run: 7, group: 1, strand: 70_000, id: 3, ordinal: 5, cookie: 0 };
        assert_eq!(Hello::read(&hello.bytes(), 7).unwrap(), hello);
        assert!(Hello::read(&hello.bytes(), 8).is_err());
        assert!(Hello::read(&hello.welcome(), 7).is_err());
        assert!(Hello::read(b"GET / HTTP/1.1\r\nHost", 7).is_err());
        assert!(Hello::read(b"", 7).is_err());
        assert!(is_greeting(&hello.welcome()) && !is_greeting(&[0; LENGTH]));
        let challenge = Hello { cookie: 9, ..hello }.challenge();
        assert!(is_greeting(&challenge));
        assert_eq!(hello.challenged(&challenge), Some(Hello { cookie: 9, ..hello }));
        assert_eq!(Hello { id: 4, ..hello }.challenged(&challenge), None);
        assert_eq!(hello.challenged(&hello.welcome()), None);
    }

    #[test]
    fn a_probe_is_no_hello_and_its_answer_names_the_cpu() {
        let hello = Hello { run: 7, group: 1, strand: 2, id: 3, ordinal: 5, cookie: 11 };
        assert_eq!(Hello::read_either(&hello.probe(), 7).unwrap(), (Said::Probe, hello));
        assert_eq!(Hello::read_either(&hello.bytes(), 7).unwrap(), (Said::Hello, hello));
        assert!(Hello::read(&hello.probe(), 7).is_err());
        assert!(Hello::read_either(&hello.probe(), 8).is_err());
        assert!(Hello::read_either(&hello.arrived(1), 7).is_err());
        let answer = hello.arrived(63);
        assert!(is_greeting(&answer) && is_greeting(&hello.probe()) && is_greeting(&hello.again()));
        assert_eq!(Hello::read_either(&hello.done(), 7).unwrap(), (Said::Done, hello));
        assert_eq!(hello.cpu_in(&answer), Some(63));
        assert_eq!(Hello { strand: 9, ..hello }.cpu_in(&answer), None);
        assert_eq!(hello.cpu_in(&hello.welcome()), None);
    }
}
