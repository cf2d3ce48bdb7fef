//! Stacks of samples in a file of their own, `stacks.folded`, as tools for flame graphs take them. They
//! are most of a document, and only a flame graph wants them: whoever reads a thousand runs does
//! not read theirs (ADR 0018).
//!
//! The outermost frame of each line is the host.

use wirecost_model::observe::{FoldedStack, FoldedStacks, HostObservation};

/// Takes the stacks out of what was observed; empty where there are none.
pub(crate) fn take(hosts: &mut [HostObservation]) -> String {
    let mut text = String::new();
    for host in hosts {
        let Some(functions) = &mut host.functions else { continue };
        for FoldedStack { stack, count } in std::mem::take(&mut functions.stacks).stacks {
            text.push_str(&format!("{};{stack} {count}\n", host.host));
        }
    }
    text
}

/// Puts them back.
///
/// # Errors
/// Why the text is not that of these hosts.
pub(crate) fn put_back(hosts: &mut [HostObservation], text: &str) -> Result<(), String> {
    if !text.ends_with('\n') {
        return Err("it ends in the middle of a line".to_owned());
    }
    let folded = FoldedStacks::parse(text).map_err(|line| format!("line {line} has no count"))?;
    for FoldedStack { stack, count } in folded.stacks {
        let mut hosts = hosts.iter_mut();
        let found = hosts.find_map(|host| {
            let stack = stack.strip_prefix(&host.host)?.strip_prefix(';')?.to_owned();
            Some((host.functions.as_mut()?, stack))
        });
        let Some((functions, stack)) = found else {
            let host = stack.split(';').next().unwrap_or_default();
            return Err(format!("{host} was not sampled in this run"));
        };
        functions.stacks.stacks.push(FoldedStack { stack, count });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::FunctionsSection;

    use super::*;

    fn host(name: &str, stacks: &[(&str, u64)]) -> HostObservation {
        let fold = |&(stack, count): &(&str, u64)| FoldedStack { stack: stack.to_owned(), count };
        let stacks = FoldedStacks { stacks: stacks.iter().map(fold).collect() };
        let functions = Some(FunctionsSection { stacks, ..FunctionsSection::default() });
        HostObservation { host: name.to_owned(), functions, ..HostObservation::default() }
    }

    #[test]
    fn stacks_are_restored_to_their_hosts() {
        let full = [
            host("h1", &[("wirecost;read_[k]", 3), ("a b;<T as U>::f", 1)]),
            HostObservation { host: "h2".to_owned(), ..HostObservation::default() },
            host("h10", &[("wirecost;write_[k]", 7)]),
        ];
        let mut hosts = full.clone();
        let text = take(&mut hosts);
        assert_eq!(
            text,
            "h1;wirecost;read_[k] 3\nh1;a b;<T as U>::f 1\nh10;wirecost;write_[k] 7\n"
        );
        assert_eq!(take(&mut hosts), "");
        put_back(&mut hosts, &text).unwrap();
        assert_eq!(hosts, full);
    }

    #[test]
    fn stacks_of_unknown_hosts_are_refused() {
        let mut hosts = [host("h1", &[])];
        let mut refused = |text| put_back(&mut hosts, text).unwrap_err();
        assert_eq!(refused("h2;main 1\n"), "h2 was not sampled in this run");
        assert_eq!(refused("h1;main\n"), "line 1 has no count");
        assert!(refused("h1;main 1").contains("middle"));
    }
}
