//! What the kernel's reasons mean, as far as its source says:
//! <https://elixir.bootlin.com/linux/v6.18/source/include/net/dropreason-core.h>

use super::{DropOutcome, DropPlace};

const DEVICE: &[&str] = &[
    "DEV_HDR",
    "DEV_READY",
    "FULL_RING",
    "NO_TX_TARGET",
    "PFMEMALLOC",
    "RECURSION_LIMIT",
    "SKB_GSO_SEG",
];
const QDISC: &[&str] = &[
    "CAKE_FLOOD",
    "DUALPI2_STEP_DROP",
    "FQ_BAND_LIMIT",
    "FQ_FLOW_LIMIT",
    "FQ_HORIZON_LIMIT",
    "QDISC_CONGESTED",
    "QDISC_DROP",
    "QDISC_OVERLIMIT",
];
const FILTER: &[&str] = &[
    "BPF_CGROUP_EGRESS",
    "NETFILTER_DROP",
    "SECURITY_HOOK",
    "SOCKET_FILTER",
    "TAP_FILTER",
    "TAP_TXFILTER",
    "TC_CHAIN_NOTFOUND",
    "TC_COOKIE_ERROR",
    "TC_EGRESS",
    "TC_INGRESS",
    "TC_RECLASSIFY_LOOP",
    "XDP",
    "XFRM_POLICY",
];
const IP: &[&str] = &[
    "DUP_FRAG",
    "FRAG_REASM_TIMEOUT",
    "FRAG_TOO_FAR",
    "OTHERHOST",
    "PKT_TOO_BIG",
    "PKT_TOO_SMALL",
    "UNHANDLED_PROTO",
    "UNICAST_IN_L2_MULTICAST",
];
const TRANSPORT: &[&str] = &["ICMP_CSUM", "INVALID_PROTO", "SKB_CSUM", "UDP_CSUM"];
/// Of TCP these two are what has arrived and finds no memory.
const SOCKET_BUFFER: &[&str] = &[
    "PACKET_SOCK_ERROR",
    "PROTO_MEM",
    "SOCKET_BACKLOG",
    "SOCKET_RCVBUFF",
    "TCP_OFO_QUEUE_PRUNE",
    "TCP_ZEROWINDOW",
];

/// Functions that free what an XDP program dropped, for which the kernel has no reason. In a pair it is the only cause
/// without one besides a failed copy and a packet that cannot be sent back:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/dev.c#L5237>,
/// <https://elixir.bootlin.com/linux/v6.12/source/drivers/net/veth.c#L792>.
pub(super) fn runs_xdp(function: &str) -> bool {
    let name = function.split('.').next().unwrap_or_default();
    ["do_xdp_generic", "veth_xdp_rcv_skb"].contains(&name)
}

pub(super) fn place(reason: &str) -> DropPlace {
    let is_in = |list: &[&str]| list.contains(&reason);
    match reason {
        "CPU_BACKLOG" => DropPlace::Backlog,
        "NO_SOCKET" => DropPlace::NoSocket,
        _ if is_in(DEVICE) => DropPlace::Device,
        _ if is_in(QDISC) => DropPlace::Qdisc,
        _ if is_in(FILTER) => DropPlace::Filter,
        _ if is_in(SOCKET_BUFFER) => DropPlace::SocketBuffer,
        _ if is_in(TRANSPORT) || reason.starts_with("TCP_") => DropPlace::Transport,
        _ if is_in(IP) => DropPlace::Ip,
        _ if ["IP_", "IPV6", "NEIGH_"].iter().any(|start| reason.starts_with(start)) => {
            DropPlace::Ip
        }
        _ => DropPlace::Other,
    }
}

/// Data that has been received before, as the comments of these reasons say.
const DUPLICATES: &[&str] =
    &["DUP_FRAG", "TCP_OFOMERGE", "TCP_OFO_DROP", "TCP_OLD_DATA", "TCP_OLD_SEQUENCE"];

/// Functions that free all packets of a queue without giving a reason: UDP's of a socket that closed
/// (<https://elixir.bootlin.com/linux/v6.18/source/net/ipv4/udp.c>, `udp_destruct_common`), and before Linux
/// 6.8 (which has QUEUE_PURGE) the others.
const PURGING: &[&str] =
    &["inet_sock_destruct", "skb_queue_purge", "skb_queue_purge_reason", "udp_destruct_common"];

/// Frees the packets in `frag_list` of one that is freed, with that one's reason:
/// <https://elixir.bootlin.com/linux/v6.18/source/net/core/skbuff.c>
const FREES_PARTS: &str = "skb_release_data";

/// Compilers give copies of functions further names, as `name.isra.0`.
fn base(function: &str) -> &str {
    function.split('.').next().unwrap_or(function)
}

pub(super) fn outcome(reason: &str, function: Option<&str>) -> DropOutcome {
    let function = function.map(base);
    // Packets that wait for the address of a neighbour are lost with it.
    let neighbour = function.is_some_and(|name| name.starts_with("neigh_"));
    match reason {
        _ if function == Some(FREES_PARTS) => DropOutcome::Part,
        _ if DUPLICATES.contains(&reason) => DropOutcome::Duplicate,
        "OTHERHOST" => DropOutcome::NotForHost,
        "QUEUE_PURGE" if !neighbour => DropOutcome::Purged,
        "SOCKET_CLOSE" => DropOutcome::Purged,
        "NOT_SPECIFIED" if function.is_some_and(|name| PURGING.contains(&name)) => {
            DropOutcome::Purged
        }
        _ => DropOutcome::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_a_place() {
        for (reason, expected) in [
            ("SOCKET_RCVBUFF", DropPlace::SocketBuffer),
            ("NO_SOCKET", DropPlace::NoSocket),
            ("NETFILTER_DROP", DropPlace::Filter),
            ("QDISC_DROP", DropPlace::Qdisc),
            ("CPU_BACKLOG", DropPlace::Backlog),
            ("FULL_RING", DropPlace::Device),
            ("IP_INADDRERRORS", DropPlace::Ip),
            ("IPV6DISABLED", DropPlace::Ip),
            ("NEIGH_FAILED", DropPlace::Ip),
            ("UDP_CSUM", DropPlace::Transport),
            ("TCP_OVERWINDOW", DropPlace::Transport),
            ("TCP_ZEROWINDOW", DropPlace::SocketBuffer),
            ("NOT_SPECIFIED", DropPlace::Other),
            ("OPENVSWITCH:3", DropPlace::Other),
        ] {
            assert_eq!(place(reason), expected, "{reason}");
        }
    }

    #[test]
    fn only_what_the_source_proves_is_no_loss() {
        for (reason, function, expected) in [
            ("QUEUE_PURGE", Some("skb_queue_purge_reason"), DropOutcome::Purged),
            ("QUEUE_PURGE", Some("neigh_invalidate"), DropOutcome::Lost),
            ("NOT_SPECIFIED", Some("udp_destruct_common.part.0"), DropOutcome::Purged),
            ("NOT_SPECIFIED", Some("udp_queue_rcv_skb"), DropOutcome::Lost),
            ("NOT_SPECIFIED", None, DropOutcome::Lost),
            ("TCP_OLD_DATA", Some("tcp_data_queue"), DropOutcome::Duplicate),
            ("TCP_OVERWINDOW", Some("tcp_data_queue"), DropOutcome::Lost),
            ("OTHERHOST", Some("ip_rcv_core"), DropOutcome::NotForHost),
            ("NETFILTER_DROP", Some("skb_release_data"), DropOutcome::Part),
        ] {
            assert_eq!(outcome(reason, function), expected, "{reason} in {function:?}");
        }
    }
}
