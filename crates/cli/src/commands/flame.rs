//! `wirecost flame`: a flame graph of what a run or an observation has sampled.

use std::path::{Path, PathBuf};

use clap::Args;
use wirecost_model::observe::{FoldedStacks, HostObservation};
use wirecost_model::status::Status;
use wirecost_report::flame::{self, Scale};
use wirecost_store::{Document, document};

use crate::Failure;
use crate::terminal;

/// Draw a flame graph (SVG) of the functions that a run sampled, or of the difference of two runs.
///
/// RESULT is a file or directory written by `--json FILE` or `--out DIR` of `run` or `observe`. The
/// graph goes to standard output; open it in a browser.
#[derive(Debug, Args)]
pub(crate) struct Flame {
    /// JSON of a run or an observation, or a record.
    #[arg(value_name = "RESULT")]
    result: PathBuf,

    /// Compare with this result: red where RESULT has more samples, blue where it has fewer.
    #[arg(long, value_name = "RESULT")]
    against: Option<PathBuf>,

    /// Compare samples per byte moved in place of shares of all samples.
    #[arg(long, requires = "against")]
    per_byte: bool,

    /// Host whose samples are drawn [default: the first].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,

    /// Write folded stacks, one per line, for other tools.
    #[arg(long, conflicts_with = "against")]
    folded: bool,
}

/// The data of a result that a graph needs.
struct Profile {
    title: String,
    stacks: FoldedStacks,
    /// Application bytes, or bytes of a device.
    bytes: u64,
}

impl Flame {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let profile = self.load(&self.result)?;
        let mut out = terminal::stdout();
        let written = match &self.against {
            _ if self.folded => flame::write_folded(&mut out, &profile.stacks),
            None => flame::write(&mut out, &profile.title, &profile.stacks),
            Some(path) => {
                let before = self.load(path)?;
                let scale = self.scale(&before, &profile)?;
                let title = format!("{}, against {}", profile.title, before.title);
                flame::write_difference(&mut out, &title, &before.stacks, &profile.stacks, scale)
            }
        };
        // A reader that has seen enough (`| head`) is no failure.
        let _ = written;
        Ok(Status::Ok)
    }

    fn scale(&self, before: &Profile, after: &Profile) -> Result<Scale, Failure> {
        match (self.per_byte, before.bytes, after.bytes) {
            (false, _, _) => Ok(Scale::Total),
            (true, 0, _) | (true, _, 0) => Err(Failure::usage(
                "no bytes moved in one of the two, so there are no samples per byte",
            )),
            (true, before, after) => Ok(Scale::Factor(before as f64 / after as f64)),
        }
    }

    fn load(&self, path: &Path) -> Result<Profile, Failure> {
        let (title, hosts, bytes) = match document(path).map_err(Failure::usage)? {
            Document::Observe(watched) => {
                let moved = watched.devices.iter().map(|device| device.rx_bytes + device.tx_bytes);
                ("observation".to_owned(), watched.hosts, moved.sum())
            }
            Document::Run(run) => {
                let moved = run.throughput.map_or(0, |moved| moved.tx_bytes + moved.rx_bytes);
                (run.profile, run.observe.map(|observe| observe.hosts).unwrap_or_default(), moved)
            }
        };
        let host = self.pick(&hosts, path)?;
        let functions = host.functions.as_ref().ok_or_else(|| {
            Failure::usage(format!("{} has no samples of {}", path.display(), host.host))
        })?;
        let title = format!("{title}: {}", host.covers.join(", "));
        Ok(Profile { title, stacks: functions.stacks.clone(), bytes })
    }

    fn pick<'a>(
        &self,
        hosts: &'a [HostObservation],
        path: &Path,
    ) -> Result<&'a HostObservation, Failure> {
        let found = match &self.host {
            None => hosts.first(),
            Some(name) => hosts.iter().find(|host| host.covers.contains(name)),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
            Failure::usage(match names.is_empty() {
                true => format!("nothing was observed in {}", path.display()),
                false => format!("{} has samples of {}", path.display(), names.join(", ")),
            })
        })
    }
}
