use wirecost_linux::cpu_list::parse_list;
use wirecost_model::plan::WorkerCpus;

use super::{Change, RunOption};

pub(super) struct Cpus;

impl RunOption for Cpus {
    fn name(&self) -> &'static str {
        "cpus"
    }

    fn value_name(&self) -> Option<&'static str> {
        Some("LIST|NAME=LIST,...")
    }

    fn help(&self) -> &'static str {
        "CPUs on which the workers of each host run, or of hosts by name: `0-3`, `master=0,2,peer=1` \
         [default: all CPUs of the host]"
    }

    fn read(&self, value: &str) -> Result<Change, String> {
        let cpus = parse(value)?;
        Ok(Change::to_settings(move |settings| settings.cpus = cpus.clone()))
    }
}

/// A name begins with the list that follows it, and each list ends where the next name begins.
fn parse(text: &str) -> Result<WorkerCpus, String> {
    let mut lists: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
    for part in text.split(',') {
        match (part.split_once('='), lists.last_mut()) {
            (Some((name, part)), _) => lists.push((Some(name.trim()), vec![part.trim()])),
            (None, Some((_, parts))) => parts.push(part.trim()),
            (None, None) => lists.push((None, vec![part.trim()])),
        }
    }
    let mut cpus = WorkerCpus::default();
    for (name, parts) in lists {
        let list = parse_list(&parts.join(",")).filter(|list| !list.is_empty());
        let mut list = list.ok_or("must be CPUs, such as 0-3,8, or NAME=CPUS for hosts by name")?;
        list.sort_unstable();
        list.dedup();
        cpus.set(name, list)?;
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use wirecost_model::program::Side;

    use super::*;

    #[test]
    fn cpus_are_of_each_host_or_of_those_that_are_named() {
        let of = |text: &str, host, side| parse(text).unwrap().of(host, side).cloned();
        assert_eq!(of("0-2,5", "h1", Side::Master), Some(vec![0, 1, 2, 5]));
        assert_eq!(of("3,1,1", "h1", Side::Peer), Some(vec![1, 3]));
        let text = "7,master=0,2-3,h2=1";
        assert_eq!(of(text, "h1", Side::Master), Some(vec![0, 2, 3]));
        assert_eq!(of(text, "h2", Side::Peer), Some(vec![1]));
        assert_eq!(of(text, "h3", Side::Peer), Some(vec![7]));
        assert_eq!(of("master=0", "h2", Side::Peer), None);
        for bad in ["", "a", "1,", "master=", "master=0,master=1", "1-", "master=0,x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
