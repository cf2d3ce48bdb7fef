//! Where datagrams went, against what is known of their way.

use serde_json::Value;
use wirecost_linux::privilege::skip_without_namespaces;

use crate::document::Document;
use crate::program::Program;

/// All in one phase without a ramp, whose window is the whole of it.
const COUNTED: &str = r#"
    name = "counted"
    [variables]
    h = { help = "remote host" }
    [[group]]
    strands = 2
    [[group.transaction]]
    flowops = [{ type = "connect", remotehost = "${h}", protocol = "udp" }]
    [[group.transaction]]
    iterations = 4000
    flowops = [{ type = "write", size = 200 }]
    [[group.transaction]]
    flowops = ["disconnect"]
"#;

fn run(text: &str, arguments: &[&str]) -> Document {
    let always = ["run", "counted.toml", "--observe", "none"];
    Program::new(always.iter().chain(arguments)).file("counted.toml", text).measure()
}

/// A number of each stage of a direction; -1 for none.
fn each(document: &Document, direction: usize, key: &str) -> Vec<i64> {
    let stages = document.list(&format!("/frames/directions/{direction}/stages"));
    stages.iter().map(|stage| stage[key].as_i64().unwrap_or(-1)).collect()
}

fn places(document: &Document, direction: usize, stage: usize) -> Vec<(String, u64)> {
    let path = format!("/frames/directions/{direction}/stages/{stage}/places");
    let place =
        |of: &Value| (of["place"].as_str().unwrap().to_owned(), of["packets"].as_u64().unwrap());
    document.list(&path).iter().map(place).collect()
}

/// Also in fragments, and where the kernel makes datagrams of a message.
#[test]
fn on_a_wire_every_stage_has_every_datagram() {
    if skip_without_namespaces("on_a_wire_every_stage_has_every_datagram") {
        return;
    }
    for (flowops, directions) in [
        (r#"{ type = "write", size = 100 }, { type = "read", size = 300 }"#, 2),
        (r#"{ type = "write", size = 4000 }"#, 1),
        (r#"{ type = "write", size = 1000, gso = 8 }"#, 1),
    ] {
        let text = COUNTED.replace(r#"{ type = "write", size = 200 }"#, flowops);
        let text = text.replace("iterations = 4000", "duration = \"2s\"\n    rate = 500");
        let document = run(&text, &["--lab"]);
        assert!(document.is_null("/frames/reason"), "{}", document.at("/frames"));
        assert_eq!(document.list("/frames/directions").len(), directions);
        for direction in 0..directions {
            let stages = each(&document, direction, "datagrams");
            assert!(stages[0] > 100, "{stages:?}");
            assert_eq!(stages[..4], [stages[0]; 4], "{flowops}");
            // A busy machine may leave a socket waiting.
            let dropped = stages[3] - stages[4];
            assert_eq!(each(&document, direction, "missing"), [-1, 0, 0, 0, dropped]);
        }
        let intervals = document.list("/frames/directions/0/intervals");
        let generated =
            |row: &Value| row["generated"].as_f64().unwrap() * row["seconds"].as_f64().unwrap();
        let of_intervals: f64 = intervals.iter().map(generated).sum();
        let rate = document.number("/frames/directions/0/stages/0/per_second");
        let of_window = rate * document.number("/window/seconds");
        assert!((of_intervals - of_window).abs() < 0.01 * of_window, "{of_intervals} {of_window}");
    }
}

#[test]
fn what_a_full_socket_drops_is_missing_there() {
    if skip_without_namespaces("what_a_full_socket_drops_is_missing_there") {
        return;
    }
    // A buffer for a few: the kernel doubles what it is asked for.
    let text = COUNTED.replace(r#"protocol = "udp""#, r#"protocol = "udp", wndsz = 2304"#);
    let document = run(&text, &["--lab"]);
    let stages = each(&document, 0, "datagrams");
    // On a busy machine the backlog of a CPU may be full as well: its device sends no packet that it drops.
    let backlog = stages[0] - stages[1];
    assert_eq!(stages[..4], [8000, 8000 - backlog, 8000 - backlog, 8000 - backlog]);
    let dropped = stages[3] - stages[4];
    assert!(dropped > 0, "{stages:?}");
    assert_eq!(each(&document, 0, "missing"), [-1, backlog, 0, 0, dropped]);
    let at = |stage| places(&document, 0, stage).into_iter().map(|(_, packets)| packets as i64);
    assert_eq!(at(1).sum::<i64>(), backlog);
    assert_eq!(places(&document, 0, 4), [("socket_buffer".to_owned(), dropped as u64)]);
    assert_eq!(document.number("/datagrams/lost"), (backlog + dropped) as f64);
}

#[test]
fn what_a_link_loses_is_missing_between_the_devices() {
    if skip_without_namespaces("what_a_link_loses_is_missing_between_the_devices") {
        return;
    }
    let text = COUNTED.replace("iterations = 4000", "duration = \"2s\"\n    rate = 4000");
    // A fifth of what is sent, of which the queue keeps a part.
    let link = ["--lab", "--backend", "emulator", "--rate", "3mbit"];
    let document = run(&text, &link);
    let stages = each(&document, 0, "datagrams");
    let lost = stages[1] - stages[2];
    assert!(lost > 1000, "{stages:?}");
    // On a busy machine the emulator may not take all that the device has.
    assert_eq!(each(&document, 0, "missing")[..4], [-1, stages[0] - stages[1], lost, 0]);
    assert_eq!(places(&document, 0, 2), []);
    assert_eq!(stages[2], stages[3]);
}

#[test]
fn hosts_that_share_devices_have_none_of_their_own() {
    let document = run(COUNTED, &[]);
    assert!(document.text("/frames/reason").contains("share their devices"));
    // Generated, reached the socket, read: a busy machine may not read all.
    let stages = each(&document, 0, "datagrams");
    assert_eq!((stages.len(), &stages[..2]), (3, &[8000; 2][..]));
}
