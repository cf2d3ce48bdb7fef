//! Flows of runs beside one another, over time: windows and queues by congestion control.

use wirecost_model::document::{Axis, Chart, Sample, Series};
use wirecost_model::link::LinePart;
use wirecost_model::metric::Unit;
use wirecost_model::observe::{TcpFlow, TcpSample};
use wirecost_model::run::Run;

use super::Built;
use super::over_time::busiest_line;

pub(in super::super) const WHAT: &str = "Flows by congestion control, over time";

/// All have one cursor.
const GROUP: &str = "flows by congestion control";

/// A figure of a flow. What stands in the queues of its path it tells by its round trips: RTT above the lowest.
struct Figure {
    title: &'static str,
    noun: &'static str,
    unit: Unit,
    of: fn(&TcpSample, lowest_rtt: u32) -> Option<f64>,
}

const FIGURES: [Figure; 4] = [
    Figure {
        title: "Congestion window by congestion control",
        noun: "congestion window (segments)",
        unit: Unit::Count,
        of: |sample, _| Some(f64::from(sample.cwnd_segments)),
    },
    Figure {
        title: "Round-trip time by congestion control",
        noun: "round-trip time",
        unit: Unit::Microseconds,
        of: |sample, _| Some(f64::from(sample.rtt_us)),
    },
    Figure {
        title: "Time in queues by congestion control: round-trip time above the lowest of the flow",
        noun: "time in queues",
        unit: Unit::Microseconds,
        of: |sample, lowest| Some(f64::from(sample.rtt_us.saturating_sub(lowest))),
    },
    Figure {
        title: "Delivery rate by congestion control",
        noun: "delivery rate",
        unit: Unit::BitsPerSecond,
        of: |sample, _| sample.delivery_bits_per_second,
    },
];

/// One flow of each run, by its congestion control: the flow that sent most.
///
/// # Errors
/// Why there is no chart.
pub(in super::super) fn beside(runs: &[(String, Run)]) -> Built {
    let flows: Vec<(&str, &TcpFlow)> =
        runs.iter().filter_map(|(name, run)| Some((name.as_str(), busiest(run)?))).collect();
    if flows.len() < 2 {
        return Err("no flows of two congestion controls were sampled at points that differ in \
                    nothing else (--observe tcp)"
            .to_owned());
    }
    let chart = |figure: &Figure| {
        let lines = flows.iter().map(|(name, flow)| Series::new(name, line(figure, flow)));
        let y = Axis::new(figure.noun, figure.unit);
        let chart = Chart::over_time(figure.title, y, lines.collect());
        Chart { group: Some(GROUP.to_owned()), ..chart }
    };
    let mut charts: Vec<Chart> = FIGURES.iter().map(chart).collect();
    charts.extend(queues(runs));
    Ok(charts)
}

/// The queue of the link of each run, where links are emulated.
fn queues(runs: &[(String, Run)]) -> Option<Chart> {
    let line = |(name, run): &(String, Run)| {
        let place = |part: &LinePart| Sample {
            x: (part.start + part.seconds) * 1e6,
            y: part.queue_bytes as f64,
        };
        Some(Series::new(name, busiest_line(run)?.parts.iter().map(place).collect()))
    };
    let lines: Vec<Series> = runs.iter().filter_map(line).collect();
    let y = Axis::new("queue", Unit::Bytes);
    let chart = Chart::over_time("Queue of the link by congestion control", y, lines);
    (!chart.is_empty()).then(|| Chart { group: Some(GROUP.to_owned()), ..chart })
}

fn busiest(run: &Run) -> Option<&TcpFlow> {
    let hosts = run.observe.iter().flat_map(|observe| &observe.hosts);
    let flows = hosts.filter_map(|host| host.tcp.as_ref()).flat_map(|tcp| &tcp.flows);
    flows.filter(|flow| flow.samples.len() > 1).max_by_key(|flow| flow.bytes_acked)
}

fn line(figure: &Figure, flow: &TcpFlow) -> Vec<Sample> {
    let rtts = flow.samples.iter().flat_map(|of| [Some(of.rtt_us), of.min_rtt_us]);
    // 0 is the RTT of a flow that has had none.
    let lowest = rtts.flatten().filter(|rtt| *rtt > 0).min().unwrap_or(0);
    let place = |of: &TcpSample| Some(Sample { x: of.seconds * 1e6, y: (figure.of)(of, lowest)? });
    flow.samples.iter().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use wirecost_model::observe::{HostObservation, TcpSection};
    use wirecost_model::run::Observe;

    use super::*;

    fn flow(bytes_acked: u64, rtts_us: &[u32]) -> TcpFlow {
        let sample = |(second, rtt_us): (usize, &u32)| TcpSample {
            seconds: second as f64,
            cwnd_segments: 10 * (second as u32 + 1),
            slow_start_threshold_segments: None,
            in_flight_segments: 5,
            rtt_us: *rtt_us,
            min_rtt_us: None,
            pacing_bits_per_second: None,
            delivery_bits_per_second: (second > 0).then_some(1e9),
            send_window_bytes: None,
            retransmitted_segments: 0,
            congestion_state: None,
            busy_ms: None,
            receive_window_limited_ms: None,
            send_buffer_limited_ms: None,
        };
        TcpFlow {
            local: "198.18.0.1:1".to_owned(),
            remote: "198.18.0.2:2".to_owned(),
            congestion_control: None,
            bytes_acked,
            bytes_received: 0,
            retransmitted_segments: 0,
            samples: rtts_us.iter().enumerate().map(sample).collect(),
        }
    }

    fn run(flows: Vec<TcpFlow>) -> Run {
        let tcp = TcpSection { flows, ..TcpSection::default() };
        let hosts = vec![HostObservation { tcp: Some(tcp), ..HostObservation::default() }];
        let observe = Some(Observe { hosts, ..Observe::default() });
        Run { observe, ..Run::empty("@stream", "epoll", "0.1.0", 0) }
    }

    #[test]
    fn the_flow_that_sent_most_stands_for_its_congestion_control() {
        let small = flow(7, &[900, 900, 900]);
        let runs = [
            ("bic".to_owned(), run(vec![small.clone(), flow(100, &[250, 200, 270])])),
            ("reno".to_owned(), run(vec![flow(50, &[300, 200]), small])),
        ];
        let charts = beside(&runs).unwrap();
        let ys = |chart: usize, line: usize| -> Vec<f64> {
            charts[chart].series[line].samples.iter().map(|of| of.y).collect()
        };
        assert_eq!(charts[0].series[0].name, "bic");
        assert_eq!((ys(0, 0), ys(0, 1)), (vec![10.0, 20.0, 30.0], vec![10.0, 20.0]));
        assert_eq!(ys(1, 1), [300.0, 200.0]);
        assert_eq!((ys(2, 0), ys(2, 1)), (vec![50.0, 0.0, 70.0], vec![100.0, 0.0]));
        // What is unknown is left out.
        assert_eq!(ys(3, 0), [1e9, 1e9]);
        assert_eq!(charts[3].series[1].samples[0].x, 1e6);
        // One cursor for all.
        assert!(charts.iter().all(|chart| chart.group == charts[0].group));
    }

    #[test]
    fn one_congestion_control_is_beside_no_other() {
        let runs =
            [("bic".to_owned(), run(vec![flow(1, &[1, 2])])), ("reno".to_owned(), run(vec![]))];
        assert!(beside(&runs).unwrap_err().contains("--observe tcp"));
    }
}
