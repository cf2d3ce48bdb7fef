//! What each CPU did over time, in parts of 10 ms: utilisation, softirqs and interrupts below one another.

use wirecost_model::document::{Axis, Chart, ChartKind, Sample, Series};
use wirecost_model::metric::Unit;
use wirecost_model::observe::{CpuSamples, HostObservation, SampledCpu, SampledPart};
use wirecost_model::run::Run;
use wirecost_model::units::counted;

use super::Built;

/// As the page calls these charts.
pub(in super::super) const WHAT: &str = "CPUs over time";
/// CPUs of a host that are drawn: those that were busiest.
const CPUS: usize = 4;

/// Three charts for each of the busiest CPUs of each host.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn of_run(run: &Run) -> Built {
    let observe = run.observe.as_ref().ok_or("nothing was observed (--observe cpu)")?;
    let mut reason = "the probe `cpu` was not used (--observe cpu)";
    let mut charts = Vec::new();
    for host in &observe.hosts {
        match (&host.cpu, sampled(host)) {
            (Some(_), Some(samples)) => {
                reason = "the window was shorter than two intervals";
                let is_only = observe.hosts.len() == 1;
                let whose =
                    if is_only { String::new() } else { format!(" of {}", host.covers.join(", ")) };
                charts.extend(busiest(samples).into_iter().flat_map(|cpu| {
                    panels(cpu, samples.seconds, &format!("CPU {}{whose}", cpu.cpu))
                }));
            }
            (Some(cpu), None) if cpu.source == "proc-stat" => {
                reason = "CPU time was read from /proc/stat, which is too coarse for intervals below 100 ms; \
                          shorter ones need BPF (see `wirecost doctor`)";
            }
            (Some(_), None) => reason = "the record has the CPU time of whole windows only",
            (None, _) => {}
        }
    }
    if charts.is_empty() { Err(reason.to_owned()) } else { Ok(charts) }
}

/// What to know of the charts: their parts, CPUs that are not drawn, and parts that were lost.
pub(in super::super) fn notes(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    let hosts = || run.observe.iter().flat_map(|observe| &observe.hosts);
    for host in hosts() {
        let Some(samples) = sampled(host).filter(|samples| !samples.cpus.is_empty()) else {
            continue;
        };
        let whose = host.covers.join(", ");
        let length = samples.seconds * 1e3;
        let mut note = format!(
            "{whose}: each value covers {length:.0} ms, from the time of every switch between tasks, interrupts and idle. \
             Utilisation is the time in which the CPU was not halted."
        );
        if samples.cpus.len() > CPUS {
            let all = samples.cpus.len();
            note += &format!(" The {CPUS} busiest of {all} CPUs are drawn; the record has all.");
        }
        let lost: usize = samples.cpus.iter().map(SampledCpu::lost).sum();
        if lost > 0 {
            let values = counted(lost as u64, "value was", "values were");
            note += &format!(" {values} not read in time, and left out.");
        }
        notes.push(note);
    }
    notes
}

fn sampled(host: &HostObservation) -> Option<&CpuSamples> {
    host.cpu.as_ref()?.samples.as_ref()
}

/// In the order of their numbers.
fn busiest(samples: &CpuSamples) -> Vec<&SampledCpu> {
    let busy =
        |cpu: &SampledCpu| cpu.busy_us.iter().flatten().map(|&us| u64::from(us)).sum::<u64>();
    let mut cpus: Vec<&SampledCpu> = samples.cpus.iter().collect();
    cpus.sort_by_key(|cpu| std::cmp::Reverse(busy(cpu)));
    cpus.truncate(CPUS);
    cpus.sort_by_key(|cpu| cpu.cpu);
    cpus
}

fn panels(cpu: &SampledCpu, seconds: f64, name: &str) -> [Chart; 3] {
    let line = |name: &str, of: fn(&SampledPart) -> f64| {
        let place = |part: SampledPart| Sample { x: (part.start + seconds) * 1e6, y: of(&part) };
        Series::new(name, cpu.parts(seconds).map(place).collect())
    };
    let softirq = || line("softirq", |part| part.softirq);
    let panel = |title: String, y: Axis, series: Vec<Series>| Chart {
        kind: ChartKind::Panel,
        group: Some(name.to_owned()),
        ..Chart::over_time(&title, y, series)
    };
    let axis = |title: &str| Axis::new(title, Unit::Percent);
    let utilisation = vec![line("utilisation", |part| part.busy), softirq()];
    [
        panel(
            format!("{name}: utilisation, with its softirq time"),
            axis("CPU time").until(100.0),
            utilisation,
        ),
        panel(format!("{name}: softirq time"), axis("softirq time"), vec![softirq()]),
        panel(
            format!("{name}: interrupt time"),
            axis("interrupt time"),
            vec![line("irq", |part| part.irq)],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::CpuSection;
    use wirecost_model::run::Observe;

    use super::*;

    fn run(cpu: CpuSection) -> Run {
        let host = HostObservation {
            host: "h1".to_owned(),
            covers: vec!["h1".to_owned(), "h2".to_owned()],
            cpu: Some(cpu),
            ..HostObservation::default()
        };
        Run {
            observe: Some(Observe { hosts: vec![host], ..Observe::default() }),
            ..Run::empty("@rr", "epoll", "0.1.0", 0)
        }
    }

    fn cpu(number: u32, busy: &[Option<u32>]) -> SampledCpu {
        let each = |value: u32| busy.iter().map(|busy| busy.map(|_| value)).collect::<Vec<_>>();
        SampledCpu {
            cpu: number,
            start: 0.003,
            busy_us: busy.to_vec(),
            irq_us: each(100),
            softirq_us: each(2_000),
            interrupts: each(7),
        }
    }

    #[test]
    fn the_busiest_cpus_have_three_panels_each() {
        let busy = |us| [Some(us), None, Some(us)];
        let cpus = (0..6).map(|number| cpu(number, &busy(1_000 * (6 - number) + 4_000))).collect();
        let samples = Some(CpuSamples { seconds: 0.01, cpus });
        let run = run(CpuSection { source: "bpf".to_owned(), samples, ..CpuSection::default() });
        let charts = of_run(&run).unwrap();
        assert_eq!(charts.len(), 3 * CPUS);
        let [all, softirqs, interrupts] = &charts[..3] else { panic!("{charts:?}") };
        assert_eq!(all.title, "CPU 0: utilisation, with its softirq time");
        assert_eq!((all.y.end, softirqs.y.end), (Some(100.0), None));
        assert_eq!(all.group, interrupts.group);
        assert_ne!(all.group, charts[3].group);
        // The part that was lost is in no line.
        let values = |series: &Series| series.samples.iter().map(|of| of.y).collect::<Vec<_>>();
        assert_eq!(values(&all.series[0]), [100.0, 100.0]);
        assert_eq!(values(&all.series[1]), [20.0, 20.0]);
        assert_eq!(values(&interrupts.series[0]), [1.0, 1.0]);
        let [note] = notes(&run).try_into().unwrap();
        assert!(note.contains("10 ms") && note.contains("4 busiest of 6 CPUs"), "{note}");
        assert!(note.contains("6 values were not read"), "{note}");
    }

    #[test]
    fn nothing_is_drawn_of_proc_stat() {
        let section = CpuSection { source: "proc-stat".to_owned(), ..CpuSection::default() };
        let reason = of_run(&run(section)).unwrap_err();
        assert!(reason.contains("too coarse for intervals below 100 ms"), "{reason}");
    }
}
