//! `-H FILE`: percentiles of the time of transactions, as the forks of uperf that have this flag write them.

use std::io;
use std::path::Path;

use wirecost_model::histogram::Histogram;
use wirecost_model::outcome::Outcome;
use wirecost_model::program::Side;
use wirecost_report::atomic_file;

const QUANTILES: [(&str, f64); 6] = [
    ("50th", 0.5),
    ("90th", 0.9),
    ("95th", 0.95),
    ("99th", 0.99),
    ("99.9th", 0.999),
    ("99.99th", 0.9999),
];

/// Writes those of the master's transactions in the phase of the headline.
pub(super) fn write(file: &Path, outcome: &Outcome) -> io::Result<()> {
    let headline = outcome.phases.iter().position(|phase| phase.headline);
    let master = outcome.hosts.iter().find(|host| host.side == Side::Master);
    let phase = master.zip(headline).and_then(|(master, headline)| {
        master.phases.iter().find(|phase| phase.phase as usize == headline)
    });
    let text = text(phase.map_or(&Histogram::new(), |phase| &phase.transactions));
    atomic_file::write(file, text.as_bytes())
}

fn text(times: &Histogram) -> String {
    let us = |nanos: Option<u64>| nanos.map_or(0.0, |nanos| nanos as f64 / 1e3);
    let mut text = format!(
        "Histogram Summary:\n  Samples   :  {}\n  Minimum   :  {:.2} us\n  Maximum   :  {:.2} us\n  \
         Average   :  {:.2} us\n  Percentiles (us):\n",
        times.count(),
        us(times.min()),
        us(times.max()),
        times.mean().unwrap_or(0.0) / 1e3,
    );
    for (name, quantile) in QUANTILES {
        text += &format!("    {name:<8}:  {:.0}\n", us(times.quantile(quantile)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_microseconds() {
        let mut times = Histogram::new();
        (1..=100).for_each(|n| times.record(n * 100_000));
        let text = text(&times);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "  Samples   :  100");
        assert!(lines[4].starts_with("  Average   :  50"), "{text}");
        assert!(lines[6].starts_with("    50th    :  50"), "{text}");
        assert_eq!(lines.len(), 12);
    }
}
