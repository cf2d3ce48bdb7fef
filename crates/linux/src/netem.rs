//! A link made of the kernel's queueing disciplines: a bottleneck by tc-tbf(8), and a delay line with losses by
//! tc-netem(8).

use std::io;

use crate::netlink::with_header;
use crate::netns;
use crate::qdisc::{Charge, Qdiscs};
use crate::rate_limit::{self, RateLimit};

/// Kinds of queueing disciplines that links are made of.
pub const TBF: &str = "tbf";
pub const NETEM: &str = "netem";

// <https://elixir.bootlin.com/linux/v6.12/source/include/uapi/linux/pkt_sched.h>: TCA_NETEM_*.
const TCA_NETEM_DELAY_DIST: u16 = 2;
const TCA_NETEM_LOSS: u16 = 5;
const TCA_NETEM_LATENCY64: u16 = 10;
const TCA_NETEM_JITTER64: u16 = 11;
const NETEM_LOSS_GE: u16 = 2;
const NLA_F_NESTED: u16 = 1 << 15;
/// Value of a table of delays that means one standard deviation, which here is the additional delay.
const NETEM_DIST_SCALE: i16 = 8_192;
/// Entries of a table of delays at most.
const NETEM_DIST_MAX: f64 = 16_384.0;
/// Nanoseconds of a tick (PSCHED_SHIFT).
const TICK: u64 = 64;
/// `lo` is the first device of every namespace.
const LOOPBACK: u32 = 1;

/// A delay line: how long packets travel, and what happens to them meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayLine {
    pub nanoseconds: u64,
    /// Packets on the way; more are dropped.
    pub limit: u32,
    /// Share of packets that are lost.
    pub loss: f64,
    /// Mean number of packets that are lost together (Gilbert model); 1 for independent losses.
    pub loss_burst: f64,
    /// Share of packets that come twice.
    pub duplicate: f64,
    /// Share of packets that have an additional delay, and the delay in nanoseconds.
    pub late: Option<(f64, u32)>,
}

/// The smallest share of packets that can have an additional delay.
#[must_use]
pub fn smallest_late_share() -> f64 {
    1.0 / NETEM_DIST_MAX
}

impl Qdiscs {
    /// Has a device send packets at a rate, each charged with its bytes from the IP header on and `overhead` more.
    /// The queue, the burst and the counters are of bytes from the IP header on.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no `sch_tbf`; the kernel's own.
    pub fn set_bottleneck(&self, index: u32, limit: RateLimit, overhead: u16) -> io::Result<()> {
        self.put_root(index, TBF, 0, &bottleneck(limit, overhead), Charge::FromIpHeader)
    }

    /// Has a device delay what it sends. The counters are of bytes from the IP header on.
    ///
    /// # Errors
    /// `NotFound` where the kernel has no `sch_netem`; the kernel's own.
    pub fn set_delay_line(&self, index: u32, line: &DelayLine) -> io::Result<()> {
        self.put_root(index, NETEM, 0, &delay_line(line), Charge::FromIpHeader)
    }
}

/// The first kind of queueing discipline that this kernel lacks to make such links. It is tried: in a namespace of
/// its own, which ends with the call. The kernel loads the modules where it has them as such.
///
/// # Errors
/// When no namespace can be made (CAP_SYS_ADMIN), or the kernel refuses for another reason.
pub fn missing_kind() -> io::Result<Option<&'static str>> {
    let limit = RateLimit { bits_per_second: 1_000_000, burst_bytes: 2_000, queue_bytes: 15_000 };
    let line = DelayLine {
        nanoseconds: 1_000_000,
        limit: 1_000,
        loss: 0.01,
        loss_burst: 2.0,
        duplicate: 0.01,
        late: Some((0.01, 1_000_000)),
    };
    let lacks = |tried: io::Result<()>| match tried {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        other => other.map(|()| false),
    };
    netns::run_in_new(|| {
        let qdiscs = Qdiscs::open()?;
        if lacks(qdiscs.set_delay_line(LOOPBACK, &line))? {
            return Ok(Some(NETEM));
        }
        Ok(lacks(qdiscs.set_bottleneck(LOOPBACK, limit, 0))?.then_some(TBF))
    })?
}

/// TCA_OPTIONS of tbf.
fn bottleneck(limit: RateLimit, overhead: u16) -> Vec<u8> {
    rate_limit::attributes(limit, overhead)
        .into_iter()
        .flat_map(|(kind, value)| with_header(kind, &value))
        .collect()
}

/// TCA_OPTIONS of netem: `struct tc_netem_qopt`, and attributes.
fn delay_line(line: &DelayLine) -> Vec<u8> {
    let independent = line.loss_burst <= 1.0;
    let jitter = line.late.map_or(0, |(_, nanoseconds)| nanoseconds);
    let ticks = |nanoseconds: u64| u32::try_from(nanoseconds / TICK).unwrap_or(u32::MAX);
    let words = [
        ticks(line.nanoseconds),
        line.limit,
        if independent { probability(line.loss) } else { 0 },
        // The kind of reordering that netem has: some packets have no delay.
        0,
        probability(line.duplicate),
        ticks(u64::from(jitter)),
    ];
    let mut options = words.map(u32::to_ne_bytes).concat();
    if !independent {
        // Per packet: from the good state to the bad one, and back; packets of the bad state are lost:
        // https://elixir.bootlin.com/linux/v6.12/source/net/sched/sch_netem.c (loss_gilb_ell)
        let recovery = 1.0 / line.loss_burst;
        let onset = line.loss * recovery / (1.0 - line.loss);
        let model = [probability(onset), probability(recovery), 0, 0].map(u32::to_ne_bytes);
        let model = with_header(NETEM_LOSS_GE, &model.concat());
        options.extend(with_header(TCA_NETEM_LOSS | NLA_F_NESTED, &model));
    }
    if let Some((share, _)) = line.late {
        let table = table_of_delays(share).map(i16::to_ne_bytes).collect::<Vec<_>>();
        options.extend(with_header(TCA_NETEM_DELAY_DIST, &table.concat()));
    }
    // Ticks are coarser, and end at 274 s.
    options.extend(with_header(TCA_NETEM_LATENCY64, &line.nanoseconds.to_ne_bytes()));
    options.extend(with_header(TCA_NETEM_JITTER64, &u64::from(jitter).to_ne_bytes()));
    options
}

/// Of each packet the kernel draws an entry of the table: the delay plus entry x jitter / scale
/// (<https://elixir.bootlin.com/linux/v6.12/source/net/sched/sch_netem.c>, `tabledist`). The size of the table is
/// chosen so that the share is exact.
fn table_of_delays(share: f64) -> impl Iterator<Item = i16> {
    let late = (share * NETEM_DIST_MAX).floor().max(1.0);
    let size = (late / share).round().min(NETEM_DIST_MAX);
    (0..size as usize).map(move |entry| if entry < late as usize { NETEM_DIST_SCALE } else { 0 })
}

/// A probability as the kernel compares it with a random number of 32 bits.
fn probability(share: f64) -> u32 {
    (share * f64::from(u32::MAX)).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Links;
    use crate::netns::{NetNs, NetNsGuard};
    use crate::privilege::skip_without_namespaces;

    fn line() -> DelayLine {
        DelayLine {
            nanoseconds: 10_000_000,
            limit: 1_000,
            loss: 0.0,
            loss_burst: 1.0,
            duplicate: 0.0,
            late: None,
        }
    }

    /// What `tc` of iproute2 6.1 sends (`strace -e sendmsg -xx tc qdisc replace dev lo root netem ...`).
    #[test]
    fn messages_of_netem_are_those_of_tc() {
        let delay = [0xe1, 0xf5, 0x05, 0, 0xe8, 3, 0, 0];
        // `limit 1000 delay 25ms loss 1%`
        let lossy = DelayLine { nanoseconds: 25_000_000, loss: 0.01, ..line() };
        let expected = [&delay[..], &[0x29, 0x5c, 0x8f, 2], &[0; 12]].concat();
        assert_eq!(delay_line(&lossy)[..24], expected);
        // `limit 1000 delay 10ms duplicate 2%`
        let delay = [0x5a, 0x62, 0x02, 0, 0xe8, 3, 0, 0];
        let twice = DelayLine { duplicate: 0.02, ..line() };
        let expected = [&delay[..], &[0; 8], &[0x52, 0xb8, 0x1e, 5], &[0; 4]].concat();
        assert_eq!(delay_line(&twice)[..24], expected);
        // `limit 1000 delay 10ms loss gemodel 0.25% 25% 100% 0%`: mean bursts of 4 packets.
        let loss = 0.0025 / 0.2525;
        let bursts = DelayLine { loss, loss_burst: 4.0, ..line() };
        let model = [0x18, 0, 5, 0x80, 0x14, 0, 2, 0, 0x0a, 0xd7, 0xa3, 0, 0, 0, 0, 0x40];
        let expected = [&delay[..], &[0; 16], &model, &[0; 8]].concat();
        assert_eq!(delay_line(&bursts)[..48], expected);
    }

    #[test]
    fn a_share_of_late_packets_is_exact() {
        for share in [smallest_late_share(), 0.0001, 0.001, 0.0333, 0.5, 0.999] {
            let table: Vec<i16> = table_of_delays(share).collect();
            let late = table.iter().filter(|entry| **entry == NETEM_DIST_SCALE).count();
            let of_table = late as f64 / table.len() as f64;
            assert!((of_table / share - 1.0).abs() < 1e-3, "{share}: {late} of {}", table.len());
            assert!(table.len() <= 16_384);
        }
    }

    /// The queueing disciplines of `device` as `tc` shows them.
    fn shown(namespace: &str, device: &str) -> Option<String> {
        let arguments = ["-n", namespace, "-d", "qdisc", "show", "dev", device];
        let tc = ["tc", "/usr/sbin/tc", "/sbin/tc"].into_iter().find_map(|program| {
            std::process::Command::new(program).args(arguments).output().ok()
        })?;
        Some(String::from_utf8_lossy(&tc.stdout).into_owned())
    }

    #[test]
    fn tc_shows_the_bottleneck_that_was_set() {
        if skip_without_namespaces("netem::tc_shows_the_bottleneck_that_was_set") {
            return;
        }
        let name = format!("wirecost-test-{}-bottleneck", std::process::id());
        let _guard = NetNsGuard::new(NetNs::create(&name).unwrap());
        let namespace = NetNs::open(&name).unwrap();
        let links = Links::of(&namespace).unwrap();
        links.add_veth("near", "far", &namespace).unwrap();
        let index = links.get("near").unwrap().index;
        let qdiscs = namespace.run(Qdiscs::open).unwrap().unwrap();
        let limit =
            RateLimit { bits_per_second: 10_000_000, burst_bytes: 2_500, queue_bytes: 25_000 };
        qdiscs.set_bottleneck(index, limit, 38).unwrap();
        assert_eq!(links.rate_limit("near").unwrap().unwrap().queue_bytes, 25_000);
        let Some(shown) = shown(&name, "near") else {
            crate::privilege::skip("netem::tc_shows_the_bottleneck_that_was_set", "no tc");
            return;
        };
        for part in ["qdisc tbf", "rate 10Mbit", "overhead 38", "lat 18ms", "overhead -14"] {
            assert!(shown.contains(part), "no {part}: {shown}");
        }
    }

    #[test]
    fn what_the_kernel_lacks_is_found_by_trying() {
        if skip_without_namespaces("netem::what_the_kernel_lacks_is_found_by_trying") {
            return;
        }
        let missing = missing_kind().unwrap();
        assert_eq!(missing, missing_kind().unwrap());
        // Loaded or built in, it is in the kernel's list of symbols.
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
        assert_eq!(missing != Some(NETEM), symbols.contains(" netem_enqueue"));
    }
}
