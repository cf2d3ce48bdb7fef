//! `wirecost uperf`, also when the program is called `uperf`: uperf's flags, output and exit codes.

mod flags;
mod histogram;
mod log;
mod master;
mod slave;

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use wirecost_model::status::Status;
use wirecost_profile::protocols;
use wirecost_report::uperf::write_failure;

use crate::Failure;
use crate::terminal;
use flags::Request;

/// Run as uperf does: its flags, output, exit codes and listener.
///
/// `wirecost uperf -m PROFILE` runs the profile with the hosts that it names, on which `wirecost uperf -s` must
/// run. A link named `uperf` to the program runs `wirecost uperf`. The control
/// protocol is wirecost's own: neither end works with a uperf at the other end. `wirecost uperf -h`
/// lists the flags; docs/uperf.md describes the differences from uperf.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Uperf {
    /// Flags of uperf: -m PROFILE or -s, and others.
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Name of a link to this program that makes it uperf.
pub(crate) const NAME: &str = "uperf";

impl Uperf {
    pub(crate) fn new(arguments: impl Iterator<Item = OsString>) -> Self {
        Self { arguments: arguments.collect() }
    }

    pub(crate) fn run(self) -> Result<Status, Failure> {
        let ended = match flags::read(&self.arguments) {
            Request::Master(master) => master.run(),
            Request::Slave { port } => slave::listen(port),
            Request::Version => {
                version();
                Ok(Status::Ok)
            }
            Request::Usage { problem, code } => {
                if let Some(problem) = problem {
                    terminal::warn(format_args!("uperf: {problem}"));
                }
                terminal::print(USAGE);
                Ok(if code == 0 { Status::Ok } else { Status::Failed })
            }
            Request::Refused(reason) => {
                // A reader that stops early (`| head`) is not a failure.
                let _ = write_failure(&mut terminal::stdout(), &reason);
                Err(Failure::new(Status::Failed, reason))
            }
        };
        // uperf has no other exit codes than 0 and 1.
        match ended {
            Ok(Status::Ok) => Ok(Status::Ok),
            Ok(_) => Ok(Status::Failed),
            Err(mut failure) => {
                failure.status = Status::Failed;
                Err(failure)
            }
        }
    }
}

fn version() {
    let (own, uperf) = (env!("CARGO_PKG_VERSION"), "1.0.8");
    let names: Vec<&str> = protocols::ALL.iter().map(|protocol| protocol.name()).collect();
    let _ = writeln!(
        terminal::stdout(),
        "wirecost {own}, compatible with Uperf Version {uperf}\nSupported protocols: {}",
        names.join(", ")
    );
}

const USAGE: &str = "\
Usage: uperf -m PROFILE [-hvV] [-ngtTfkpaeR] [-E EVENTS] [-H FILE] [-X FILE] [-i TIME] [-P PORT] [-S tcp] [--json FILE]
       uperf -s [-hvV] [-P PORT]

  -m PROFILE  drive the hosts that this profile names
  -s          listen on every address and serve one run at a time, without authentication
  -P PORT     port of the listener (default 20000)
  -S tcp      protocol of the control connection: tcp only
  -i TIME     interval of the progress, at least 10m (10 ms) (default 1, in seconds)
  -R          progress as raw lines with time stamps, for programs
  -t          table of transactions
  -f          table of flowops
  -g          table of groups
  -T          table of threads
  -k          table of network devices (always, except with -n)
  -a          all tables
  -n          no numbers at all
  -H FILE     percentiles of the time of transactions, to a file
  -X FILE     the time of each operation, to a file: the first 1,000,000
  -v          name the hosts, and print notes on the profile
  -V          version
  -h          this text
  -p -e -E EVENTS
              accepted without effect, other than -f
  --json FILE the result as JSON (wirecost.run/1), which uperf does not have

Both ends must be wirecost: the control protocol is not that of uperf. Differences: docs/uperf.md.
";
