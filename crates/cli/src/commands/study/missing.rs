//! Settings that this machine's kernel lacks, so that a study leaves them out with the reason.

use std::io::{self, ErrorKind};
use std::net::TcpListener;

use rustix::io::Errno;
use wirecost_congestion::bic;
use wirecost_linux::plain_option::{self, Level};
use wirecost_linux::{ktls, uring, zerocopy};
use wirecost_model::congestion::{AVAILABLE, BPF_BIC};
use wirecost_profile::io_options::busy_poll::BusyPoll;
use wirecost_profile::io_options::cc::Cc;
use wirecost_profile::io_options::{Effect, IoOption};
use wirecost_tunable::Scope;

use super::settings::OF_HOSTS;

/// Before the name of an option of flowops.
const OF_FLOWOPS: &str = "option.";
/// Engines with rings of the kernel have names that begin so.
const RINGS: &str = "io_uring";

/// Why no run on hosts of a lab can change this setting; `None` where it can, and for what is no setting of hosts.
pub(super) fn why_in_a_lab(name: &str) -> Option<String> {
    let tunable = name.strip_prefix(OF_HOSTS)?;
    let tunable = tunable.rsplit_once(':').map_or(tunable, |(_, tunable)| tunable);
    let found = wirecost_tunable::all().find(|known| known.name() == tunable)?;
    let is_of_machine = found.scope() == Scope::Machine && found.sysctl().is_some();
    is_of_machine
        .then(|| format!("{tunable} is of the whole machine, and a host of a lab cannot change it"))
}

/// Why no run here can have this setting; `None` where it can, and where that is not known before a run.
pub(super) fn why(name: &str, value: &str) -> Option<String> {
    if name == "engine" && value.starts_with(RINGS) {
        let lacks = uring::available().err();
        return lacks.map(|reason| format!("this kernel has no io_uring for us: {reason}"));
    }
    let option = name.strip_prefix(OF_FLOWOPS).filter(|_| value != "false" && value != "0")?;
    match option {
        "cc" if value == BPF_BIC => {
            let refused = bic::load().err()?;
            Some(format!("{BPF_BIC} cannot be loaded: {}", first_line(&refused.to_string())))
        }
        // It is refused with its point.
        "cc" if value == AVAILABLE => None,
        "cc" if has_no_congestion_control(value) => {
            Some(format!("this kernel has no congestion control {value}"))
        }
        "ktls" if !ktls::available() => {
            Some("this kernel has no TLS: it needs CONFIG_TLS (modprobe tls)".to_owned())
        }
        "busy_poll" if refuses(|socket| set(socket, &BusyPoll, &1i32.to_ne_bytes())) => {
            Some("this kernel has no busy polling: it needs CONFIG_NET_RX_BUSY_POLL".to_owned())
        }
        "zerocopy" if refuses(|socket| zerocopy::allow(socket)) => {
            Some("this kernel has no MSG_ZEROCOPY".to_owned())
        }
        _ => None,
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Whether the kernel has no congestion control of this name, not even as a module that it would load: a socket asks it
/// (`tcp_set_congestion_control`, <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_cong.c>). `false` where
/// that does not tell, such as without the right to choose it.
fn has_no_congestion_control(name: &str) -> bool {
    let Ok(socket) = TcpListener::bind(("127.0.0.1", 0)) else { return false };
    let answer = set(&socket, &Cc, name.as_bytes());
    answer.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Whether a socket of this kernel does not know an option.
fn refuses(try_on: impl Fn(&TcpListener) -> io::Result<()>) -> bool {
    let Ok(socket) = TcpListener::bind(("127.0.0.1", 0)) else { return false };
    let unknown = [Errno::NOPROTOOPT, Errno::OPNOTSUPP].map(Errno::raw_os_error);
    let answer = try_on(&socket);
    answer.is_err_and(|error| error.raw_os_error().is_some_and(|code| unknown.contains(&code)))
}

/// Sets the first socket option of an I/O option.
fn set(socket: &TcpListener, option: &dyn IoOption, value: &[u8]) -> io::Result<()> {
    let Effect::Socket([first, ..]) = option.effect() else { return Ok(()) };
    let level = match first.level {
        wirecost_profile::socket_option::Level::Tcp => Level::Tcp,
        _ => Level::Socket,
    };
    plain_option::set(socket, level, first.number, value)
}

#[cfg(test)]
mod tests {
    use wirecost_congestion::obstacle;

    use super::*;

    #[test]
    fn every_kernel_has_reno_and_none_has_what_nobody_wrote() {
        assert_eq!(why("option.cc", "reno"), None);
        assert_eq!(why("option.cc", BPF_BIC).is_some(), obstacle().is_some());
        let reason = why("option.cc", "nobody-has-it").unwrap();
        assert_eq!(reason, "this kernel has no congestion control nobody-has-it");
        // Neither what is off, nor what is no option of sockets, nor another name of the same value.
        for (name, value) in [("option.ktls", "false"), ("option.busy_poll", "0"), ("cc", "no")] {
            assert_eq!(why(name, value), None);
        }
    }

    #[test]
    fn hosts_of_a_lab_cannot_change_what_is_of_the_machine() {
        for name in ["tune.netdev_max_backlog", "tune.h2:netdev_budget"] {
            assert!(why_in_a_lab(name).unwrap().contains("is of the whole machine"));
        }
        for name in ["tune.mtu", "tune.tcp_rmem", "tune.governor", "tune.none", "netdev_budget"] {
            assert_eq!(why_in_a_lab(name), None, "{name}");
        }
    }

    #[test]
    fn what_a_socket_does_not_know_is_missing() {
        assert!(refuses(|_| Err(io::Error::from_raw_os_error(Errno::NOPROTOOPT.raw_os_error()))));
        // Without the right to set it, it is there.
        assert!(!refuses(|_| Err(io::Error::from_raw_os_error(Errno::PERM.raw_os_error()))));
        assert!(!refuses(|_| Ok(())));
        // What the doctor says of io_uring is what a study says.
        assert_eq!(why("engine", "io_uring").is_some(), uring::available().is_err());
        assert_eq!(why("option.ktls", "true").is_some(), !ktls::available());
    }
}
