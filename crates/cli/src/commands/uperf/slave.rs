//! `uperf -s`: listens on every address for runs of anyone, one at a time.

use std::os::unix::process::CommandExt;
use std::process::Command;

use wirecost_fleet::listener::{AgentEvent, Listener, SessionLimits};
use wirecost_linux::facts;
use wirecost_linux::privilege::Capability;
use wirecost_model::status::Status;

use crate::Failure;
use crate::terminal;

/// Serves for ever.
pub(super) fn listen(port: u16) -> Result<Status, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(Status::Failed, error);
    let facts = facts::read().map_err(|error| failed(&error))?;
    let limits = SessionLimits {
        ends_first: true,
        sessions: 1,
        memory: facts.memory_bytes / 2,
        descriptors: facts.descriptor_limit,
        // What a profile of uperf can need: a port below 1024.
        capabilities: vec![Capability::NetBindService],
    };
    let session = |hello: u32| {
        // Also where the file of this program has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("wirecost").args(["agent", "--session", "--must-claim", "--anyone"]);
        command.args(["--hello", &hello.to_string()]);
        command
    };
    let mut report = |event| match event {
        AgentEvent::Listening(at) => {
            terminal::warn(format_args!("uperf listens at {at}. {EXPOSED}"))
        }
        AgentEvent::SessionEnded { from, reason } => {
            terminal::warn(format_args!("uperf: session of {from}: {reason}"));
        }
    };
    let mut listener = Listener::everywhere(port, &session, limits, &mut report)
        .map_err(|error| failed(&error))?;
    listener.serve()
}

/// What whoever reaches the port can do.
const EXPOSED: &str = "Anyone who can reach this port can, without authentication, make this host \
                       exchange data with their own address: one run at a time, no files, no \
                       observation.";
