use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use wirecost_fleet::agent::{self, Files, SessionPolicy, TuningPolicy};
use wirecost_fleet::listener::{AgentEvent, Listener, SessionLimits};
use wirecost_fleet::serial;
use wirecost_linux::facts;
use wirecost_linux::privilege::{LOAD, OBSERVING, TUNING};
use wirecost_model::status::Status;
use wirecost_model::units;

use crate::Failure;
use crate::terminal;

/// Default port of agents.
pub(crate) const PORT: u16 = 20_050;

/// Run the agent that generates load on this host.
///
/// Controllers elsewhere (`wirecost run --host NAME=ADDR`) connect to its port. There is no
/// authentication: whoever reaches the port can have this host generate load towards hosts whose
/// agents have agreed to it, read the host's environment, observe its kernel, load wirecost's own BIC
/// as a BPF program, with `--tune` change its settings and, with `--allow-cc-object`, load any BPF
/// program for congestion control. Listen only on networks that you trust. Each session is a separate
/// process with limits: if it fails, the agent and the other sessions continue.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Address to listen on; default port 20050, port 0 for any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: String,

    /// Serve a virtio-serial port of this virtual machine, such as /dev/vport0p1, instead of a network
    /// address: one session at a time, for who can connect to its socket on the machine that runs this one
    /// (`wirecost doctor --host unix:SOCKET`).
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["listen", "session"])]
    serial: Option<PathBuf>,

    /// Directory whose files profiles may read (dir=, source=, payload=), with all below it; may be given
    /// several times [default: no files].
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,

    /// Directory in which profiles may create files and write them (sink=, source_size=), with all below it; may
    /// be given several times [default: none]. Files that a run did not create are never changed.
    #[arg(long, value_name = "DIR")]
    write_files: Vec<PathBuf>,

    /// Allow controllers to change settings of this host during their runs (`wirecost run --tune`). The agent
    /// must run as root. The settings are restored when the session ends, even if it crashes.
    #[arg(long)]
    tune: bool,

    /// Also allow controllers to write to PCI configuration space, which can make a device or the machine
    /// hang.
    #[arg(long, requires = "tune")]
    allow_pci: bool,

    /// Allow controllers to load congestion control of their own into this kernel during their runs (`wirecost run
    /// --cc-object`). It needs root, or CAP_BPF and CAP_PERFMON. These are BPF programs: the kernel verifies their
    /// access to memory, not the arguments of the kernel functions that they call, and a wrong one, such as a divisor
    /// of 0, can crash this machine. Their maps take at most 64 MiB. They are removed when the session ends, even if
    /// it crashes.
    #[arg(long)]
    allow_cc_object: bool,

    /// Memory that the process of a session may use, such as `512m` or `8g` [default: half of this
    /// host's memory].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, conflicts_with = "session")]
    session_memory: Option<u64>,

    /// Descriptors that the process of a session may have open [default: the limit of the agent].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(64..),
        conflicts_with = "session"
    )]
    session_descriptors: Option<u64>,

    /// Serve a single session over standard input.
    #[arg(long, hide = true)]
    session: bool,

    /// Profiles may use every file that this user can use: for agents of the user's own run.
    #[arg(long, hide = true, requires = "session", conflicts_with_all = ["files", "write_files"])]
    all_files: bool,

    /// Prepare no run that has not claimed this host.
    #[arg(long, hide = true, requires = "session")]
    must_claim: bool,

    /// The controller may be anyone who reached the port.
    #[arg(long, hide = true, requires = "session", conflicts_with_all = ["files", "write_files", "all_files"])]
    anyone: bool,

    /// The controller has said hello with this version of the protocol.
    #[arg(long, hide = true, requires = "session", value_name = "VERSION")]
    hello: Option<u32>,
}

fn parse_size(text: &str) -> Result<u64, String> {
    units::parse_size(text)
        .filter(|&bytes| bytes >= MIN_MEMORY)
        .ok_or_else(|| "write it as a number and k, m or g, as in 8g; at least 64m".to_owned())
}

/// Sessions at a time.
const MAX_SESSIONS: usize = 64;

/// With less a session cannot even start.
const MIN_MEMORY: u64 = 64 << 20;

impl Agent {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let below = |option: &str, directories: &[PathBuf]| match self.all_files {
            true => Ok(Files::all()),
            false => Files::below(directories)
                .map_err(|error| Failure::new(Status::Usage, format!("{option} {error}"))),
        };
        let files = below("--files", &self.files)?;
        let writable = below("--write-files", &self.write_files)?;
        if let Some(device) = &self.serial {
            serial::serve(device, &|| self.command())
                .map_err(|error| Failure::new(Status::Peer, error))?;
            return Ok(Status::Ok);
        }
        if !self.session {
            return self.listen(&with_port(&self.listen));
        }
        let stream = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::new(Status::Peer, error))?;
        let policy = SessionPolicy {
            files,
            writable,
            must_claim: self.must_claim,
            hello: self.hello,
            anyone: self.anyone,
            tuning: self.tune.then(|| TuningPolicy {
                guardian: super::restore::guardian_program(),
                allow_pci: self.allow_pci,
            }),
            congestion_objects: self.allow_cc_object,
        };
        let hangs = || std::process::exit(i32::from(Status::Peer.exit_code()));
        agent::session(stream, policy, hangs).map_err(|error| Failure::new(Status::Peer, error))?;
        Ok(Status::Ok)
    }

    /// This program as the process of a session.
    fn command(&self) -> Command {
        // Also where the file of this program has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("wirecost").args(["agent", "--session", "--must-claim"]);
        for directory in &self.files {
            command.arg("--files").arg(directory);
        }
        for directory in &self.write_files {
            command.arg("--write-files").arg(directory);
        }
        let permitted = [
            ("--tune", self.tune),
            ("--allow-pci", self.allow_pci),
            ("--allow-cc-object", self.allow_cc_object),
        ];
        command.args(permitted.iter().filter(|(_, given)| *given).map(|(option, _)| option));
        command
    }

    fn listen(&self, address: &str) -> Result<Status, Failure> {
        let facts = facts::read().map_err(|error| Failure::new(Status::Peer, error))?;
        let limits = SessionLimits {
            sessions: MAX_SESSIONS,
            ends_first: !self.tune,
            memory: self.session_memory.unwrap_or(facts.memory_bytes / 2).max(MIN_MEMORY),
            descriptors: self.session_descriptors.unwrap_or(facts.descriptor_limit),
            capabilities: [LOAD, OBSERVING, if self.tune { TUNING } else { &[] }].concat(),
        };
        let session = |hello: u32| {
            let mut command = self.command();
            command.args(["--hello", &hello.to_string()]);
            command
        };
        let mut report = |event| match event {
            AgentEvent::Listening(at) => {
                let mut out = terminal::stdout();
                let _ = writeln!(out, "wirecost agent listens at {at}");
                if !at.ip().is_loopback() {
                    let (files, writable) = (&self.files, &self.write_files);
                    let exposed = exposed(files, writable, self.tune, self.allow_cc_object);
                    let _ = writeln!(out, "{exposed}");
                }
                let _ = out.flush();
            }
            AgentEvent::SessionEnded { from, reason } => {
                terminal::warn(format_args!("wirecost: session of {from}: {reason}"));
            }
        };
        let mut listener = Listener::bind(address, &session, limits, &mut report)
            .map_err(|error| Failure::new(Status::Peer, error))?;
        listener.serve()
    }
}

/// What whoever reaches the port can do.
fn exposed(files: &[PathBuf], writable: &[PathBuf], tunes: bool, loads: bool) -> String {
    let tunes = if tunes { "; change settings of this host while a run lasts" } else { "" };
    let loads = match loads {
        true => {
            "; load BPF programs of its own for congestion control, which can crash this machine"
        }
        false => "",
    };
    let names = |of: &[PathBuf]| {
        let names: Vec<String> = of.iter().map(|dir| dir.display().to_string()).collect();
        names.join(", ")
    };
    let files = match (files, writable) {
        ([], []) => "use no files".to_owned(),
        (files, []) => format!("read files below {}", names(files)),
        ([], writable) => format!("make and write files below {}", names(writable)),
        (files, writable) => format!(
            "read files below {}; make and write files below {}",
            names(files),
            names(writable)
        ),
    };
    format!(
        "Whoever reaches this port can, without authentication: generate load from this host towards \
         hosts whose agents have agreed to it; read this host's environment; observe its kernel; load wirecost's BIC as a BPF program for connections of a run (cc=bpf-bic); \
         {files}{tunes}{loads}."
    )
}

/// Adds the default port to an address without one: `host`, `10.0.0.1`, `fd00::1`, `[fd00::1]`.
pub(crate) fn with_port(address: &str) -> String {
    let is_v6 = |text: &str| text.parse::<std::net::Ipv6Addr>().is_ok();
    if is_v6(address) {
        format!("[{address}]:{PORT}")
    } else if address.ends_with(']') || !address.contains(':') {
        format!("{address}:{PORT}")
    } else {
        address.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{exposed, with_port};

    #[test]
    fn what_is_exposed_names_the_directories() {
        assert!(exposed(&[], &[], false, false).ends_with("use no files."));
        let files = ["/a".into(), "/b".into()];
        assert!(exposed(&files, &[], false, false).ends_with("read files below /a, /b."));
        let both = exposed(&files, &["/c".into()], false, false);
        assert!(both.ends_with("below /a, /b; make and write files below /c."));
        let tunes = exposed(&[], &[], true, false);
        assert!(tunes.ends_with("change settings of this host while a run lasts."), "{tunes}");
        assert!(exposed(&[], &[], false, true).ends_with("which can crash this machine."));
        assert!(exposed(&[], &[], false, false).contains("(cc=bpf-bic)"));
    }

    #[test]
    fn the_usual_port_is_added_where_there_is_none() {
        for (typed, meant) in [
            ("10.0.0.1", "10.0.0.1:20050"),
            ("10.0.0.1:5", "10.0.0.1:5"),
            ("fd00::1", "[fd00::1]:20050"),
            ("[fd00::1]", "[fd00::1]:20050"),
            ("[fd00::1]:5", "[fd00::1]:5"),
            ("name", "name:20050"),
            ("name:5", "name:5"),
        ] {
            assert_eq!(with_port(typed), meant);
        }
    }
}
