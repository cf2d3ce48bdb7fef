//! Documents that can be sent to others: names of hosts and devices, addresses and paths become
//! `host-1`, `device-1`, `address-1`, `path-1`. The same name has the same pseudonym in one document.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use wirecost_analyze::compare::Hosts;
use wirecost_model::document::Document;
use wirecost_model::run::Run;

/// Words that wirecost itself uses of hosts and devices; they tell nothing.
const OWN: [&str; 7] = ["lo", "master", "peer", "sender", "receiver", "controller", "all"];

/// Names that must not be in a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    hosts: Vec<String>,
    devices: Vec<String>,
    paths: Vec<String>,
}

impl Redaction {
    /// Those of runs and of the environments of their hosts. `paths` are files and directories that were
    /// named on the command line.
    #[must_use]
    pub fn of<'a>(
        runs: impl IntoIterator<Item = &'a Run>,
        environments: &Hosts,
        paths: impl IntoIterator<Item = String>,
    ) -> Self {
        let mut names = Self { paths: paths.into_iter().collect(), ..Self::default() };
        for run in runs {
            for host in &run.hosts {
                names.hosts.extend([host.name.clone(), host.facts.hostname.clone()]);
            }
            names.hosts.extend(run.machines.iter().map(|machine| machine.name.clone()));
            if !run.profile.starts_with('@') {
                names.paths.push(run.profile.clone());
            }
            for host in run.observe.iter().flat_map(|observe| &observe.hosts) {
                names.hosts.push(host.host.clone());
                names.devices.extend(
                    host.segments.iter().flat_map(|of| &of.devices).map(|of| of.device.clone()),
                );
            }
        }
        for (name, environment) in environments {
            names.hosts.push(name.clone());
            names.devices.extend(environment.devices.iter().flatten().map(|of| of.name.clone()));
        }
        for names in [&mut names.hosts, &mut names.devices, &mut names.paths] {
            names.retain(|name| !name.is_empty() && !OWN.contains(&name.as_str()));
            names.sort();
            names.dedup();
        }
        names
    }
}

/// Replaces all names, addresses and paths of a document.
pub fn redact(document: &mut Document, names: &Redaction) {
    let mut pseudonyms = Pseudonyms::default();
    // Paths first: a path may hold the name of a host.
    for (kind, known) in
        [("path", &names.paths), ("host", &names.hosts), ("device", &names.devices)]
    {
        for name in known {
            pseudonyms.of(kind, name);
        }
    }
    let mut known: Vec<(String, String)> =
        pseudonyms.known.iter().map(|(name, known)| (name.clone(), known.clone())).collect();
    // The longest first: `eth0.5` before `eth0`.
    known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    document.change_texts(&mut |text| {
        for (name, pseudonym) in &known {
            replace_word(text, name, pseudonym);
        }
        pseudonyms.replace_unknown(text);
    });
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
        let mut changed = String::with_capacity(text.len());
        for part in text.split_inclusive(is_between) {
            let word = part.trim_end_matches(is_between);
            // A sentence may end with it.
            let bare = word.trim_end_matches(['.', ':']);
            match kind(bare) {
                Some(kind) => changed += &self.of(kind, bare),
                None => changed += bare,
            }
            changed += &part[bare.len()..];
        }
        *text = changed;
    }
}

/// What separates words.
fn is_between(letter: char) -> bool {
    letter.is_whitespace() || ",;()<>\"'=|".contains(letter)
}

/// What a word is that must not be shown.
fn kind(word: &str) -> Option<&'static str> {
    let is_address = || {
        let bare = word.split_once('/').map_or(word, |(address, _)| address);
        let bare = bare.trim_start_matches('[').split('%').next().unwrap_or_default();
        let bare = bare.trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok_and(|address| !address.is_unspecified())
            || word.parse::<SocketAddr>().is_ok()
    };
    let is_hardware = || {
        let parts: Vec<&str> = word.split(':').collect();
        let is_hex = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        parts.len() == 6 && parts.iter().all(is_hex)
    };
    // `/proc/stat` and the like are the same everywhere.
    let is_own = ["/proc", "/sys", "/s"].iter().any(|own| {
        word.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    let is_path = || {
        let absolute = word.starts_with('/') && word.len() > 1 && !is_own;
        absolute || ["./", "../", "~/"].iter().any(|begin| word.starts_with(begin))
    };
    if is_address() || is_hardware() {
        Some("address")
    } else if is_path() {
        Some("path")
    } else {
        None
    }
}

/// Replaces a name where it is not a part of a longer one.
fn replace_word(text: &mut String, name: &str, by: &str) {
    if !text.contains(name) {
        return;
    }
    let is_part = |letter: Option<char>| {
        letter.is_some_and(|of| of.is_alphanumeric() || of == '_' || of == '-')
    };
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
    use wirecost_model::document::{Axis, Chart, ChartKind, Section, Series};
    use wirecost_model::metric::Unit;

    use super::*;

    #[test]
    fn names_addresses_and_paths_are_replaced_everywhere() {
        let names = Redaction {
            hosts: vec!["db7".to_owned(), "db7.example.org".to_owned()],
            devices: vec!["eth0".to_owned(), "eth0.5".to_owned()],
            paths: vec!["studies/secret".to_owned()],
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
        assert_eq!(text.matches("address-1").count(), 2, "{text}");
    }
}
