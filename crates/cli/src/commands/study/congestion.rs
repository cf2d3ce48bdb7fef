//! TCP congestion controls that this machine's kernel lacks.

use std::io::ErrorKind;
use std::net::TcpListener;

use wirecost_linux::plain_option::{self, Level};
use wirecost_model::congestion::BPF_BIC;
use wirecost_profile::io_options::cc::Cc;
use wirecost_profile::io_options::{Effect, IoOption as _};

/// Whether the kernel has no congestion control of this name, not even as a module that it would load: a socket asks it
/// (`tcp_set_congestion_control`, <https://elixir.bootlin.com/linux/v6.12/source/net/ipv4/tcp_cong.c>). `false` where
/// that does not tell, such as without the right to choose it.
pub(super) fn is_missing(name: &str) -> bool {
    // A run loads it.
    if name == BPF_BIC {
        return false;
    }
    let Effect::Socket([option, ..]) = Cc.effect() else { return false };
    let Ok(socket) = TcpListener::bind(("127.0.0.1", 0)) else { return false };
    let set = plain_option::set(&socket, Level::Tcp, option.number, name.as_bytes());
    set.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_has_reno_and_none_has_what_nobody_wrote() {
        assert!(!is_missing("reno"));
        assert!(is_missing("nobody-has-it") && !is_missing(BPF_BIC));
    }
}
