//! The share of ciphers in the cost of a run.

use serde_json::Value;
use wirecost_linux::privilege::skip_without_tracing;

use crate::document::Document;
use crate::program::Program;

fn stream(protocol: &str) -> Document {
    let protocol = format!("protocol={protocol}");
    let arguments = ["run", "@stream", "--duration", "2s", "--ramp", "100ms", "--quiet", "--var"];
    Program::new(arguments).args([&protocol]).measure()
}

fn share(document: &Document, layer: &str) -> f64 {
    let layers = document.list("/observe/hosts/0/functions/layers").iter();
    let found = layers.filter(|row| row["layer"] == layer).find_map(|row| row["share"].as_f64());
    found.unwrap_or(0.0)
}

#[test]
fn ciphers_have_a_share_where_there_are_some() {
    if skip_without_tracing("ciphers_have_a_share_where_there_are_some") {
        return;
    }
    let plain = stream("tcp");
    assert!(plain.is_null("/crypto"));
    let encrypted = stream("tls");
    assert!(encrypted.is_null("/crypto/reason"));
    assert_eq!(encrypted.list("/crypto/shares").len(), 1, "both ends have the same CPUs");
    let crypto = |name: &str| encrypted.number(&format!("/crypto/shares/0/{name}"));
    assert_eq!(crypto("share"), share(&encrypted, "crypto"));
    // Segments are hashed and ports are random without TLS, too.
    // False failures: 1e-6, computed: ciphers have a tenth or more of some hundred samples, and 1% without TLS.
    assert!(crypto("interval/0") > 0.005, "{}", encrypted.at("/crypto"));
    // False failures: 1e-6, computed: ciphers have a tenth or more of some hundred samples, and 1% without TLS.
    assert!(crypto("interval/0") > share(&plain, "crypto"), "{}", encrypted.at("/crypto"));
    let of_all = crypto("cycles_per_kbyte") / encrypted.number("/machines/0/cycles_per_kbyte");
    assert!((of_all - crypto("share")).abs() < 1e-9);
    // Whose samples they are is known by the names of assembler, which must be found.
    let functions = encrypted.list("/observe/hosts/0/functions/functions").iter();
    let named = |row: &&Value| row["name"].as_str().is_some_and(|name| name.contains("ring_core"));
    assert!(functions.filter(named).any(|row| row["layer"] == "crypto"));
}

#[test]
fn what_nobody_looked_at_is_told_with_the_reason() {
    let arguments = ["--var", "protocol=tls", "--observe", "none"];
    let document = Program::short_run("@rr", &arguments).measure();
    assert_eq!(document.list("/crypto/shares"), &[] as &[Value]);
    assert!(document.text("/crypto/reason").contains("--observe standard"));
    let finished = Program::short_run("@rr", &arguments).finish();
    assert!(finished.stdout.contains("crypto        - of busy CPU time"), "{finished}");
}
