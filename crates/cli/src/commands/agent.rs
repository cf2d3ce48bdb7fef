use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use clap::Args;
use wirecost_fleet::agent;
use wirecost_model::status::Status;

use crate::Failure;

/// Port that agents listen at unless told another.
pub(crate) const PORT: u16 = 20_050;

/// Serve controllers: do on this host what their runs need.
///
/// An agent carries out profiles that anybody who reaches its port sends, though only towards hosts
/// that have agreed to receive: run it in networks you trust.
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Address to listen at; the port is 20050 unless given, 0 for any that is free.
    #[arg(long, value_name = "ADDR", required_unless_present = "session")]
    listen: Option<String>,

    /// Serve the one session whose stream is standard input.
    #[arg(long, hide = true, conflicts_with = "listen")]
    session: bool,
}

impl Agent {
    pub(crate) fn run(self) -> Result<Status, Failure> {
        let failed = |error: agent::AgentError| Failure::new(Status::Peer, error);
        if let Some(address) = self.listen {
            let address = with_port(&address);
            agent::listen(&address, |at| {
                let mut out = std::io::stdout().lock();
                let _ = writeln!(out, "wirecost agent listens at {at}");
                let _ = out.flush();
            })
            .map_err(failed)?;
            return Ok(Status::Ok);
        }
        let stream = std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| Failure::new(Status::Peer, error))?;
        agent::session(UnixStream::from(stream)).map_err(failed)?;
        Ok(Status::Ok)
    }
}

/// Adds the usual port to an address that has none: `host`, `10.0.0.1`, `fd00::1`, `[fd00::1]`.
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
    use super::with_port;

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
