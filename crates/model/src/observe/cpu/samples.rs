//! What CPUs did over time, by short parts of the window.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sample::{Rows, SampleName, Series, figure};

/// CPUs by parts of the window, equally long, which begin at the same instants on all of them. What is left at the
/// ends of the window is no whole part, and not here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CpuSamples {
    /// Length of a part: 10 ms, or more where a long window would have too many.
    pub seconds: f64,
    pub cpus: Vec<SampledCpu>,
}

/// Parts of one CPU, one after the other. Null is one that was lost because it was not read in time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SampledCpu {
    pub cpu: u32,
    /// When the first begins, since the window began.
    pub start: f64,
    /// Microseconds in which the CPU was not halted.
    pub busy_us: Vec<Option<u32>>,
    /// In interrupts, without softirqs.
    pub irq_us: Vec<Option<u32>>,
    pub softirq_us: Vec<Option<u32>>,
    /// How many began.
    pub interrupts: Vec<Option<u32>>,
}

/// A part of the window on one CPU; times in percent of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledPart {
    /// Seconds since the window began.
    pub start: f64,
    pub busy: f64,
    pub softirq: f64,
    pub irq: f64,
    pub interrupts: f64,
}

/// Of a CPU, by part.
const PART: Series<SampledPart> = Series {
    kind: "cpu_part",
    figures: &[
        figure("busy", "%", |part| Some(part.busy)),
        figure("softirq", "%", |part| Some(part.softirq)),
        figure("irq", "%", |part| Some(part.irq)),
        figure("interrupts", "count", |part| Some(part.interrupts)),
    ],
};

pub(super) fn names() -> Vec<SampleName> {
    PART.names()
}

impl SampledCpu {
    /// The parts that were not lost, of so many seconds each.
    pub fn parts(&self, seconds: f64) -> impl Iterator<Item = SampledPart> {
        let percent = move |us: u32| (f64::from(us) / seconds / 1e4).min(100.0);
        let times = self.busy_us.iter().zip(&self.softirq_us).zip(&self.irq_us);
        times.zip(&self.interrupts).enumerate().filter_map(
            move |(place, (((busy, softirq), irq), interrupts))| {
                Some(SampledPart {
                    start: self.start + place as f64 * seconds,
                    busy: percent((*busy)?),
                    softirq: percent((*softirq)?),
                    irq: percent((*irq)?),
                    interrupts: f64::from((*interrupts)?),
                })
            },
        )
    }

    /// How many parts were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.busy_us.iter().filter(|busy| busy.is_none()).count()
    }
}

impl CpuSamples {
    pub(super) fn add_to(&self, rows: &mut Rows<'_>) {
        for cpu in &self.cpus {
            let name = cpu.cpu.to_string();
            for part in cpu.parts(self.seconds) {
                rows.add(&PART, Some(&name), (part.start, self.seconds), &part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_lost_has_no_figures() {
        let cpu = SampledCpu {
            cpu: 3,
            start: 0.004,
            busy_us: vec![Some(10_000), None, Some(2_500)],
            irq_us: vec![Some(0), None, Some(100)],
            softirq_us: vec![Some(5_000), None, Some(400)],
            interrupts: vec![Some(12), None, Some(1)],
        };
        let parts: Vec<SampledPart> = cpu.parts(0.01).collect();
        assert_eq!((cpu.lost(), parts.len()), (1, 2));
        assert_eq!((parts[0].busy, parts[0].softirq, parts[0].interrupts), (100.0, 50.0, 12.0));
        assert_eq!((parts[1].start, parts[1].busy, parts[1].irq), (0.024, 25.0, 1.0));
        let mut samples = Vec::new();
        CpuSamples { seconds: 0.01, cpus: vec![cpu] }.add_to(&mut Rows::of(None, &mut samples));
        assert_eq!(samples.len(), 2 * names().len());
        assert_eq!(samples[0].name.as_deref(), Some("3"));
    }
}
