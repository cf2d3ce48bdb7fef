//! The table, as a person sees it.

mod fixtures;

use std::collections::BTreeSet;

use wirecost_model::run::{Crypto, CryptoShare, Run};
use wirecost_report::documents;
use wirecost_report::outputs::{self, Output, Terminal, TerminalStyle};

fn shown(run: &Run, style: TerminalStyle) -> String {
    let mut out = Vec::new();
    let written = Terminal.write(&mut out, &documents::run::document(run), &style);
    assert!(written.is_ok());
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn tables() {
    for (name, run) in [
        ("tcp_stream", fixtures::tcp_stream()),
        ("loopback", fixtures::loopback()),
        ("udp_loss", fixtures::udp_loss()),
        ("failed", fixtures::failed()),
        ("invalid", fixtures::invalid()),
    ] {
        insta::assert_snapshot!(format!("{name}_80"), shown(&run, TerminalStyle::plain(80)));
        insta::assert_snapshot!(format!("{name}_120"), shown(&run, TerminalStyle::plain(120)));
    }
}

#[test]
fn nothing_is_wider_than_the_terminal_or_anything_but_ascii() {
    for run in [
        fixtures::tcp_stream(),
        fixtures::loopback(),
        fixtures::udp_loss(),
        fixtures::failed(),
        fixtures::invalid(),
    ] {
        for width in 80..140 {
            let text = shown(&run, TerminalStyle::plain(width));
            assert!(text.is_ascii());
            for line in text.lines() {
                assert!(line.len() <= width, "{width}: {line}");
                assert_eq!(line.trim_end(), line);
            }
        }
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let run = fixtures::tcp_stream();
    let coloured = shown(&run, TerminalStyle { width: 80, colour: true });
    let escapes = regex::Regex::new("\u{1b}\\[[0-9;]*m").unwrap();
    assert!(escapes.is_match(&coloured));
    assert_eq!(escapes.replace_all(&coloured, ""), shown(&run, TerminalStyle::plain(80)));
}

/// The same document in outputs that are not for a terminal.
#[test]
fn a_run_is_written_by_every_output() {
    for name in ["markdown", "csv"] {
        let output = outputs::find(name).unwrap();
        let mut out = Vec::new();
        let document = documents::run::document(&fixtures::tcp_stream());
        output.write(&mut out, &document, &TerminalStyle::plain(80)).unwrap();
        insta::assert_snapshot!(format!("tcp_stream_{name}"), String::from_utf8(out).unwrap());
    }
}

#[test]
fn every_output_of_the_folder_is_listed_once() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/outputs");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".rs").to_owned()
    });
    // What outputs share is not one.
    let files: BTreeSet<String> =
        names.filter(|name| !["mod", "notes", "summary"].contains(&name.as_str())).collect();
    let listed: Vec<&str> = outputs::ALL.iter().map(|output| output.name()).collect();
    let once: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!((once.len(), once), (listed.len(), files));
}

/// What is null in the document is a dash, never a 0.
#[test]
fn what_was_not_measured_is_a_dash_with_its_reason() {
    let text = shown(&fixtures::loopback(), TerminalStyle::plain(120));
    let client = text.lines().find(|line| line.contains("client")).unwrap();
    assert_eq!(client.matches(" -").count(), 7, "{client}");
    assert!(text.contains("[1] not measured: its CPUs are shared"));
}

#[test]
fn the_share_of_ciphers_has_an_interval_or_a_reason() {
    let shown = |crypto| {
        shown(&Run { crypto: Some(crypto), ..fixtures::loopback() }, TerminalStyle::plain(120))
    };
    let share = |host: &str, cycles_per_kbyte| CryptoShare {
        hosts: vec![host.to_owned()],
        share: 0.3812,
        interval: (0.35, 0.4129),
        cycles_per_kbyte,
    };
    let one = shown(Crypto { shares: vec![share("a", Some(414.4))], reason: None });
    let line = "\n  crypto        38.1% of busy CPU time (35.0% to 41.3%), 414 cycles/KByte\n";
    assert!(one.contains(line), "{one}");
    let two = shown(Crypto { shares: vec![share("a", None), share("b", None)], reason: None });
    let figures = "38.1% of busy CPU time (35.0% to 41.3%)";
    let two = two.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(two.contains(&format!(" crypto a: {figures}; b: {figures} host ")), "{two}");
    let none = shown(Crypto { shares: Vec::new(), reason: Some("nobody looked".to_owned()) });
    assert!(none.contains("\n  crypto        - of busy CPU time (nobody looked)\n"), "{none}");
}
