//! Which threads are watched.

use std::collections::BTreeMap;
use std::fs;

use wirecost_model::observe::Part;

/// A thread of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) process: u32,
    pub(super) name: String,
    /// The host of the run, and its number there.
    pub(super) worker: Option<(String, u32)>,
}

impl Watched {
    pub(super) fn is_of(&self, part: &Part) -> bool {
        match &self.worker {
            Some((host, _)) => part.workers_of.iter().any(|(name, _)| name == host),
            None => part.pid == Some(self.process),
        }
    }
}

/// The workers of the hosts, and all threads of a process that is asked for, by number.
pub(super) fn of(parts: &[Part]) -> BTreeMap<u32, Watched> {
    let mut all = BTreeMap::new();
    for process in parts.iter().filter_map(|part| part.pid) {
        all.extend(
            threads(process).map(|(id, name)| (id, Watched { process, name, worker: None })),
        );
    }
    for (host, process) in parts.iter().flat_map(|part| &part.workers_of) {
        all.extend(threads(*process).filter_map(|(id, name)| {
            let worker = Some((host.clone(), number(&name)?));
            Some((id, Watched { process: *process, name, worker }))
        }));
    }
    all
}

/// Whether a thread runs or is ready to, as the kernel says at this instant.
pub(super) fn is_ready(thread: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{thread}/stat")).unwrap_or_default();
    // The name is in parentheses and may hold anything.
    text.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('R'))
}

/// Number of a worker, of its thread's name: `wirecost-3`.
fn number(name: &str) -> Option<u32> {
    name.strip_prefix("wirecost-")?.parse().ok()
}

/// Threads of a process and their names; none of one that has gone.
fn threads(process: u32) -> impl Iterator<Item = (u32, String)> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some((id, name.trim_end().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs beside a thread of this name.
    fn beside(name: &str, work: impl FnOnce()) {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || ended.recv().is_err()).unwrap();
        while !threads(std::process::id()).any(|(_, found)| found == name) {
            std::thread::yield_now();
        }
        work();
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn workers_are_known_by_the_name_of_their_thread() {
        beside("wirecost-17", || {
            let process = std::process::id();
            let own = Part { pid: Some(process), ..Part::default() };
            let host = Part { workers_of: vec![("h1".to_owned(), process)], ..Part::default() };
            let found = of(std::slice::from_ref(&host));
            let workers: Vec<&Watched> = found.values().collect();
            let [worker] = workers.as_slice() else { panic!("{found:?}") };
            assert_eq!(worker.worker, Some(("h1".to_owned(), 17)));
            assert!(worker.is_of(&host) && !worker.is_of(&own));
            let all = of(std::slice::from_ref(&own));
            assert!(all.len() > 1 && all.values().all(|thread| thread.is_of(&own)), "{all:?}");
            assert!(all.values().any(|thread| thread.name == "wirecost-17"), "{all:?}");
        });
        assert_eq!(number("wirecost-gone"), None);
        assert_eq!(number("wirecost"), None);
    }
}
