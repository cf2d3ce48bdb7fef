//! What fuzz targets call of what is private here: the readers of what the kernel writes. No program calls
//! it, so none contains it.

use std::collections::BTreeMap;

use crate::packet_filter::{self, Iptables};
use crate::{
    cpu_list, ethtool, interrupts, kallsyms, net_counters, net_dev, netlink, perf, proc_stat,
    process, receive_stamps, sock_diag, softnet, tcp_info,
};

/// Answers over netlink, of socket options, and control messages.
pub fn answers(bytes: &[u8]) {
    let mut bodies = 0;
    let _ = netlink::take(bytes, &mut |body: &[u8]| {
        bodies += 1;
        for attribute in 0..4 {
            let _ = netlink::attribute(body, attribute);
            let _ = packet_filter::table_of(body, attribute);
        }
        let _ = sock_diag::parse(body);
    });
    assert!(bodies <= bytes.len() / 16, "each message has a header");
    let _ = sock_diag::parse(bytes);
    let _ = tcp_info::detail(bytes);
    for filter in [Iptables::V4, Iptables::V6] {
        let _ = filter.count(bytes, 3);
    }
    let words: Vec<u32> =
        bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    if words.len() >= 12 {
        let _ = ethtool::mask_words(&words);
    }
    let _ = ethtool::text(bytes);
    let _ = receive_stamps::parse(bytes);
}

/// Records of a ring of perf_event_open(2).
pub fn perf_records(bytes: &[u8]) {
    let mut rest = bytes;
    while let Some((record, size)) = perf::parse(rest) {
        assert!((8..=rest.len()).contains(&size), "{size}");
        if let perf::Record::Sample(sample) = record {
            let _ = sample.chain.split();
        }
        rest = &rest[size..];
    }
    let _ = perf::parse_group(bytes);
}

/// Files of /proc and /sys.
pub fn texts(text: &str) {
    let _ = cpu_list::parse_list(text);
    let _ = cpu_list::parse_mask(text);
    let _ = interrupts::parse(text);
    let functions = kallsyms::Kallsyms::parse(text);
    let _ = (functions.len(), functions.find(u64::MAX), functions.find(0));
    net_counters::parse(text, &mut BTreeMap::new());
    net_counters::parse_ipv6(text, &mut BTreeMap::new());
    let _ = net_dev::parse(text);
    let _ = proc_stat::parse(text);
    let _ = process::parse_start(text);
    let _ = softnet::parse(text);
}
