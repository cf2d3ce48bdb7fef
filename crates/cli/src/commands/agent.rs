use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use wirecost_fleet::agent::{self, Files};
use wirecost_model::status::Status;

use crate::Failure;

/// Default port of agents.
pub(crate) const PORT: u16 = 20_050;

/// Run the agent that generates load on this host.
///
/// Controllers elsewhere (`wirecost run --host NAME=ADDR`) connect to its port. There is no
/// authentication: whoever reaches the port can have this host generate load towards hosts whose
/// agents have agreed to it, and can read the host's environment and observe its kernel. Listen on
/// networks you trust only.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Address to listen on; default port 20050, port 0 for any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    listen: String,

    /// Directory whose files profiles may use (dir=, sink=, payload=), with all below it; may be
    /// given several times [default: no files].
    #[arg(long, value_name = "DIR")]
    files: Vec<PathBuf>,

    /// Serve a single session over standard input.
    #[arg(long, hide = true)]
    session: bool,

    /// Profiles may use every file that this user can use: for agents of the user's own run.
    #[arg(long, hide = true, requires = "session", conflicts_with = "files")]
    all_files: bool,
}

impl Agent {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let failed = |error: agent::AgentError| Failure::new(Status::Peer, error);
        let files = match self.all_files {
            true => Files::all(),
            false => Files::below(&self.files)
                .map_err(|error| Failure::new(Status::Usage, format!("--files {error}")))?,
        };
        if !self.session {
            let address = with_port(&self.listen);
            agent::listen(&address, &files, |at| {
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "wirecost agent listens at {at}");
                if !at.ip().is_loopback() {
                    let _ = writeln!(out, "{}", exposed(&self.files));
                }
                let _ = out.flush();
            })
            .map_err(failed)?;
            return Ok(Status::Ok);
        }
        let stream = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::new(Status::Peer, error))?;
        agent::session(UnixStream::from(stream), files).map_err(failed)?;
        Ok(Status::Ok)
    }
}

/// What whoever reaches the port can do.
fn exposed(files: &[PathBuf]) -> String {
    let files = match files {
        [] => "use no files".to_owned(),
        some => {
            let names: Vec<String> = some.iter().map(|dir| dir.display().to_string()).collect();
            format!("read and write files below {}", names.join(", "))
        }
    };
    format!(
        "Whoever reaches this port can, without authentication: generate load from this host towards \
         hosts whose agents have agreed to it; read this host's environment; observe its kernel; {files}."
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
        assert!(exposed(&[]).ends_with("use no files."));
        assert!(exposed(&["/a".into(), "/b".into()]).ends_with("write files below /a, /b."));
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
