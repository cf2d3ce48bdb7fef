//! The table, as a person sees it.

use std::collections::BTreeSet;

use wirecost_model::document::Document;
use wirecost_model::link::netem::{NetemLine, NetemLineReport, NetemReport, QdiscCounts};
use wirecost_model::link::{LinkSpec, Topology};
use wirecost_model::measure::Bytes;
use wirecost_model::observe::{
    DropOutcome, DropPlace, DropSite, DropsSection, HostObservation, TracedDrops,
};
use wirecost_model::receive_stamps::{
    NotSampled, NotSampledSockets, ReceiveStamps, Unstamped, UnstampedMessages,
};
use wirecost_model::run::{Crypto, CryptoShare, HostRow, Latency, Observe, Run};
use wirecost_model::warning::Entry;
use wirecost_report::documents;
use wirecost_report::outputs::{self, Output, Terminal, TerminalStyle};

use crate::fixtures;

/// Every kind of run, by name.
fn runs() -> [(&'static str, Run); 5] {
    [
        ("tcp_stream", fixtures::tcp_stream()),
        ("loopback", fixtures::loopback()),
        ("udp_loss", fixtures::udp_loss()),
        ("failed", fixtures::failed()),
        ("invalid", fixtures::invalid()),
    ]
}

fn shown(run: &Run, style: TerminalStyle) -> String {
    text(&documents::run::document(run), style)
}

fn summary(run: &Run, width: usize) -> String {
    text(&documents::run::summary(run), TerminalStyle::plain(width))
}

fn text(document: &Document, style: TerminalStyle) -> String {
    let mut out = Vec::new();
    Terminal.write(&mut out, document, &style).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn summaries() {
    for (name, run) in runs() {
        insta::assert_snapshot!(format!("summary_{name}_100"), summary(&run, 100));
    }
}

#[test]
fn times_from_driver_to_application_are_told_with_what_they_leave_out() {
    let mut run = fixtures::udp_loss();
    assert!(!summary(&run, 100).contains("driver"));
    let stamps = ReceiveStamps {
        sockets: 2,
        not_sampled: Vec::new(),
        messages: 1003,
        delay_us: run.latency_us.clone().map(|of| Latency { p50: 12.3, count: 1000, ..of }),
        negative: 1,
        unstamped: vec![UnstampedMessages { reason: Unstamped::NoStamp, messages: 2 }],
        by_device: 0,
        clock_step_us: Some(-1.5e6),
    };
    let none = ReceiveStamps {
        sockets: 0,
        not_sampled: vec![NotSampledSockets { reason: NotSampled::Tls, sockets: 1 }],
        messages: 0,
        delay_us: None,
        negative: 0,
        unstamped: Vec::new(),
        by_device: 0,
        clock_step_us: None,
    };
    for (host, stamps) in run.hosts.iter_mut().zip([stamps, none]) {
        host.receive_stamps = Some(stamps);
    }
    let names: Vec<String> = run.hosts.iter().map(|host| host.name.clone()).collect();
    for text in [summary(&run, 100), shown(&run, TerminalStyle::plain(120))] {
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| line.contains("Time from driver")).unwrap();
        let told = lines[at..].join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "1,003",
            "12.3 us",
            &format!("{}: 2 messages without a time: the kernel gave no stamp", names[0]),
            "1 message without a time: the stamp was later than the clock",
            "CLOCK_REALTIME was set back by 1.50 s",
            &format!("{}: no socket was stamped: TLS reads them", names[1]),
        ] {
            assert!(told.contains(part), "{part:?} is not in\n{text}");
        }
    }
}

#[test]
fn what_the_kernels_dropped_is_in_the_summary() {
    let mut run = fixtures::udp_loss();
    let observed = |host: &str, packets: u64| {
        let site = DropSite {
            reason: "SOCKET_RCVBUFF".to_owned(),
            place: DropPlace::SocketBuffer,
            outcome: DropOutcome::Lost,
            function: Some("udp_queue_rcv_one_skb".to_owned()),
            offset: 1,
            module: None,
            packets,
            skbs: packets,
            bytes: packets,
        };
        let traced =
            TracedDrops { lost_packets: packets, sites: vec![site], ..TracedDrops::default() };
        HostObservation {
            host: host.to_owned(),
            covers: vec![host.to_owned()],
            drops: Some(DropsSection { traced: Some(traced), ..DropsSection::default() }),
            ..HostObservation::default()
        }
    };
    run.observe = Some(Observe {
        cost: None,
        cost_reason: None,
        probes: Vec::new(),
        hosts: vec![observed("alpha", 0), observed("beta", 37_000)],
        passes: Vec::new(),
    });
    let text = summary(&run, 100);
    let line = "dropped: beta: 37,000 packets: socket buffer 37,000 (udp_queue_rcv_one_skb)";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("dropped: alpha"), "{text}");
}

/// One screen, whatever there is to say, and nothing beyond the width.
#[test]
fn a_summary_is_one_screen() {
    let mut run = fixtures::tcp_stream();
    let hosts = |number: usize, host: &HostRow| HostRow {
        name: format!("host{number}"),
        cpus: vec![number as u32],
        cycles_per_kbyte: Some(1000.0 + number as f64),
        ..host.clone()
    };
    run.hosts = (0..64).map(|number| hosts(number, &run.hosts[number % 2])).collect();
    let warning = |number: usize| Entry {
        code: "steal".to_owned(),
        message: "a long text ".repeat(40),
        brief: Some(format!("the hypervisor took 3.0% of host{number}'s CPU time")),
    };
    run.warnings = (0..64).map(warning).collect();
    for (width, most) in [(60, 48), (80, 40), (100, 40), (200, 40)] {
        let text = summary(&run, width);
        let lines = text.lines().count();
        assert!((20..=most).contains(&lines), "{lines} lines\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("57 other hosts") && text.contains("58 more warnings"), "{text}");
    }
}

#[test]
fn the_part_of_other_programs_takes_no_room_of_the_table() {
    let mut run = fixtures::tcp_stream();
    run.machines[0].foreign_cycles_per_kbyte = Some(300.0);
    let text = summary(&run, 80);
    assert!(text.contains("other programs used 300 of the 2,637 cycles/KByte of alpha"), "{text}");
    assert!(text.contains("  host    role ") && text.contains("  idle%"), "{text}");
    let details = shown(&run, TerminalStyle::plain(80));
    assert!(details.contains("2,637, of which 300 foreign"), "{details}");
}

#[test]
fn hosts_that_say_the_same_are_one_row() {
    let mut run = fixtures::tcp_stream();
    run.machines.clear();
    let idle = |number: usize, percent: f64| {
        let mut host = run.hosts[1].clone();
        host.name = format!("idle{number}");
        host.cpus = vec![number as u32];
        host.shares_machine_with.clear();
        host.cpu.as_mut().unwrap().idle = percent;
        host.bytes = Some(Bytes::default());
        host
    };
    let idle: Vec<HostRow> =
        (2..16).map(|number| idle(number, 99.0 + number as f64 / 20.0)).collect();
    run.hosts.extend(idle);
    let text = summary(&run, 100);
    let row = text.lines().find(|line| line.contains("14 other hosts, idle")).expect(&text);
    assert!(row.split_whitespace().any(|cell| cell == "2-15"), "{row}");
    assert!(text.contains("  client  ") && text.contains("  server  "), "{text}");
    assert!(!text.contains("idle2"), "{text}");
    // A host that worked is not one of them.
    run.hosts[7].cpu.as_mut().unwrap().idle = 60.0;
    assert!(summary(&run, 100).contains("13 other hosts, idle"));
}

#[test]
fn tables() {
    for (name, run) in runs() {
        insta::assert_snapshot!(format!("{name}_80"), shown(&run, TerminalStyle::plain(80)));
        insta::assert_snapshot!(format!("{name}_120"), shown(&run, TerminalStyle::plain(120)));
    }
}

#[test]
fn nothing_is_wider_than_the_terminal_or_anything_but_ascii() {
    for (_, run) in runs() {
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

#[test]
fn links_by_netem_say_what_is_not_known() {
    let mut run = fixtures::tcp_stream();
    let qdisc = |kind: &str, drops| QdiscCounts {
        kind: kind.to_owned(),
        packets: 8_000,
        drops,
        backlog_bytes: 25_000,
        ..QdiscCounts::default()
    };
    let line = |name: &str, qdiscs| NetemLineReport {
        line: NetemLine { name: name.to_owned(), qdiscs },
        bits_per_second: 9.9e6,
    };
    run.netem = Some(NetemReport {
        topology: Topology::Pair,
        link: LinkSpec::default(),
        seconds: 1.0,
        lines: vec![
            line("forward", vec![qdisc("tbf", 123), qdisc("netem", 45)]),
            line("back", Vec::new()),
        ],
        unknown: vec!["how late packets were released".to_owned()],
    });
    let text = shown(&run, TerminalStyle::plain(120));
    for part in ["pair; by netem, error unknown", "pair, by netem", "9.90 Mb/s", "123", "45"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(text.contains("unknown: how late packets were released"), "{text}");
    // Nothing went that way, and no emulator used CPU time.
    assert!(!text.contains("back") && !text.contains("emulator"), "{text}");
}
