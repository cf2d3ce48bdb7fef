//! What a plan may use of its host, and whom it may exchange data with.

use std::net::{IpAddr, SocketAddr};

use wirecost_model::plan::Address;

use crate::files::Files;

/// The permissions of a plan.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    /// Files that it may read.
    pub files: Files,
    /// Where it may make files, and write them.
    pub writable: Files,
    pub partners: Partners,
}

/// Hosts that data may come from and go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partners {
    /// Those of the run.
    #[default]
    OfRun,
    /// The one with this address.
    Only(IpAddr),
}

impl Partners {
    /// The host with this address only. An IPv4 address may be written as one of IPv6.
    #[must_use]
    pub fn only(address: IpAddr) -> Self {
        Self::Only(address.to_canonical())
    }

    /// Whether data may come from there. A local address (`None`) is not one of another host.
    pub(crate) fn accepts(self, from: Option<SocketAddr>) -> bool {
        match self {
            Self::OfRun => true,
            Self::Only(partner) => from.is_some_and(|from| from.ip().to_canonical() == partner),
        }
    }

    /// Whether data may go there.
    pub(crate) fn reaches(self, address: &Address) -> bool {
        match (self, address) {
            (Self::OfRun, _) => true,
            (Self::Only(_), Address::Inet(address)) => self.accepts(Some(*address)),
            (Self::Only(_), Address::Unix(_) | Address::Vsock { .. }) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_known_by_its_address_however_it_is_written() {
        let only = Partners::only("::ffff:192.0.2.1".parse().unwrap());
        let accepts = |text: &str| only.accepts(Some(text.parse().unwrap()));
        assert!(accepts("192.0.2.1:5") && accepts("[::ffff:192.0.2.1]:6"));
        assert!(!accepts("192.0.2.2:5") && !accepts("127.0.0.1:5") && !accepts("[::1]:5"));
        assert!(!only.accepts(None));
        assert!(only.reaches(&Address::Inet("192.0.2.1:80".parse().unwrap())));
        assert!(!only.reaches(&Address::Inet("192.0.2.2:80".parse().unwrap())));
        assert!(!only.reaches(&Address::Unix("/run/x".into())));
        assert!(!only.reaches(&Address::Vsock { cid: 2, port: 3 }));
        assert!(Partners::OfRun.reaches(&Address::Unix("/run/x".into())));
    }
}
