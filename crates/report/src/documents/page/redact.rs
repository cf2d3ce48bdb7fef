//! Documents that can be sent to others: names of hosts and devices, addresses and paths become
//! `host-1`, `device-1`, `address-1`, `path-1`. The same name has the same pseudonym in one document.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use regex::{Captures, Regex};
use wirecost_analyze::compare::Hosts;
use wirecost_model::document::{Block, Cell, Document};
use wirecost_model::run::Run;

/// Words that wirecost itself uses of hosts and devices; they tell nothing.
const OWN: [&str; 7] = ["lo", "master", "peer", "sender", "receiver", "controller", "all"];

/// Names that must not be in a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    hosts: Vec<String>,
    devices: Vec<String>,
    paths: Vec<String>,
    /// Of records: titles of documents, and beginnings of the paths of runs.
    sources: Vec<String>,
    /// Of records, as the command line names them: parts of the title, and figures.
    labels: Vec<String>,
}

impl Redaction {
    /// Those of runs and of the environments of their hosts. `sources` are the records, as they were named on the
    /// command line.
    #[must_use]
    pub fn of<'a>(
        runs: impl IntoIterator<Item = &'a Run>,
        environments: &Hosts,
        sources: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut names = Self::default();
        sources.into_iter().for_each(|source| names.add_source(&source));
        for run in runs {
            for host in &run.hosts {
                names.add_host(&host.name);
                names.add_host(&host.facts.hostname);
                // An address that is a name, with its port.
                let address = host.address.as_deref().unwrap_or_default();
                if address.parse::<IpAddr>().is_err() && address.parse::<SocketAddr>().is_err() {
                    names.add_host(address.rsplit_once(':').map_or(address, |(name, _)| name));
                }
            }
            run.machines.iter().for_each(|machine| names.add_host(&machine.name));
            if !run.profile.starts_with('@') {
                names.paths.push(run.profile.clone());
            }
            for host in run.observe.iter().flat_map(|observe| &observe.hosts) {
                names.add_host(&host.host);
                names.devices.extend(
                    host.segments.iter().flat_map(|of| &of.devices).map(|of| of.device.clone()),
                );
            }
        }
        names.add_environments(environments);
        names
    }

    /// Names of hosts and devices in the environments of a record.
    pub fn add_environments(&mut self, environments: &Hosts) {
        for (name, environment) in environments {
            self.add_host(name);
            self.devices.extend(environment.devices.iter().flatten().map(|of| of.name.clone()));
        }
        self.tidy();
    }

    /// A record or a study, by its path.
    pub fn add_source(&mut self, path: &str) {
        if is_path(path) {
            self.paths.push(path.to_owned());
        }
        self.sources.push(path.to_owned());
        self.tidy();
    }

    /// What a title and figures call a record. Of other texts it may be any word.
    pub fn add_label(&mut self, name: &str) {
        // A value of an axis is no name of a file.
        if self.sources.iter().any(|source| source == name) {
            self.labels.push(name.to_owned());
        }
    }

    fn tidy(&mut self) {
        for names in [&mut self.hosts, &mut self.devices, &mut self.paths, &mut self.sources] {
            names.retain(|name| !name.is_empty() && !OWN.contains(&name.as_str()));
            names.sort();
            names.dedup();
        }
    }

    /// Of a host with a domain its first part too.
    fn add_host(&mut self, name: &str) {
        self.hosts.push(name.to_owned());
        if let Some((first, _)) = name.split_once('.').filter(|_| name.parse::<IpAddr>().is_err()) {
            self.hosts.push(first.to_owned());
        }
    }
}

fn is_path(text: &str) -> bool {
    text.contains('/') && text.contains(char::is_alphabetic)
}

/// Replaces all names, addresses and paths of a document.
pub fn redact(document: &mut Document, names: &Redaction) {
    let mut pseudonyms = Pseudonyms::default();
    replace_sources(document, names, &mut pseudonyms);
    replace_labels(document, names, &mut pseudonyms);
    // Paths first: a path may hold the name of a host.
    let kinds = [("path", &names.paths), ("host", &names.hosts), ("device", &names.devices)];
    let mut known: Vec<(&'static str, String, String)> = kinds
        .into_iter()
        .flat_map(|(kind, known)| known.iter().map(move |name| (kind, name)))
        .map(|(kind, name)| (kind, name.clone(), pseudonyms.of(kind, name)))
        .collect();
    // The longest first: `eth0.5` before `eth0`.
    known.sort_by_key(|(_, name, _)| std::cmp::Reverse(name.len()));
    let mut change = |text: &mut String| {
        for (kind, name, pseudonym) in &known {
            // Interrupts and threads have names such as `eth0-TxRx-0`.
            let joins: &[char] = if *kind == "device" { &[] } else { &['_', '-'] };
            replace_word(text, name, pseudonym, joins);
        }
        pseudonyms.replace_unknown(text);
    };
    document.change_texts(&mut change);
    document.replay.iter_mut().for_each(|replay| replay.change_texts(&mut change));
}

/// Replaces records where a document names them: a directory may have the name of a word.
fn replace_sources(document: &mut Document, names: &Redaction, pseudonyms: &mut Pseudonyms) {
    for source in &names.sources {
        if document.title == *source {
            document.title = pseudonyms.of("path", source);
        }
        let blocks = document.sections.iter_mut().flat_map(|section| &mut section.blocks);
        let lists = blocks.filter_map(|block| match block {
            Block::Runs(list) => Some(list),
            _ => None,
        });
        for record in lists.flat_map(|list| &mut list.runs).filter_map(|run| run.record.as_mut()) {
            let rest = record.strip_prefix(source.as_str());
            if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
                *record = format!("{}{rest}", pseudonyms.of("path", source));
            }
        }
    }
}

/// Replaces records where a comparison or a model names them: in its title, and as figures.
fn replace_labels(document: &mut Document, names: &Redaction, pseudonyms: &mut Pseudonyms) {
    // The longest first: one may be a part of another.
    let mut labels: Vec<&String> = names.labels.iter().collect();
    labels.sort_by_key(|label| std::cmp::Reverse(label.len()));
    for label in labels {
        let pseudonym = pseudonyms.of("path", label);
        replace_word(&mut document.title, label, &pseudonym, &['_', '-', '/', '.']);
        let blocks = document.sections.iter_mut().flat_map(|section| &mut section.blocks);
        for block in blocks {
            let Block::Figures(figures) = block else { continue };
            for figure in figures.iter_mut().filter(|figure| figure.value.shown() == label) {
                figure.value = Cell::text(&pseudonym);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Pseudonyms {
    known: BTreeMap<String, String>,
    numbers: BTreeMap<&'static str, usize>,
}

impl Pseudonyms {
    fn of(&mut self, kind: &'static str, name: &str) -> String {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let number = self.numbers.entry(kind).or_default();
        *number += 1;
        let pseudonym = format!("{kind}-{number}");
        self.known.insert(name.to_owned(), pseudonym.clone());
        pseudonym
    }

    /// Addresses and paths, which are known by how they are written.
    fn replace_unknown(&mut self, text: &mut String) {
        for (kind, pattern) in &*PATTERNS {
            let changed = pattern.replace_all(text, |found: &Captures<'_>| {
                let after = found.get(2).and_then(|found| text[found.end()..].chars().next());
                // `>::call_once` is a function.
                let is_part = found[2].starts_with("::")
                    && after.is_some_and(|of| of.is_alphabetic() || of == '_');
                let (before, found) = (&found[1], &found[2]);
                // `</group>` ends an element of a profile.
                let is_tag = before == "<"
                    && after == Some('>')
                    && found.strip_prefix('/').is_some_and(|name| !name.contains('/'));
                // A sentence may end with it.
                let bare = found.trim_end_matches(['.', ':', '!', '?']);
                let end = &found[bare.len()..];
                match is_hidden(kind, bare) && !is_part && !is_tag {
                    true => format!("{before}{}{end}", self.of(kind, bare)),
                    false => format!("{before}{found}"),
                }
            });
            *text = changed.into_owned();
        }
    }
}

/// What stands before, and what may be hidden.
static PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    let pattern = |text: &str| Regex::new(text).ok();
    let all = [
        // Hardware addresses, before what looks like a part of an IPv6 address.
        ("address", pattern(r"(^|[^0-9A-Za-z])([0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5})\b")),
        ("address", pattern(r"(^|[^0-9A-Za-z.])([0-9]{1,3}(?:\.[0-9]{1,3}){3})")),
        (
            "address",
            pattern(
                r"(^|[^0-9A-Za-z:.])([0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)",
            ),
        ),
        // After the name of a scheme, an option or a key too; and what has the extension of a file.
        (
            "path",
            pattern(
                r#"(^|://|[^0-9A-Za-z/.)%~}\]])((?:\.{0,2}|~)/[^\s/,;|<>"'`“”‘’(){}*][^\s,;|<>"'`“”‘’(){}*]*)"#,
            ),
        ),
        ("path", pattern(r"(^|[^0-9A-Za-z/.-])([\w.-]+(?:/[\w.-]+)+\.[A-Za-z]\w{0,5})\b")),
    ];
    all.into_iter().filter_map(|(kind, pattern)| Some((kind, pattern?))).collect()
});

fn is_hidden(kind: &str, text: &str) -> bool {
    if kind == "address" {
        let bare = text.split('%').next().unwrap_or_default();
        // All others are hardware addresses.
        return bare.parse::<IpAddr>().map_or(text.len() == 17, |of| !of.is_unspecified());
    }
    // The same everywhere; and `/s` is per second.
    let is_own = ["/proc", "/sys", "docs"].iter().any(|own| {
        text.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let is_pseudonym = text.starts_with("path-");
    (!is_own || text.starts_with("/sys/class/net/")) && text != "/s" && !is_pseudonym
}

/// Replaces a name where it is not a part of a longer one, which `joins` can be in beside letters.
fn replace_word(text: &mut String, name: &str, by: &str, joins: &[char]) {
    if !text.contains(name) {
        return;
    }
    let is_part =
        |letter: Option<char>| letter.is_some_and(|of| of.is_alphanumeric() || joins.contains(&of));
    let mut changed = String::with_capacity(text.len());
    let mut rest = text.as_str();
    let mut before = None;
    while let Some(place) = rest.find(name) {
        let (head, tail) = (&rest[..place], &rest[place + name.len()..]);
        before = head.chars().next_back().or(before);
        let whole = !is_part(before) && !is_part(tail.chars().next());
        changed += head;
        changed += if whole { by } else { name };
        before = name.chars().next_back();
        rest = tail;
    }
    changed += rest;
    *text = changed;
}

#[cfg(test)]
mod tests {
    use wirecost_model::document::{Axis, Chart, ChartKind, ListedRun, RunList, Section, Series};
    use wirecost_model::metric::Unit;
    use wirecost_model::status::Status;

    use super::*;

    #[test]
    fn names_addresses_and_paths_are_replaced_everywhere() {
        let names = Redaction {
            hosts: vec!["db7".to_owned(), "db7.example.org".to_owned()],
            devices: vec!["eth0".to_owned(), "eth0.5".to_owned()],
            paths: vec!["studies/secret".to_owned()],
            sources: vec!["studies/secret".to_owned()],
            labels: Vec::new(),
        };
        let mut section = Section::new("On db7");
        section.text("db7 and db7.example.org, not db77 or mydb7; eth0.5 is not eth0.");
        section
            .text("10.0.0.7:5001 > [fe80::1%eth0]:80, 10.0.0.7, 02:00:5e:10:00:01 at /home/me/x.");
        section.text("see /proc/stat, 12:30 and 8 Gb/s; studies/secret/runs/0001-01");
        let mut chart =
            Chart::new("", ChartKind::Lines, Axis::time(), Axis::new("cwnd", Unit::Count));
        chart.series.push(Series::new("10.0.0.7:5001 > 10.0.0.8:5002", Vec::new()));
        section.chart(chart);
        let mut document = Document::new("studies/secret");
        document.sections.push(section);
        redact(&mut document, &names);
        let text = serde_json::to_string(&document).unwrap();
        for hidden in
            ["db7,", "db7\"", "example.org", "eth0", "10.0.0", "fe80", "5e:10", "/home", "secret"]
        {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
        for kept in ["db77", "mydb7", "/proc/stat", "12:30", "8 Gb/s", "path-1/runs/0001-01"] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        // The same name is the same pseudonym.
        assert_eq!(text.matches("address-2").count(), 3, "{text}");
    }

    #[test]
    fn what_stands_beside_names_does_not_hide_them() {
        assert_eq!(PATTERNS.len(), 5);
        let mut pseudonyms = Pseudonyms::default();
        for (written, wanted) in [
            (
                "read:/home/a/x, `/home/a/x` and \u{201c}/home/a/x\u{201d}",
                "read:path-1, `path-1` and \u{201c}path-1\u{201d}",
            ),
            ("file:///home/a/q tcp://10.1.2.3:5001", "file://path-2 tcp://address-1:5001"),
            (
                "<group><file=/home/a/x></group> </home/a/x>",
                "<group><file=path-1></group> <path-1>",
            ),
            ("a@10.1.2.3 {10.1.2.3} *10.1.2.3*", "a@address-1 {address-1} *address-1*"),
            ("10.1.2.3:1-10.1.2.4:2 10.1.2.3->x", "address-1:1-address-2:2 address-1->x"),
            ("[fe80::1%eth9]:80 ::1.", "[address-3]:80 address-4."),
            ("02-00-5e-10-00-01 02:00:5e:10:00:02.", "address-5 address-6."),
            ("secrets/a/z.txt ./own ~/own", "path-5 path-3 path-4"),
            ("/sys/class/net/ens9/x", "path-6"),
        ] {
            let mut text = written.to_owned();
            pseudonyms.replace_unknown(&mut text);
            assert_eq!(text, wanted, "{written}");
        }
        for kept in [
            "16,686 /s, cycles/KByte, TCP/UDP and (usr/sys/intr/idle) (70/11/17/0)",
            "/proc/stat, /sys/kernel/btf, docs/html.md; 12:30:15; Linux 6.18.5; 0000:3b:00.0; 0.0.0.0",
            "std::io::Error",
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
        ] {
            let mut text = kept.to_owned();
            pseudonyms.replace_unknown(&mut text);
            assert_eq!(text, kept);
        }
        let mut text = "eth0-TxRx-0 napi/eth0-8193 eth01 myeth0".to_owned();
        replace_word(&mut text, "eth0", "device-1", &[]);
        assert_eq!(text, "device-1-TxRx-0 napi/device-1-8193 eth01 myeth0");
    }

    /// A record may have the name of any word.
    #[test]
    fn a_record_is_replaced_where_it_is_named_only() {
        let mut run = Run::empty("@rr", "epoll", "0.1.0", 0);
        run.error = None;
        let names = Redaction::of([&run], &Hosts::new(), ["run".to_owned()]);
        let mut document = Document::new("run");
        let mut section = Section::new("Each run");
        section.text("a run of @rr");
        let run = ListedRun {
            name: "0001-01".to_owned(),
            point: String::new(),
            status: Status::Ok,
            started_unix_ms: 0,
            record: Some("run/runs/0001-01".to_owned()),
            cells: Vec::new(),
        };
        section.blocks.push(Block::Runs(RunList { columns: Vec::new(), runs: vec![run] }));
        document.sections.push(section);
        redact(&mut document, &names);
        assert_eq!(
            (document.title.as_str(), document.sections[0].title.as_str()),
            ("path-1", "Each run")
        );
        assert_eq!(document.sections[0].blocks[0], Block::Text("a run of @rr".to_owned()));
        let Block::Runs(list) = &document.sections[0].blocks[1] else { panic!() };
        assert_eq!(list.runs[0].record.as_deref(), Some("path-1/runs/0001-01"));
    }

    #[test]
    fn names_of_hosts_come_with_domains_and_as_addresses() {
        let mut names = Redaction::default();
        names.add_host("db7.corp.example.org");
        names.add_host("10.0.0.1");
        assert_eq!(names.hosts, ["db7.corp.example.org", "db7", "10.0.0.1"]);
    }
}
