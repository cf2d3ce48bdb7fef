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
