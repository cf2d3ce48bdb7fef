//! The keys of a link, as a user types them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::nic::{MAX_QUEUES, Nic};
use super::{Capacity, Conditions, Discipline, LinkSpec, MAX_HELD, trace};
use crate::rss::{Key as RssKey, Rss, TABLE_ENTRIES};
use crate::units;

/// At a lower rate, a packet of 1500 bytes takes more than 100 ms.
pub const MIN_RATE: u64 = 120_000;
/// Faster links than this are not emulated.
pub const MAX_RATE: u64 = 100_000_000_000;
const MAX_TIME: u64 = 10_000_000_000;
const MAX_BURST: f64 = 10_000.0;
/// A longer coalescing time than any driver takes.
const MAX_COALESCE: u64 = 10_000_000;

/// Packets in a receive queue, if nothing else is asked for: as of many drivers.
const RING: u32 = 1_024;

/// Queue of a link with a rate and without a round-trip time, in nanoseconds: about ten times the round-trip
/// time of a local network, so that one flow fills the link and many flows do not starve.
const QUEUE_TIME: u64 = 50_000_000;
/// A queue has room for ten packets.
const MIN_QUEUE: u64 = 15_000;
/// A queue that nobody asked for has room for what hosts send at once, which is about 1 ms (`tcp_tso_autosize`).
const BURST_TIME: u64 = 2_000_000;

/// A key of a link.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// What its value is called.
    pub value: &'static str,
    pub about: &'static str,
    /// What holds without it, where that is not nothing.
    pub default: Option<&'static str>,
    set: fn(&mut Typed, &str) -> Result<(), String>,
}

/// Every key.
pub const ALL: &[Key] = &[
    Key {
        name: "rate",
        value: "RATE",
        about: "Rate in bits on the wire, such as `1gbit`",
        default: None,
        set: |typed, text| {
            let rate = units::parse_bit_rate(text).ok_or("must be a rate, such as 1gbit")?;
            if !(MIN_RATE..=MAX_RATE).contains(&rate) {
                return Err("must be from 120kbit to 100gbit".to_owned());
            }
            typed.rate = Some(rate);
            Ok(())
        },
    },
    Key {
        name: "rtt",
        value: "TIME",
        about: "Round-trip time, such as `20ms`: half of it in each direction",
        default: None,
        set: |typed, text| set(&mut typed.rtt, time(text)),
    },
    Key {
        name: "host-rtt",
        value: "HOST=TIME,...",
        about: "Round-trip time of hosts that are farther away, such as `h3=100ms`",
        default: Some("rtt"),
        set: |typed, text| {
            let all = text.split(',').map(host_rtt).collect::<Result<Vec<_>, _>>()?;
            let hosts: BTreeMap<u16, u64> = all.iter().copied().collect();
            if hosts.len() < all.len() {
                return Err("names a host twice".to_owned());
            }
            typed.host_rtt = hosts;
            Ok(())
        },
    },
    Key {
        name: "jitter",
        value: "TIME",
        about: "The one-way delay varies by up to plus or minus this time; packets stay in order",
        default: None,
        set: |typed, text| set(&mut typed.jitter, time(text)),
    },
    Key {
        name: "loss",
        value: "SHARE",
        about: "Share of packets that are lost, such as `0.01%`",
        default: None,
        set: |typed, text| set(&mut typed.loss, share(text)),
    },
    Key {
        name: "loss-burst",
        value: "PACKETS",
        about: "Mean length of a loss burst, in consecutive packets (Gilbert model)",
        default: Some("independent losses"),
        set: |typed, text| {
            let burst = text.parse().ok().filter(|burst| (1.0..=MAX_BURST).contains(burst));
            set(
                &mut typed.loss_burst,
                burst.ok_or_else(|| "must be a number from 1 to 10000".to_owned()),
            )
        },
    },
    Key {
        name: "reorder",
        value: "SHARE",
        about: "Share of packets that are delayed so that later ones overtake them",
        default: None,
        set: |typed, text| set(&mut typed.reorder, share(text)),
    },
    Key {
        name: "duplicate",
        value: "SHARE",
        about: "Share of packets that are duplicated",
        default: None,
        set: |typed, text| set(&mut typed.duplicate, share(text)),
    },
    Key {
        name: "queue",
        value: "LENGTH",
        about: "Size of the queue at the link: `1bdp` (rate x round-trip time), `50ms` or `250kB`",
        default: Some("1bdp, at least 2ms; without rtt 50ms"),
        set: |typed, text| set(&mut typed.queue, queue(text)),
    },
    Key {
        name: "aqm",
        value: "NAME",
        about: "How the queue drops packets: droptail or codel",
        default: Some("droptail"),
        set: |typed, text| {
            typed.discipline = Some(match text {
                "droptail" => Discipline::DropTail,
                "codel" => Discipline::CoDel,
                _ => return Err("must be droptail or codel".to_owned()),
            });
            Ok(())
        },
    },
    Key {
        name: "cross",
        value: "RATE",
        about: "Rate of other traffic on the link, such as `300mbit` or `30%` of the rate",
        default: None,
        set: |typed, text| {
            let rate = match text.strip_suffix('%') {
                Some(_) => Cross::Share(share(text)?),
                None if text == "0" => Cross::Rate(0),
                None => Cross::Rate(
                    units::parse_bit_rate(text)
                        .ok_or("must be a rate or a share, such as 300mbit or 30%")?,
                ),
            };
            typed.cross = Some(rate);
            Ok(())
        },
    },
    Key {
        name: "trace",
        value: "FILE",
        about: "A rate that changes: lines `SECONDS RATE` (how long, how fast), or a Mahimahi trace",
        default: None,
        set: |typed, text| {
            typed.trace = Some(PathBuf::from(text));
            Ok(())
        },
    },
    Key {
        name: "queues",
        value: "N",
        about: "Number of queues of each host's device; RSS selects the queue, and each is served on its own CPU",
        default: Some("1"),
        set: |typed, text| set(&mut typed.nic.queues, number(text, 1..=u32::from(MAX_QUEUES))),
    },
    Key {
        name: "ring",
        value: "PACKETS",
        about: "Size of each receive ring, in packets; packets that do not fit are dropped",
        default: Some("no ring; 1024 with any other key of devices"),
        set: |typed, text| set(&mut typed.nic.ring, number(text, 16..=65_536)),
    },
    Key {
        name: "coalesce",
        value: "TIME",
        about: "Interrupt delay, such as `50us`: from the first packet in an empty receive queue to the interrupt",
        default: None,
        set: |typed, text| {
            let time = time(text)?;
            if time > MAX_COALESCE {
                return Err("must be at most 10ms".to_owned());
            }
            typed.nic.coalesce = Some(time);
            Ok(())
        },
    },
    Key {
        name: "pause",
        value: "on|off",
        about: "Whether a device sends pause frames while a receive queue is nearly full: on or off",
        default: Some("off"),
        set: |typed, text| {
            typed.nic.pause = Some(match text {
                "on" => true,
                "off" => false,
                _ => return Err("must be on or off".to_owned()),
            });
            Ok(())
        },
    },
    Key {
        name: "rss-key",
        value: "BYTES",
        about: "RSS hash key (Toeplitz): 40 bytes in hexadecimal, as printed by `ethtool -x`",
        default: Some("the key of Microsoft's RSS verification suite"),
        set: |typed, text| set(&mut typed.nic.key, text.parse()),
    },
    Key {
        name: "rss-table",
        value: "QUEUES",
        about: "RSS indirection table, as queue numbers such as `0,1,1`; repeated to fill its 128 entries",
        default: Some("all queues in turn"),
        set: |typed, text| {
            let queues = text.split(',').map(|queue| queue.trim().parse().ok()).collect();
            let table: Option<Vec<u8>> = queues;
            let table = table.filter(|table| table.len() <= TABLE_ENTRIES);
            set(
                &mut typed.nic.table,
                table
                    .ok_or_else(|| "must be up to 128 numbers of queues, such as 0,1,1".to_owned()),
            )
        },
    },
];

/// Keys of one direction that were typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Typed {
    rate: Option<u64>,
    rtt: Option<u64>,
    host_rtt: BTreeMap<u16, u64>,
    jitter: Option<u64>,
    loss: Option<f64>,
    loss_burst: Option<f64>,
    reorder: Option<f64>,
    duplicate: Option<f64>,
    queue: Option<Queue>,
    discipline: Option<Discipline>,
    cross: Option<Cross>,
    trace: Option<PathBuf>,
    nic: TypedNic,
}

/// Keys of the devices that were typed.
#[derive(Debug, Clone, Default, PartialEq)]
struct TypedNic {
    queues: Option<u32>,
    ring: Option<u32>,
    coalesce: Option<u64>,
    pause: Option<bool>,
    key: Option<RssKey>,
    table: Option<Vec<u8>>,
}

impl TypedNic {
    /// None if no key was typed.
    fn resolve(&self) -> Result<Option<Nic>, String> {
        if *self == Self::default() {
            return Ok(None);
        }
        let queues = self.queues.map_or(1, |queues| queues as u8);
        let mut rss = Rss::spread(queues);
        if let Some(key) = self.key {
            rss.key = key;
        }
        if let Some(table) = &self.table {
            if let Some(wrong) = table.iter().find(|queue| **queue >= queues) {
                return Err(format!("rss-table has queue {wrong}, but the last is {}", queues - 1));
            }
            rss.table = table.iter().copied().cycle().take(TABLE_ENTRIES).collect();
        }
        Ok(Some(Nic {
            queues,
            rss,
            ring: self.ring.unwrap_or(RING),
            coalesce_nanoseconds: self.coalesce.unwrap_or_default(),
            pause: self.pause.unwrap_or_default(),
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Queue {
    /// Multiples of rate x round-trip time.
    Bdp(f64),
    Time(u64),
    Bytes(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cross {
    Rate(u64),
    Share(f64),
}

impl Typed {
    /// Sets a key.
    ///
    /// # Errors
    /// Text for a user: the key is not known, or its value cannot be.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(key) = ALL.iter().find(|key| key.name == name) else {
            let names: Vec<&str> = ALL.iter().map(|key| key.name).collect();
            return Err(format!("a link has no `{name}`; it has {}", names.join(", ")));
        };
        (key.set)(self, value.trim()).map_err(|reason| format!("{name} `{value}`: {reason}"))
    }

    /// What the other direction is: the same, except for what is typed there.
    fn overridden(&self, other: &Self) -> Self {
        let (one, other) = (self.clone(), other.clone());
        // A rate replaces a trace, and a trace a rate.
        let rate_or_trace = match (other.rate, &other.trace) {
            (None, None) => (one.rate, one.trace),
            _ => (other.rate, other.trace),
        };
        Self {
            rate: rate_or_trace.0,
            trace: rate_or_trace.1,
            rtt: one.rtt,
            host_rtt: one.host_rtt,
            jitter: other.jitter.or(one.jitter),
            loss: other.loss.or(one.loss),
            loss_burst: match other.loss {
                Some(0.0) => other.loss_burst,
                _ => other.loss_burst.or(one.loss_burst),
            },
            reorder: other.reorder.or(one.reorder),
            duplicate: other.duplicate.or(one.duplicate),
            queue: other.queue.or(one.queue),
            discipline: other.discipline.or(one.discipline),
            cross: other.cross.or(one.cross),
            nic: one.nic,
        }
    }

    fn conditions(
        &self,
        read: &impl Fn(&Path) -> Result<String, String>,
    ) -> Result<Conditions, String> {
        let capacity = match (&self.trace, self.rate) {
            (Some(_), Some(_)) => return Err("a link has a rate or a trace, not both".to_owned()),
            (Some(path), None) => trace::parse(&read(path)?)
                .map_err(|reason| format!("trace {}: {reason}", path.display()))?,
            (None, Some(rate)) => Capacity::Rate(rate),
            (None, None) => Capacity::Unlimited,
        };
        let mean = capacity.mean();
        let without_rate = |key: &str| format!("{key} needs a rate");
        let rtt = self.rtt.unwrap_or_default();
        let queue_bytes = match (self.queue, mean) {
            (None, None) => None,
            (Some(_), None) => return Err(without_rate("queue")),
            (queue, Some(rate)) => {
                let default = match rtt {
                    0 => Queue::Time(QUEUE_TIME),
                    rtt => Queue::Time(rtt.max(BURST_TIME)),
                };
                let bytes = |nanoseconds: f64| (rate as f64 * nanoseconds / 8e9).round() as u64;
                let length = match queue.unwrap_or(default) {
                    Queue::Bdp(_) if rtt == 0 => {
                        return Err("a queue in bdp needs an rtt".to_owned());
                    }
                    Queue::Bdp(times) => bytes(rtt as f64 * times),
                    Queue::Time(time) => bytes(time as f64),
                    Queue::Bytes(bytes) => bytes,
                };
                Some(length.max(MIN_QUEUE))
            }
        };
        if self.discipline.is_some() && mean.is_none() {
            return Err(without_rate("aqm"));
        }
        let cross_bits_per_second = match (self.cross, mean) {
            (None, _) => 0,
            (Some(_), None) => return Err(without_rate("cross")),
            (Some(Cross::Share(share)), Some(rate)) => (rate as f64 * share) as u64,
            (Some(Cross::Rate(0)), _) => 0,
            (Some(Cross::Rate(cross)), Some(rate)) if cross < rate => cross,
            (Some(Cross::Rate(_)), Some(_)) => {
                return Err("cross must be less than the rate".to_owned());
            }
        };
        let jitter = self.jitter.unwrap_or_default();
        if jitter > rtt / 2 {
            return Err("jitter must be at most half of rtt".to_owned());
        }
        let loss = self.loss.unwrap_or_default();
        let burst = self.loss_burst.unwrap_or(1.0);
        if self.loss_burst.is_some() && loss == 0.0 {
            return Err("loss-burst needs a loss".to_owned());
        }
        // A good packet would have to be followed by a bad one more often than always.
        if burst > 1.0 && loss > burst * (1.0 - loss) {
            return Err("a loss this large needs a larger loss-burst".to_owned());
        }
        let longest = self.host_rtt.values().copied().max().unwrap_or_default().max(rtt);
        let in_flight =
            mean.map_or(0, |rate| u128::from(rate) * u128::from(longest / 2) / 8_000_000_000);
        if u128::from(queue_bytes.unwrap_or_default()) + in_flight > u128::from(MAX_HELD) {
            return Err("the queue and rate x delay are more than 1 GiB".to_owned());
        }
        Ok(Conditions {
            capacity,
            delay_nanoseconds: rtt / 2,
            jitter_nanoseconds: jitter,
            loss,
            loss_burst: burst,
            reorder: self.reorder.unwrap_or_default(),
            duplicate: self.duplicate.unwrap_or_default(),
            queue_bytes,
            discipline: self.discipline.unwrap_or_default(),
            cross_bits_per_second,
        })
    }
}

/// The link that was typed. `back` holds what differs in the other direction, and `read` reads the file of a
/// trace.
///
/// # Errors
/// Text for a user: keys that cannot be together, or a trace that cannot be followed.
pub fn resolve(
    both: &Typed,
    back: &Typed,
    read: impl Fn(&Path) -> Result<String, String>,
) -> Result<LinkSpec, String> {
    if back.rtt.is_some() || !back.host_rtt.is_empty() {
        return Err("rtt and host-rtt are those of both directions".to_owned());
    }
    if back.nic != TypedNic::default() {
        return Err("queues, ring, coalesce, pause and rss are those of all hosts".to_owned());
    }
    let rtt = both.rtt.unwrap_or_default();
    if let Some((host, _)) = both.host_rtt.iter().find(|(_, of_host)| **of_host < rtt) {
        return Err(format!("host-rtt of h{host} must be at least rtt"));
    }
    let forward = both.conditions(&read)?;
    let back =
        both.overridden(back).conditions(&read).map_err(|reason| format!("back: {reason}"))?;
    let host_rtt_nanoseconds = both.host_rtt.clone();
    Ok(LinkSpec { forward, back, nic: both.nic.resolve()?, host_rtt_nanoseconds })
}

fn set<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *place = Some(value?);
    Ok(())
}

fn number(text: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a number from {} to {}", range.start(), range.end()))
}

/// The number of a host, and its time.
fn host_rtt(text: &str) -> Result<(u16, u64), String> {
    let error = || "must be hosts and times, such as h3=100ms".to_owned();
    let (host, rtt) = text.split_once('=').ok_or_else(error)?;
    let number = host.trim().strip_prefix('h').and_then(|number| number.parse().ok());
    Ok((number.filter(|number| *number > 0).ok_or_else(error)?, time(rtt.trim())?))
}

/// Nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let scale = match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return Err("must be a time, such as 20ms or 1.5s".to_owned()),
    };
    let nanoseconds =
        number.ok_or_else(|| "must be a time, such as 20ms or 1.5s".to_owned())? * scale;
    if nanoseconds > MAX_TIME as f64 {
        return Err("must be at most 10s".to_owned());
    }
    Ok(nanoseconds.round() as u64)
}

/// A share below 1.
fn share(text: &str) -> Result<f64, String> {
    let error = || "must be a share below 100%, such as 0.01% or 0.0001".to_owned();
    let (number, unit) = split_unit(text);
    let share = match unit {
        "%" => number.ok_or_else(error)? / 100.0,
        "" => number.ok_or_else(error)?,
        _ => return Err(error()),
    };
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err(error()) }
}

fn queue(text: &str) -> Result<Queue, String> {
    let error = || "must be a length, such as 1bdp, 50ms or 250kB".to_owned();
    let (number, unit) = split_unit(text);
    let number = number.ok_or_else(error)?;
    let bytes = |scale: f64| Queue::Bytes((number * scale).round() as u64);
    let queue = match unit.to_ascii_lowercase().as_str() {
        "bdp" => Queue::Bdp(number),
        "s" | "ms" | "us" | "ns" => Queue::Time(time(text)?),
        "b" | "" => bytes(1.0),
        "k" | "kb" => bytes(1e3),
        "m" | "mb" => bytes(1e6),
        "g" | "gb" => bytes(1e9),
        _ => return Err(error()),
    };
    if number > 1e12 { Err(error()) } else { Ok(queue) }
}

/// A number that is not negative, and what follows it.
fn split_unit(text: &str) -> (Option<f64>, &str) {
    let end =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &str) -> Typed {
        let mut typed = Typed::default();
        for pair in keys.split_whitespace() {
            let (name, value) = pair.split_once('=').unwrap();
            typed.set(name, value).unwrap();
        }
        typed
    }

    fn link(both: &str, back: &str) -> Result<LinkSpec, String> {
        resolve(&typed(both), &typed(back), |path| match path.to_str() {
            Some("lte") => Ok("0\n10\n".to_owned()),
            _ => Err(format!("cannot read {}", path.display())),
        })
    }

    #[test]
    fn a_link_is_what_was_typed() {
        let link = link(
            "rate=1gbit rtt=20ms jitter=2ms loss=0.01% loss-burst=4 reorder=0.001 duplicate=0.5% queue=2bdp \
             aqm=codel cross=30%",
            "",
        )
        .unwrap();
        let expected = Conditions {
            capacity: Capacity::Rate(1_000_000_000),
            delay_nanoseconds: 10_000_000,
            jitter_nanoseconds: 2_000_000,
            loss: 0.0001,
            loss_burst: 4.0,
            reorder: 0.001,
            duplicate: 0.005,
            queue_bytes: Some(5_000_000),
            discipline: Discipline::CoDel,
            cross_bits_per_second: 300_000_000,
        };
        let expected =
            LinkSpec { forward: expected.clone(), back: expected, ..LinkSpec::default() };
        assert_eq!(link, expected);
    }

    #[test]
    fn hosts_may_be_farther_away() {
        let link = link("rate=100mbit rtt=20ms host-rtt=h2=20ms,h3=100ms", "").unwrap();
        let approach = [1, 2, 3].map(|host| link.approach_nanoseconds(host));
        assert_eq!(approach, [0, 0, 40_000_000]);
        // The queue is that of the link.
        assert_eq!(link.forward.queue_bytes, Some(250_000));
        let described = link.describe(crate::link::Topology::Dumbbell);
        assert!(
            described.starts_with("dumbbell, RTT 20.0 ms, h2 20.0 ms, h3 100 ms, "),
            "{described}"
        );
    }

    #[test]
    fn queues_have_lengths_of_several_kinds() {
        let bytes = |keys| link(keys, "").unwrap().forward.queue_bytes;
        assert_eq!(bytes("rate=100mbit rtt=40ms"), Some(500_000));
        assert_eq!(bytes("rate=100mbit"), Some(625_000));
        assert_eq!(bytes("rate=1gbit rtt=100us"), Some(250_000));
        assert_eq!(bytes("rate=100mbit queue=10ms"), Some(125_000));
        assert_eq!(bytes("rate=100mbit queue=250kB"), Some(250_000));
        assert_eq!(bytes("rate=100mbit queue=0.5bdp rtt=80ms"), Some(500_000));
        assert_eq!(bytes("rate=1mbit queue=100"), Some(MIN_QUEUE));
        assert_eq!(bytes("rtt=10ms"), None);
        // 2 opportunities of 1500 bytes in 10 ms are 2.4 Mb/s.
        assert_eq!(bytes("trace=lte queue=100ms"), Some(30_000));
    }

    #[test]
    fn the_other_direction_differs_where_it_was_typed() {
        let differing = link("rate=100mbit rtt=20ms loss=1%", "rate=10mbit loss=0").unwrap();
        assert_eq!(differing.back.capacity, Capacity::Rate(10_000_000));
        assert_eq!((differing.forward.loss, differing.back.loss), (0.01, 0.0));
        assert_eq!(differing.back.delay_nanoseconds, 10_000_000);
        // Each direction has its own bandwidth-delay product.
        assert_eq!(differing.back.queue_bytes, Some(25_000));
        let calm =
            link("rate=100mbit loss=1% loss-burst=4 cross=20mbit", "loss=0 cross=0").unwrap();
        assert_eq!((calm.back.loss_burst, calm.back.cross_bits_per_second), (1.0, 0));
        let traced = link("trace=lte rtt=20ms", "rate=10mbit").unwrap();
        assert_eq!(traced.back.capacity, Capacity::Rate(10_000_000));
    }

    #[test]
    fn devices_are_what_was_typed() {
        let nic = |keys| link(keys, "").unwrap().nic;
        assert_eq!(nic("rtt=10ms"), None);
        let one = nic("ring=16").unwrap();
        assert_eq!((one.queues, one.ring, one.rss), (1, 16, Rss::spread(1)));
        let key = "01".repeat(40);
        let two = nic(&format!("queues=2 coalesce=50us pause=on rss-table=1,0,1 rss-key={key}"));
        let two = two.unwrap();
        assert_eq!((two.queues, two.ring, two.coalesce_nanoseconds), (2, 1_024, 50_000));
        assert!(two.pause);
        assert_eq!(two.rss.key.0, [1; 40]);
        assert_eq!((two.rss.table.len(), &two.rss.table[..4]), (128, &[1, 0, 1, 1][..]));
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (name, value) in [
            ("rate", "fast"),
            ("rate", "1kbit"),
            ("rate", "1tbit"),
            ("rtt", "20"),
            ("rtt", "-1ms"),
            ("rtt", "11s"),
            ("host-rtt", "100ms"),
            ("host-rtt", "3=100ms"),
            ("host-rtt", "h0=100ms"),
            ("host-rtt", "h3=100"),
            ("host-rtt", "h3=1ms,h3=2ms"),
            ("loss", "100%"),
            ("loss", "1.5"),
            ("loss", "x"),
            ("loss-burst", "0"),
            ("loss-burst", "NaN"),
            ("queue", "1packet"),
            ("queue", "bdp"),
            ("queue", "9999999999999"),
            ("aqm", "red"),
            ("cross", "100%"),
            ("cross", "much"),
            ("queues", "0"),
            ("queues", "65"),
            ("ring", "8"),
            ("coalesce", "11ms"),
            ("pause", "maybe"),
            ("rss-key", "6d:5a"),
            ("rss-table", "0,x"),
            ("rss-table", ""),
            ("delay", "1ms"),
        ] {
            let error = Typed::default().set(name, value).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn keys_that_cannot_be_together_are_refused() {
        for (both, back, reason) in [
            ("rate=1gbit trace=lte", "", "a link has a rate or a trace, not both"),
            ("queue=1bdp rtt=10ms", "", "queue needs a rate"),
            ("queue=1bdp rate=1gbit", "", "a queue in bdp needs an rtt"),
            ("aqm=codel", "", "aqm needs a rate"),
            ("cross=10%", "", "cross needs a rate"),
            ("cross=2gbit rate=1gbit", "", "cross must be less than the rate"),
            ("rtt=10ms jitter=6ms", "", "jitter must be at most half of rtt"),
            ("loss-burst=3", "", "loss-burst needs a loss"),
            ("loss=80% loss-burst=1.5", "", "a loss this large needs a larger loss-burst"),
            ("rate=100gbit rtt=10s", "", "the queue and rate x delay are more than 1 GiB"),
            ("rtt=10ms", "rtt=20ms", "rtt and host-rtt are those of both directions"),
            ("rtt=10ms", "host-rtt=h2=20ms", "rtt and host-rtt are those of both directions"),
            ("rtt=10ms host-rtt=h2=9ms", "", "host-rtt of h2 must be at least rtt"),
            (
                "rate=1gbit host-rtt=h2=10s,h3=1ms queue=512MB",
                "",
                "the queue and rate x delay are more than 1 GiB",
            ),
            ("rtt=10ms", "jitter=6ms", "back: jitter must be at most half of rtt"),
            ("queues=2 rss-table=0,2", "", "rss-table has queue 2, but the last is 1"),
            (
                "rtt=10ms",
                "queues=2",
                "queues, ring, coalesce, pause and rss are those of all hosts",
            ),
            ("trace=wifi", "", "cannot read wifi"),
        ] {
            assert_eq!(link(both, back), Err(reason.to_owned()), "{both} {back}");
        }
    }
}
