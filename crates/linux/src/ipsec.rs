//! How many policies and associations the kernel's IPsec holds, by netlink (ip-xfrm(8)).

use std::io;

use rustix::net::netlink::XFRM;
use wirecost_model::environment::Ipsec;

use crate::netlink::{self, NLM_F_REQUEST, Netlink};

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/xfrm.h>.
const XFRM_MSG_GETSADINFO: u16 = 0x23;
const XFRM_MSG_GETSPDINFO: u16 = 0x25;
const XFRMA_SAD_CNT: u16 = 1;
const XFRMA_SPD_INFO: u16 = 1;
/// Both begin with a word of flags.
const FLAGS: usize = 4;

/// Those of the calling thread's network namespace. The policies of single sockets, which key
/// daemons make for their own, are not counted.
///
/// # Errors
/// `PermissionDenied` without CAP_NET_ADMIN; when the kernel has no IPsec.
pub fn ipsec() -> io::Result<Ipsec> {
    let netlink = Netlink::open(XFRM)?;
    let ask = |kind| -> io::Result<Vec<u8>> {
        let request = netlink::message(kind, NLM_F_REQUEST, &[0; FLAGS]);
        let mut answer = Vec::new();
        netlink.ask(&request, |body| answer = body.to_vec())?;
        Ok(answer)
    };
    let (policies, associations) = (ask(XFRM_MSG_GETSPDINFO)?, ask(XFRM_MSG_GETSADINFO)?);
    counts(&policies, &associations).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn counts(policies: &[u8], associations: &[u8]) -> Option<Ipsec> {
    // Policies in, out and forwarded; then those of sockets.
    let info = netlink::attribute(policies.get(FLAGS..)?, XFRMA_SPD_INFO)?;
    let mut sum = 0;
    for place in [0, 4, 8] {
        sum += netlink::u32_at(info, place)?;
    }
    let count = netlink::attribute(associations.get(FLAGS..)?, XFRMA_SAD_CNT)?;
    Some(Ipsec { policies: sum, associations: netlink::u32_at(count, 0)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    const XFRM_MSG_NEWPOLICY: u16 = 0x13;

    /// `struct xfrm_userpolicy_info` of 198.18.0.0/15 in one direction.
    fn policy(direction: u8) -> Vec<u8> {
        let mut policy = vec![0; 168];
        // Addresses (16 bytes each, network order), ports and masks, family, lengths of prefixes.
        policy[0..4].copy_from_slice(&[198, 18, 0, 0]);
        policy[16..20].copy_from_slice(&[198, 18, 0, 0]);
        policy[40..42].copy_from_slice(&2u16.to_ne_bytes());
        policy[42] = 15;
        policy[43] = 15;
        // Soft and hard limits of bytes and packets: none.
        for place in 0..4 {
            policy[56 + place * 8..64 + place * 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        }
        policy[160] = direction;
        policy
    }

    #[test]
    fn policies_of_the_namespace_are_counted() {
        if skip_without_namespaces("ipsec::policies_of_the_namespace_are_counted") {
            return;
        }
        let name = format!("wirecost-test-{}-ipsec", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        namespace
            .run(|| {
                assert_eq!(ipsec().unwrap(), Ipsec { policies: 0, associations: 0 });
                let netlink = Netlink::open(XFRM).unwrap();
                for direction in [0, 1] {
                    let flags = NLM_F_REQUEST | netlink::NLM_F_ACK;
                    let request = netlink::message(XFRM_MSG_NEWPOLICY, flags, &policy(direction));
                    netlink.ask(&request, |_| {}).unwrap();
                }
                assert_eq!(ipsec().unwrap(), Ipsec { policies: 2, associations: 0 });
            })
            .unwrap();
    }

    #[test]
    fn policies_of_sockets_are_left_out() {
        let info: Vec<u8> = [1u32, 2, 4, 8, 16, 32].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let policies = [vec![0; FLAGS], netlink::with_header(XFRMA_SPD_INFO, &info)].concat();
        let count = netlink::with_header(XFRMA_SAD_CNT, &3u32.to_ne_bytes());
        let associations = [vec![0; FLAGS], count].concat();
        let expected = Ipsec { policies: 7, associations: 3 };
        assert_eq!(counts(&policies, &associations), Some(expected));
        assert_eq!(counts(&policies, &[0; FLAGS]), None);
    }
}
