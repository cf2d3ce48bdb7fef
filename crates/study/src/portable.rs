//! A study without what is of one machine, so that it can be run on any.

use crate::definition::{Baseline, Definition};
use crate::error::StudyError;
use crate::place::{PLACE, Place};
use crate::scalar::{AxisValue, Scalar};

/// Names of settings of machines, and of files on them, by how they begin.
const OF_MACHINES: [&str; 6] = [
    "tune.",
    "tune-device",
    "run.tune-device",
    "allow-control-device",
    "cc_object",
    "run.cc_object",
];
/// Settings that may name hosts and their CPUs.
const OF_CPUS: [&str; 4] = ["cpus", "run.cpus", "workers", "run.workers"];
/// Keys of links that name a file.
const FILES_OF_LINKS: [&str; 1] = ["trace"];

impl Definition {
    /// The same study without hosts, virtual machines, settings of machines and files, and what was left out,
    /// a sentence each.
    ///
    /// # Errors
    /// Nothing to run is left, or its links follow a file.
    pub fn portable(mut self) -> Result<(Self, Vec<String>), StudyError> {
        let mut left_out = Vec::new();
        if !self.hosts.is_empty() {
            self.hosts.clear();
            left_out.push("the addresses of its hosts".to_owned());
        }
        if let Place::Vm(_) = self.place {
            self.place = Place::Loopback;
        }
        if self.axes.contains_key(PLACE) {
            let is_vm = |label: &str| label.starts_with("vm:");
            let vms: Vec<String> =
                self.levels_of(PLACE).into_iter().filter(|label| is_vm(label)).collect();
            for label in vms {
                left_out.push(format!("the virtual machine {label}"));
                self.replace_value(PLACE, &label, &[]);
            }
        }
        for axis in self.axes_of(&OF_MACHINES) {
            self.remove_axis(&axis)?;
            left_out.push(format!("the axis {axis}: settings of hosts are yours (--axis adds it)"));
        }
        for (axis, labels) in self.drop_values_of(&OF_MACHINES) {
            left_out.push(format!("of the axis {axis}: {}", labels.join(", ")));
        }
        self.drop_settings(&mut left_out);
        if let Some(Baseline::Study { .. }) = self.baseline {
            self.baseline = None;
            self.expect.clear();
            left_out.push("the study that it was compared with".to_owned());
        }
        self.quick = None;
        match self.file_of_links() {
            Some(key) => Err(StudyError::NotPortable(format!("its links follow a file ({key})"))),
            None if self.tune.is_some() => {
                Err(StudyError::NotPortable("it is a search of wirecost tune".to_owned()))
            }
            None => Ok((self, left_out)),
        }
    }

    /// Gives a profile another name wherever the study has it.
    pub fn rename_profile(&mut self, name: &str, new: &str) {
        const KEY: &str = "profile";
        let rename = |value: &mut Scalar| {
            if value.0 == name {
                new.clone_into(&mut value.0);
            }
        };
        self.profile.iter_mut().filter(|known| *known == name).for_each(|of| new.clone_into(of));
        let rules = self.when.iter_mut().map(|rule| &mut rule.set);
        let set = rules.chain([&mut self.set, &mut self.base]);
        set.filter_map(|set| set.get_mut(KEY)).for_each(rename);
        for (axis, values) in &mut self.axes {
            for value in values {
                match value {
                    AxisValue::One(value) if axis == KEY => rename(value),
                    AxisValue::One(_) => {}
                    AxisValue::Several(set) => set.get_mut(KEY).into_iter().for_each(rename),
                }
            }
        }
    }

    /// Settings of machines at all points, at some, and in the tables of axes.
    fn drop_settings(&mut self, left_out: &mut Vec<String>) {
        let mut dropped: Vec<String> = Vec::new();
        let mut keeps = |name: &str, value: &str| {
            let is_of_machines = OF_MACHINES.iter().any(|prefix| name.starts_with(prefix));
            // `h2:4` is said of a host.
            let names_hosts = OF_CPUS.contains(&name) && value.contains(':');
            if is_of_machines || names_hosts {
                dropped.push(name.to_owned());
            }
            !is_of_machines && !names_hosts
        };
        self.set.retain(|name, value| keeps(name, &value.0));
        for rule in &mut self.when {
            rule.set.retain(|name, value| keeps(name, &value.0));
        }
        self.when.retain(|rule| !rule.set.is_empty());
        for value in self.axes.values_mut().flatten() {
            if let AxisValue::Several(set) = value {
                set.retain(|name, value| keeps(name, &value.0));
            }
        }
        dropped.sort_unstable();
        dropped.dedup();
        left_out.extend(dropped.into_iter().map(|name| format!("the setting {name}")));
    }

    /// A key of links that names a file.
    fn file_of_links(&self) -> Option<String> {
        let links = self.lab.iter().flat_map(|lab| lab.keys.keys().chain(lab.back.keys()));
        let set = self.set.keys().chain(self.axes.keys());
        let in_rules = self.when.iter().flat_map(|rule| rule.set.keys());
        let in_tables = self.axes.values().flatten().flat_map(|value| match value {
            AxisValue::Several(set) => set.keys().collect::<Vec<_>>(),
            AxisValue::One(_) => Vec::new(),
        });
        let of_lab = set.chain(in_rules).chain(in_tables).filter(|name| name.starts_with("lab."));
        let key = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        links.chain(of_lab).map(|name| key(name)).find(|key| FILES_OF_LINKS.contains(&key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_machines_is_left_out_and_told() {
        let study = Definition::parse(
            r#"
            title = "t"
            profile = "@stream"
            hosts = { server = "10.0.0.2" }
            seed = 7
            [set]
            engine = "epoll"
            "tune.mtu" = 9000
            tune-device = "eth0"
            cpus = "h2:4"
            [axes]
            connections = [1, 4]
            "tune.tcp_sack" = [0, 1]
            both = [
                { label = "a", "tune.tcp_ecn" = 1 },
                { label = "b", size = "1k", "tune.tcp_ecn" = 0 },
                { label = "c", size = "2k" },
            ]
            [[when]]
            at = { connections = 4 }
            set = { "tune.netdev_max_backlog" = 9 }
            "#,
        );
        let (study, left_out) = study.unwrap().portable().unwrap();
        let text = study.to_text();
        for gone in ["10.0.0.2", "tune", "eth0", "cpus", "when"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert_eq!(study.levels_of("both"), ["b", "c"]);
        assert_eq!((study.seed, study.axes.len()), (7, 2));
        let told = left_out.join("; ");
        for wanted in [
            "the addresses of its hosts",
            "the axis tune.tcp_sack",
            "of the axis both: a",
            "the setting tune.mtu",
            "the setting tune-device",
            "the setting cpus",
            "the setting tune.netdev_max_backlog",
            "the setting tune.tcp_ecn",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        // Twice is the same as once.
        let again = Definition::parse(&text).unwrap().portable().unwrap();
        assert_eq!(again, (study, Vec::new()));
    }

    #[test]
    fn virtual_machines_and_other_studies_are_left_out() {
        let text = r#"
            profile = "@rr"
            baseline = { study = "/home/me/other" }
            expect = [{ that = "throughput >= 1*baseline" }]
            axes = { place = ["loopback", "vm:6.1", "lab"] }
        "#;
        let (study, left_out) = Definition::parse(text).unwrap().portable().unwrap();
        assert_eq!(study.levels_of(PLACE), ["loopback", "lab"]);
        assert_eq!((study.baseline, study.expect.len()), (None, 0));
        assert_eq!(left_out, ["the virtual machine vm:6.1", "the study that it was compared with"]);
        let (study, _) =
            Definition::parse("profile = \"@rr\"\nplace = \"vm:6.1\"").unwrap().portable().unwrap();
        assert_eq!(study.place, Place::Loopback);
    }

    #[test]
    fn links_of_a_file_and_searches_are_not_portable() {
        for text in [
            "profile = \"@rr\"\nplace = \"lab\"\nlab = { trace = \"/etc/shadow\" }",
            "profile = \"@rr\"\nplace = \"lab\"\nlab = { back = { trace = \"x\" } }",
            "profile = \"@rr\"\nset = { \"lab.back.trace\" = \"x\" }",
            "profile = \"@rr\"\naxes = { \"lab.trace\" = [\"x\", \"y\"] }",
            "profile = \"@rr\"\naxes = { a = [{ label = \"a\", \"lab.trace\" = \"y\" }] }",
        ] {
            let error = Definition::parse(text).unwrap().portable().unwrap_err();
            assert!(error.to_string().contains("its links follow a file (trace)"), "{error}");
        }
    }
}
