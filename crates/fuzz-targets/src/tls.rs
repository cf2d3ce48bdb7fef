//! Whatever comes instead of TLS records, before the handshake or after it: an error, and never a byte that the
//! other end has not sent.

pub fn run(bytes: &[u8]) {
    wirecost_load::fuzzing::tls(bytes);
}
