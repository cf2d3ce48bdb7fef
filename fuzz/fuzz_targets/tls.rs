//! Whatever comes instead of TLS records, before the handshake or after it: an error, and never a byte that the
//! other end has not sent.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| wirecost_load::fuzzing::tls(bytes));
