//! What each CPU did with received packets, as /proc/net/softnet_stat counts it.

use std::{fs, io};

/// One CPU's counters since boot. The kernel prints 32 bits of them, so they wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Softnet {
    pub cpu: u32,
    /// Packets the stack took.
    pub processed: u32,
    /// Packets that found no room in the backlog.
    pub dropped: u32,
    /// Times NET_RX stopped with work left.
    pub time_squeezed: u32,
    /// Times another CPU woke this one for packets.
    pub received_rps: u32,
    /// Packets that the flow limit refused.
    pub flow_limited: Option<u32>,
}

/// Counters of every CPU that is online.
///
/// # Errors
/// When the file cannot be read.
pub fn read() -> io::Result<Vec<Softnet>> {
    Ok(parse(&fs::read_to_string("/proc/net/softnet_stat")?))
}

/// A line a CPU, hexadecimal columns: processed, dropped, time_squeeze, five that are always 0,
/// cpu_collision (0 since 4.7), received_rps, flow_limit_count (since 3.11), and since 5.10 the length
/// of the backlog and the number of the CPU:
/// <https://elixir.bootlin.com/linux/v6.12/source/net/core/net-procfs.c#L137>. Before, lines are of the
/// CPUs that are online, in order, and which these are is not said.
#[must_use]
pub fn parse(text: &str) -> Vec<Softnet> {
    text.lines()
        .enumerate()
        .filter_map(|(place, line)| {
            let columns: Vec<u32> = line
                .split_ascii_whitespace()
                .map(|column| u32::from_str_radix(column, 16).ok())
                .collect::<Option<_>>()?;
            Some(Softnet {
                cpu: columns.get(12).copied().unwrap_or(place as u32),
                processed: *columns.first()?,
                dropped: *columns.get(1)?,
                time_squeezed: *columns.get(2)?,
                received_rps: columns.get(9).copied().unwrap_or(0),
                flow_limited: columns.get(10).copied(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_grown_over_time() {
        // 6.18, CPU 3 behind one that is off.
        let new = "11dd9938 000009d7 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00483e2f 00000007 00000000 00000003 00000000 00000000\n";
        let expected = Softnet {
            cpu: 3,
            processed: 0x11dd_9938,
            dropped: 0x9d7,
            time_squeezed: 2,
            received_rps: 0x48_3e2f,
            flow_limited: Some(7),
        };
        assert_eq!(parse(new), [expected]);
        // 4.19, and 3.10 without flow limits.
        let old = "0000a1b2 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000005 00000000\n";
        assert_eq!(parse(&old.repeat(2))[1].cpu, 1);
        assert_eq!(parse(old)[0].received_rps, 5);
        let older = "0000a1b2 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000005\n";
        assert_eq!(parse(older)[0].flow_limited, None);
        assert_eq!(parse("what\nis this\n"), []);
    }

    #[test]
    fn this_kernel() {
        assert!(!read().unwrap().is_empty());
    }
}
