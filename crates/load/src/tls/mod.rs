//! TLS 1.3 by rustls: who a host is in a run, and whom it believes.
//!
//! Each host that accepts makes a certificate for the run. The others learn it with its addresses, over
//! the control connection, and believe that one and no other.

mod session;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};
use wirecost_model::profile::{Cipher, Options};

pub(crate) use session::Session;

/// Name in every certificate: what counts is the key.
const NAME: &str = "wirecost";

/// What a host proves itself by.
#[derive(Debug)]
pub(crate) struct Credentials {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// A new key (ECDSA P-256), and a certificate that it has signed itself.
    ///
    /// # Errors
    /// When there is no randomness.
    pub(crate) fn new() -> io::Result<Self> {
        let made =
            rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { certificate: made.cert.der().clone(), key: key.into() })
    }

    /// What others are to believe (DER).
    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }
}

/// What a worker makes sessions of.
#[derive(Debug, Default)]
pub(crate) struct Security {
    credentials: Option<Arc<Credentials>>,
    servers: HashMap<Cipher, Arc<ServerConfig>>,
    clients: HashMap<(u32, Cipher), Arc<ClientConfig>>,
}

/// rustls' first choice, and OpenSSL's.
fn cipher(options: &Options) -> Cipher {
    options.cipher.unwrap_or(Cipher::Aes256Gcm)
}

fn provider(cipher: Cipher) -> Arc<CryptoProvider> {
    let suite: SupportedCipherSuite = match cipher {
        Cipher::Aes128Gcm => ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        Cipher::Aes256Gcm => ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        Cipher::ChaCha20Poly1305 => ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider { cipher_suites: vec![suite], ..ring::default_provider() })
}

impl Security {
    pub(crate) fn new(credentials: Option<Arc<Credentials>>) -> Self {
        Self { credentials, ..Self::default() }
    }

    /// The connecting side of a session with the host of this number.
    ///
    /// # Errors
    /// When that host has told no certificate, or none that is one.
    pub(crate) fn connect(
        &mut self,
        host: u32,
        certificate: Option<&[u8]>,
        options: &Options,
    ) -> io::Result<Session> {
        let cipher = cipher(options);
        let config = match self.clients.get(&(host, cipher)) {
            Some(config) => config.clone(),
            None => {
                let certificate = certificate
                    .ok_or_else(|| io::Error::other("the peer has told no certificate"))?;
                let config = Arc::new(client(certificate, cipher)?);
                self.clients.insert((host, cipher), config.clone());
                config
            }
        };
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        Session::client(config, name, cipher, options.ktls)
    }

    /// The accepting side of a session.
    ///
    /// # Errors
    /// When this host has no certificate.
    pub(crate) fn accept(&mut self, options: &Options) -> io::Result<Session> {
        let cipher = cipher(options);
        let config = match self.servers.get(&cipher) {
            Some(config) => config.clone(),
            None => {
                let credentials = self.credentials.as_ref();
                let credentials = credentials.ok_or_else(|| io::Error::other("no certificate"))?;
                let config = Arc::new(server(credentials, cipher)?);
                self.servers.insert(cipher, config.clone());
                config
            }
        };
        Session::server(config, cipher, options.ktls)
    }
}

fn client(certificate: &[u8], cipher: Cipher) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.to_vec().into()).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(provider(cipher))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Every opening is a whole handshake, so that all cost the same.
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = true;
    Ok(config)
}

fn server(credentials: &Credentials, cipher: Cipher) -> io::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider(cipher))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![credentials.certificate.clone()], credentials.key.clone_key())
        .map_err(io::Error::other)?;
    // Nobody resumes; and after the handshake nothing but data is sent, as the kernel's TLS wants it.
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use rustix::net::RecvFlags;

    use super::*;

    /// Two ends with little room, and a session on each.
    struct Pair {
        here: OwnedFd,
        there: OwnedFd,
        client: Session,
        server: Session,
    }

    fn pair(believed: &Credentials, shown: Credentials) -> Pair {
        let (here, there) = UnixStream::pair().unwrap();
        for end in [&here, &there] {
            end.set_nonblocking(true).unwrap();
            socket2::SockRef::from(end).set_send_buffer_size(4608).unwrap();
        }
        let options = Options::default();
        let mut connecting = Security::new(None);
        let client = connecting.connect(1, Some(believed.certificate()), &options).unwrap();
        let server = Security::new(Some(Arc::new(shown))).accept(&options).unwrap();
        Pair { here: here.into(), there: there.into(), client, server }
    }

    impl Pair {
        fn shake(&mut self) -> io::Result<()> {
            loop {
                let here = self.client.handshake(&self.here)?;
                let there = self.server.handshake(&self.there)?;
                if here.is_none() && there.is_none() {
                    return Ok(());
                }
            }
        }
    }

    fn own() -> (Credentials, Credentials) {
        let own = Credentials::new().unwrap();
        let copy = Credentials { certificate: own.certificate.clone(), key: own.key.clone_key() };
        (own, copy)
    }

    #[test]
    fn what_is_sent_arrives_however_little_a_socket_takes() {
        let (own, copy) = own();
        let mut pair = pair(&own, copy);
        pair.shake().unwrap();
        let message: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let (mut sent, mut got, mut blocked) = (0, Vec::new(), 0);
        let mut buffer = [0; 1000];
        while got.len() < message.len() {
            match pair.client.send(&pair.here, &message[sent..]) {
                Ok(bytes) => sent += bytes,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    blocked += 1;
                }
            }
            while let Ok(bytes @ 1..) =
                pair.server.receive(&pair.there, &mut buffer, RecvFlags::empty())
            {
                got.extend_from_slice(&buffer[..bytes]);
            }
        }
        assert!(blocked > 0, "the test is of a socket without room");
        assert!(sent == message.len() && got == message);
    }

    #[test]
    fn only_the_certificate_that_was_told_is_believed() {
        let (told, _) = own();
        let (_, stranger) = own();
        let error = pair(&told, stranger).shake().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }

    #[test]
    fn bytes_under_no_key_are_refused() {
        let (own, copy) = own();
        let mut pair = pair(&own, copy);
        pair.shake().unwrap();
        let mut record = vec![23, 3, 3, 0, 40];
        record.resize(45, 7);
        rustix::io::write(&pair.here, &record).unwrap();
        let mut buffer = [0; 100];
        let error = pair.server.receive(&pair.there, &mut buffer, RecvFlags::empty()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
