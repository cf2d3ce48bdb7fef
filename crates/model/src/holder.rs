//! Who uses a machine, as others are told.

use serde::{Deserialize, Serialize};

/// Characters of the longest text of an identity that is kept.
const LONGEST: usize = 1000;

/// One run, or one study with all its runs, on however many hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// Unique; what has the same one is the same run.
    pub id: String,
    pub user: String,
    /// Hostname of the machine that drives it.
    pub host: String,
    /// Of the process that drives it, there.
    pub pid: u32,
    pub command: String,
}

impl RunIdentity {
    /// The same with texts that a terminal can show: another process may have sent them.
    #[must_use]
    pub fn printable(mut self) -> Self {
        for text in [&mut self.id, &mut self.user, &mut self.host, &mut self.command] {
            if text.chars().count() > LONGEST {
                *text = text.chars().take(LONGEST).chain("...".chars()).collect();
            }
            *text = text.replace(char::is_control, "?");
        }
        self
    }
}

/// A run that uses CPUs of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub run: RunIdentity,
    pub since_unix_ms: u64,
    /// Empty where it uses all of them.
    pub cpus: Vec<u32>,
}

impl Holder {
    /// Whether the two use any CPU both.
    #[must_use]
    pub fn overlaps(&self, cpus: &[u32]) -> bool {
        self.cpus.is_empty() || cpus.is_empty() || cpus.iter().any(|cpu| self.cpus.contains(cpu))
    }

    /// Whether it holds all of these CPUs.
    #[must_use]
    pub fn covers(&self, cpus: &[u32]) -> bool {
        let listed = !cpus.is_empty() && cpus.iter().all(|cpu| self.cpus.contains(cpu));
        self.cpus.is_empty() || listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(cpus: &[u32]) -> Holder {
        let run = RunIdentity {
            id: "1".to_owned(),
            user: "ada".to_owned(),
            host: "here".to_owned(),
            pid: 12,
            command: "wirecost run @rr".to_owned(),
        };
        Holder { run, since_unix_ms: 0, cpus: cpus.to_vec() }
    }

    #[test]
    fn cpus_overlap_unless_both_sets_are_known_and_disjoint() {
        assert!(holder(&[0, 1]).overlaps(&[1, 2]));
        assert!(!holder(&[0, 1]).overlaps(&[2, 3]));
        assert!(holder(&[]).overlaps(&[2]));
        assert!(holder(&[0]).overlaps(&[]));
        assert!(
            holder(&[0, 1]).covers(&[1]) && holder(&[]).covers(&[1]) && holder(&[]).covers(&[])
        );
        assert!(!holder(&[0, 1]).covers(&[1, 2]) && !holder(&[0, 1]).covers(&[]));
    }

    #[test]
    fn a_text_of_another_process_cannot_steer_the_terminal() {
        let mut run = holder(&[]).run;
        run.command = format!("\x1b[2J\n{}", "x".repeat(1 << 20));
        let printable = run.printable().command;
        assert!(printable.starts_with("?[2J?xxx") && printable.len() < 1100);
    }
}
