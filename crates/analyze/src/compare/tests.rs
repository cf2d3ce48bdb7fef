use fastrand::Rng;
use wirecost_model::comparison::DifferenceKind;
use wirecost_model::environment::{Device, Environment};
use wirecost_model::run::{HostRow, Transactions, WindowKind};
use wirecost_model::study::StudyRunRef;
use wirecost_model::warning::{EmulatedCpu, Entry, Warning};

use super::*;
use crate::fixtures;
use crate::statistics::bootstrap::normal;

const GBIT: f64 = 1e9;

fn run(connections: u32, repeat: u32, bits_per_second: f64) -> Run {
    let mut run = Run::empty("@stream", "epoll", "0.1.0", 0);
    let axes = vec![Value::new("connections", &connections.to_string())];
    run.study = Some(StudyRunRef {
        study: "one".to_owned(),
        point: Point { axes: axes.clone(), settings: axes },
        place: connections,
        repeat,
        order: 1,
        search: None,
    });
    run.window = Some(fixtures::window(1.0));
    run.throughput = Some(fixtures::throughput(bits_per_second, 1));
    run
}

fn subject(name: &str, runs: impl IntoIterator<Item = Run>) -> Subject {
    let runs = runs.into_iter().enumerate().map(|(number, run)| (number.to_string(), run));
    Subject {
        name: name.to_owned(),
        measured: Measurements::of(runs),
        study_keys: Some(BTreeMap::new()),
        ..Subject::default()
    }
}

/// A study with the mean of each point's throughput times `factor`, and 2% noise.
fn study(seed: u64, points: u32, repeats: u32, factor: f64) -> Subject {
    let mut random = Rng::with_seed(seed);
    let mut runs = Vec::new();
    for point in 1..=points {
        for repeat in 1..=repeats {
            let noise = 1.0 + 0.02 * normal(&mut random);
            runs.push(run(point, repeat, f64::from(point) * GBIT * factor * noise));
        }
    }
    subject("study", runs)
}

/// Runs of one point that are exactly so.
fn exactly(values: &[f64]) -> Subject {
    subject("exact", values.iter().zip(1..).map(|(value, repeat)| run(1, repeat, value * GBIT)))
}

fn options(threshold: f64, metrics: &[&str]) -> Options {
    let metrics = metrics.iter().map(|name| metrics::find(name).unwrap()).collect();
    Options { threshold, metrics }
}

fn compared(a: &Subject, b: &Subject) -> Comparison {
    compare(a, b, &options(0.05, &[]), "0.1.0").unwrap()
}

#[track_caller]
fn refusal(a: &Subject, b: &Subject) -> String {
    compare(a, b, &options(0.05, &[]), "0.1.0").unwrap_err().to_string()
}

#[test]
fn a_known_ratio_is_found_at_every_point() {
    let comparison = compared(&study(1, 10, 5, 1.0), &study(2, 10, 5, 0.8));
    assert_eq!(comparison.status, Status::Failed);
    assert_eq!(
        comparison.error.as_deref(),
        Some("10 figures are significantly worse by more than 5%")
    );
    assert_eq!((comparison.tests, comparison.count(Verdict::Worse)), (10, 10));
    for (_, figure) in comparison.figures() {
        assert!((figure.ratio.unwrap() - 0.8).abs() < 0.05, "{figure:?}");
        assert!(figure.interval.unwrap().1 < 0.95);
    }
    let comparison = compared(&study(1, 10, 5, 1.0), &study(2, 10, 5, 1.25));
    assert_eq!((comparison.status, comparison.count(Verdict::Better)), (Status::Ok, 10));
}

#[test]
fn a_study_is_not_different_from_itself() {
    let a = study(1, 30, 3, 1.0);
    let comparison = compared(&a, &a);
    assert_eq!((comparison.status, comparison.error.clone()), (Status::Ok, None));
    assert_eq!(comparison.count(Verdict::Same), 30);
    assert!(comparison.figures().all(|(_, figure)| figure.ratio == Some(1.0)));
    assert!(comparison.differences.is_empty());
}

#[test]
fn equal_studies_differ_at_the_nominal_rate() {
    let mut alarms = 0;
    for seed in 0..400 {
        let (a, b) = (study(2 * seed + 1, 8, 3, 1.0), study(2 * seed + 2, 8, 3, 1.0));
        let comparison = compared(&a, &b);
        let overall = comparison.overall[0].verdict != Verdict::Same;
        alarms += u32::from(comparison.count(Verdict::Same) != 8 || overall);
    }
    // 20 of 400 would be 5%, and three standard deviations of that are 13.
    assert!(alarms <= 33, "{alarms}");
}

#[test]
fn all_intervals_together_contain_the_ratios() {
    let (mut missed, mut confidence) = (0, 0.0);
    for seed in 0..200 {
        let comparison = compared(&study(2 * seed + 1, 8, 3, 1.0), &study(2 * seed + 2, 8, 3, 1.1));
        let contains = |(low, high): (f64, f64)| low <= 1.1 && 1.1 <= high;
        let at_points = comparison.figures().all(|(_, f)| contains(f.interval.unwrap()));
        missed += u32::from(!at_points || !contains(comparison.overall[0].interval));
        confidence = comparison.points[0].figures[0].interval_confidence.unwrap();
        assert_eq!(comparison.overall[0].points, 8);
    }
    assert!((0.975..=1.0).contains(&confidence), "{confidence}");
    // 10 of 200 would be 5%, and three standard deviations of that are 9.
    assert!(missed <= 19, "{missed}");
}

#[test]
fn intervals_agree_with_verdicts_and_with_what_is_possible() {
    let mut seen = [0, 0];
    for seed in 0..60 {
        let factor = [1.0, 0.97, 0.93][seed as usize % 3];
        let (a, b) = (study(2 * seed + 1, 6, 3, 1.0), study(2 * seed + 2, 6, 3, factor));
        let comparison = compare(&a, &b, &options(0.0, &["throughput"]), "0.1.0").unwrap();
        let figures = comparison.figures().map(|(_, f)| (f.interval.unwrap(), f.verdict));
        let overall = comparison.overall.iter().map(|f| (f.interval, f.verdict));
        for ((low, high), verdict) in figures.chain(overall) {
            assert!(low > 0.0 && low <= high, "{low} {high}");
            let expected = match (low > 1.0, high < 1.0) {
                (true, _) => Verdict::Better,
                (_, true) => Verdict::Worse,
                _ => Verdict::Same,
            };
            assert_eq!(verdict, expected, "{low} {high}");
            seen[usize::from(verdict == Verdict::Same)] += 1;
        }
    }
    assert!(seen[0] > 50 && seen[1] > 50, "{seen:?}");
    // Runs that vary so much that the mean less its error is negative.
    let comparison = compared(&exactly(&[1.0, 60.0]), &exactly(&[2.0, 40.0]));
    let figure = &comparison.points[0].figures[0];
    assert!(figure.interval.unwrap().0 > 0.0);
    assert!(figure.a.as_ref().unwrap().interval.unwrap().0 >= 0.0);
}

#[test]
fn a_loss_of_half_in_very_noisy_runs_is_found() {
    let a = exactly(&[24.0, 40.0, 31.0, 27.0, 38.0, 25.0, 33.0, 29.0, 36.0]);
    let b = exactly(&[8.0, 19.0, 12.0, 9.0, 17.0, 14.0, 8.5, 16.0, 11.0]);
    assert_eq!(compared(&a, &b).count(Verdict::Worse), 1);
}

#[test]
fn a_change_of_all_points_is_worse_over_all_points_where_no_single_one_is() {
    let side = |factor: f64| {
        let values = [95.0, 100.0, 105.5];
        let runs = (1..=4).flat_map(|point| {
            (1..=3)
                .map(move |repeat| run(point, repeat, values[repeat as usize - 1] * factor * GBIT))
        });
        subject("study", runs)
    };
    let comparison = compared(&side(1.0), &side(0.91));
    assert_eq!((comparison.count(Verdict::Same), comparison.tests), (4, 4));
    let overall = &comparison.overall[0];
    assert_eq!((overall.verdict, overall.points), (Verdict::Worse, 4));
    assert!((overall.ratio - 0.91).abs() < 1e-9 && overall.interval.1 < 1.0, "{overall:?}");
    assert_eq!(comparison.status, Status::Failed);
    assert_eq!(
        comparison.error.as_deref(),
        Some("throughput over all points is significantly worse by more than 5%")
    );
    let of = &comparison.sensitivity[0];
    assert!(of.overall.unwrap() < of.at_points.0 && of.at_points.0 <= of.at_points.1, "{of:?}");
    assert!(of.runs_for_5_percent_overall.unwrap() > 3, "{of:?}");
    assert!(of.runs_for_5_percent_at_each_point > of.runs_for_5_percent_overall, "{of:?}");
}

#[test]
fn the_smallest_change_found_is_found_that_often() {
    let (mut found, mut promised) = (0, 0.0);
    for seed in 0..200 {
        let a = study(2 * seed + 1, 6, 5, 1.0);
        let comparison = compared(&a, &study(2 * seed + 2, 6, 5, 1.0));
        promised += comparison.sensitivity[0].overall.unwrap() / 200.0;
    }
    for seed in 200..400 {
        let a = study(2 * seed + 1, 6, 5, 1.0);
        let b = study(2 * seed + 2, 6, 5, 1.0 + promised);
        found += u32::from(compared(&a, &b).overall[0].p_value_corrected < LEVEL);
    }
    // 160 would be 80%; the true noise is between those of single studies.
    assert!((140..=185).contains(&found), "{found} of {promised}");
}

#[test]
fn a_difference_equal_to_the_threshold_does_not_count() {
    for (b, verdict) in [
        (95.0, Verdict::Different),
        (94.9, Verdict::Worse),
        (105.0, Verdict::Different),
        (105.1, Verdict::Better),
        (100.0, Verdict::Same),
    ] {
        let comparison = compared(&exactly(&[100.0, 100.0]), &exactly(&[b, b]));
        assert_eq!(comparison.points[0].figures[0].verdict, verdict, "{b}");
    }
    let (a, b) = (exactly(&[100.0, 100.0]), exactly(&[99.9, 99.9]));
    let comparison = compare(&a, &b, &options(0.0, &["throughput"]), "0.1.0").unwrap();
    assert_eq!(comparison.status, Status::Failed);
}

#[test]
fn a_difference_within_the_noise_is_not_significant() {
    let comparison = compared(&exactly(&[60.0, 140.0, 100.0]), &exactly(&[40.0, 120.0, 80.0]));
    let figure = &comparison.points[0].figures[0];
    assert_eq!(figure.verdict, Verdict::Same);
    // (40 * 120 * 80 / (60 * 140 * 100))^(1/3)
    assert!((figure.ratio.unwrap() - 0.7703).abs() < 1e-4, "{figure:?}");
}

#[test]
fn one_run_per_side_has_no_verdict() {
    for (a, b, wanted) in [
        (&[100.0][..], &[50.0][..], "each side has one run"),
        (&[100.0], &[50.0, 50.1], "B"),
        (&[100.0, 100.1], &[50.0], "B has one run"),
    ] {
        let comparison = compared(&exactly(a), &exactly(b));
        let figure = &comparison.points[0].figures[0];
        assert_eq!((comparison.status, figure.verdict), (Status::Ok, Verdict::Unknown));
        assert_eq!((figure.interval, figure.p_value_corrected), (None, None));
        assert!((figure.ratio.unwrap() - 0.5).abs() < 0.01);
        let reason = figure.reason.as_deref().unwrap();
        assert!(
            reason.starts_with(if wanted == "B" { "A has one run" } else { wanted }),
            "{reason}"
        );
    }
}

#[test]
fn the_metric_decides_which_direction_is_better() {
    let cost = |values: [f64; 2]| {
        let mut all = Vec::new();
        for (value, repeat) in values.into_iter().zip(1..) {
            let mut run = run(1, repeat, GBIT);
            run.hosts.push(host());
            run.machines.push(fixtures::machine("master", value));
            all.push(run);
        }
        subject("cost", all)
    };
    let (cheap, dear) = (cost([100.0, 101.0]), cost([200.0, 201.0]));
    let selector = options(0.05, &["cycles_per_kbyte"]);
    let comparison = compare(&cheap, &dear, &selector, "0.1.0").unwrap();
    assert_eq!(comparison.count(Verdict::Worse), 1);
    let comparison = compare(&dear, &cheap, &selector, "0.1.0").unwrap();
    assert_eq!(comparison.count(Verdict::Better), 1);
    // Nobody asked: cost is among what is looked at.
    let names: Vec<String> =
        compared(&cheap, &dear).figures().map(|f| f.1.metric.clone()).collect();
    assert_eq!(names, ["throughput", "cycles_per_kbyte"]);

    let mut other = dear.clone();
    for run in &mut other.measured.points[0].runs {
        run.machines[0].cycles_source = Some("pmu".to_owned());
    }
    let comparison = compared(&cheap, &other);
    let figure = &comparison.points[0].figures[1];
    assert_eq!((figure.verdict, figure.ratio), (Verdict::Unknown, None));
    assert!(figure.reason.as_deref().unwrap().contains("by tsc-exact, B by pmu"));
    let refused = compare(&cheap, &other, &selector, "0.1.0").unwrap_err().to_string();
    assert!(refused.contains("by tsc-exact, B by pmu"), "{refused}");
}

fn host() -> HostRow {
    HostRow { cycles_reason: Some("shared".to_owned()), ..fixtures::host("master") }
}

#[test]
fn points_of_one_side_only_are_named() {
    let a = subject("a", [run(1, 1, 1.0), run(1, 2, 1.0), run(2, 1, 1.0)]);
    let b = subject("b", [run(1, 1, 1.0), run(1, 2, 1.0), run(3, 1, 1.0)]);
    let comparison = compared(&a, &b);
    let names = |points: &[Point]| points.iter().map(Point::to_string).collect::<Vec<_>>();
    assert_eq!(names(&comparison.only_in_a), ["connections=2"]);
    assert_eq!(names(&comparison.only_in_b), ["connections=3"]);
    assert_eq!(comparison.points.len(), 1);
}

#[test]
fn incomparable_sides_are_refused_with_the_reason() {
    let a = exactly(&[1.0, 1.0]);
    let other_point = subject("b", [run(7, 1, 1.0)]);
    assert_eq!(
        refusal(&a, &other_point),
        "exact and b have no point in common: exact has connections=1, b has connections=7"
    );

    let change = |change: fn(&mut Run)| {
        let mut runs: Vec<Run> = (1..=2).map(|repeat| run(1, repeat, 1.0)).collect();
        runs.iter_mut().for_each(change);
        subject("b", runs)
    };
    let iterations = change(|run| {
        run.window.as_mut().unwrap().kind = WindowKind::Iterations;
    });
    assert!(refusal(&a, &iterations).contains("a number of iterations"));
    let profile = change(|run| run.profile = "@rr".to_owned());
    assert!(refusal(&a, &profile).contains("A ran profile @stream, B @rr"));
    let invalid = change(|run| {
        run.status = Status::Invalid;
        run.error = Some("counters were lost".to_owned());
    });
    assert_eq!(refusal(&a, &invalid), "b has no run that counts: counters were lost");
    let nothing = change(|run| run.throughput = None);
    assert!(refusal(&a, &nothing).contains("no figure was measured in both"));
    assert!(refusal(&a, &subject("b", [])).contains("b has no run that counts"));

    let with_text = |text: &str| Subject {
        profiles: vec![("@stream".to_owned(), text.to_owned())],
        ..exactly(&[1.0, 1.0])
    };
    assert!(refusal(&with_text("one"), &with_text("two")).contains("not the same text"));
    assert_eq!(compared(&with_text("one"), &with_text("one")).points.len(), 1);
}

/// Whichever side they were on: half the rate of an emulator is no regression.
#[test]
fn points_on_emulated_cpus_are_left_out_and_named() {
    let mut emulated = run(2, 1, 0.5);
    emulated.warnings.push(Entry::from(&Warning::from(EmulatedCpu { host: "h1".to_owned() })));
    let real = || subject("a", [run(1, 1, 1.0), run(2, 1, 1.0)]);
    let other = || subject("b", [run(1, 1, 1.0), emulated.clone()]);
    for (a, b, reason) in [
        (real(), other(), "software emulated the CPUs of B (b)"),
        (other(), real(), "software emulated the CPUs of A (b)"),
    ] {
        let comparison = compared(&a, &b);
        assert_eq!(comparison.points.len(), 1);
        assert_eq!(comparison.not_compared[0].point.to_string(), "connections=2");
        assert_eq!(comparison.not_compared[0].reason, reason);
    }
    let alone = || subject("c", [emulated.clone()]);
    assert!(refusal(&alone(), &alone()).contains("software emulated the CPUs"));
}

#[test]
fn a_point_invalid_on_one_side_is_left_out_and_named() {
    let mut bad = run(2, 1, 1.0);
    bad.status = Status::Invalid;
    bad.error = Some("counters were lost".to_owned());
    let a = subject("a", [run(1, 1, 1.0), run(2, 1, 1.0)]);
    let comparison = compared(&a, &subject("b", [run(1, 1, 1.0), bad]));
    assert_eq!(comparison.points.len(), 1);
    let left_out = &comparison.not_compared[0];
    assert_eq!(left_out.point.to_string(), "connections=2");
    assert_eq!(left_out.reason, "B (b) is not valid there: counters were lost");
}

#[test]
fn two_named_runs_are_compared_whatever_their_points() {
    let single = |run| Subject { single: true, ..subject("r", [run]) };
    let comparison = compared(&single(run(1, 1, 1.0)), &single(run(7, 1, 2.0)));
    assert_eq!(comparison.points[0].point.to_string(), "all");
    assert_eq!(comparison.points[0].figures[0].ratio, Some(2.0));
}

#[test]
fn host_differences_are_grouped_and_merged_over_hosts() {
    let hosts = |change: fn(&mut Environment)| {
        let mut environment = Environment::default();
        environment.kernel.release = Some("6.18".to_owned());
        environment.cpu.load = Some(0.5);
        environment.cpu.governors = Some(vec!["performance".to_owned()]);
        environment.cpu.mitigations =
            Some([("meltdown".to_owned(), "Not affected".to_owned())].into());
        environment.sysctls.insert("net.ipv4.tcp_sack".to_owned(), Some("1".to_owned()));
        environment.devices = Some(vec![Device {
            name: "eth0".to_owned(),
            up: true,
            driver: Some("mlx5".to_owned()),
            features: Some([("tx-tcp-segmentation".to_owned(), true)].into()),
            ..Device::default()
        }]);
        change(&mut environment);
        let both = ["master", "peer"].map(|name| (name.to_owned(), environment.clone()));
        Subject { hosts: vec![both.into()], ..exactly(&[1.0, 1.0]) }
    };
    let a = hosts(|_| {});
    let b = hosts(|environment| {
        environment.kernel.release = Some("6.12".to_owned());
        environment.cpu.load = Some(7.5);
        environment.cpu.governors = Some(vec!["powersave".to_owned()]);
        environment.cpu.mitigations =
            Some([("meltdown".to_owned(), "Mitigation: PTI".to_owned())].into());
        environment.sysctls.insert("net.ipv4.tcp_sack".to_owned(), Some("0".to_owned()));
        let device = &mut environment.devices.as_mut().unwrap()[0];
        device.driver = Some("mlx4".to_owned());
        device.features.as_mut().unwrap().insert("tx-tcp-segmentation".to_owned(), false);
    });
    let told: Vec<(DifferenceKind, String, Option<String>, Option<String>)> = compared(&a, &b)
        .differences
        .into_iter()
        .inspect(|difference| assert_eq!(difference.hosts, ["master", "peer"]))
        .map(|difference| (difference.kind, difference.what, difference.a, difference.b))
        .collect();
    let row = |kind, what: &str, a: &str, b: &str| {
        (kind, what.to_owned(), Some(a.to_owned()), Some(b.to_owned()))
    };
    assert_eq!(
        told,
        [
            row(DifferenceKind::Kernel, "release", "6.18", "6.12"),
            row(DifferenceKind::Sysctl, "net.ipv4.tcp_sack", "1", "0"),
            row(DifferenceKind::Offload, "eth0 tx-tcp-segmentation", "on", "off"),
            row(DifferenceKind::Mitigation, "meltdown", "Not affected", "Mitigation: PTI"),
            row(DifferenceKind::Frequency, "governors", "performance", "powersave"),
            row(DifferenceKind::Device, "eth0 driver", "mlx5", "mlx4"),
        ]
    );
    // A document alone knows less, which is said, and is not a difference of all that it lacks.
    let alone = compared(&a, &exactly(&[1.0, 1.0]));
    assert!(alone.differences.is_empty(), "{:?}", alone.differences);
    assert!(alone.unknown[0].contains("B (exact) has no hosts.json"));
}

#[test]
fn versions_and_engines_are_differences() {
    let mut b = exactly(&[1.0, 1.0]);
    for run in &mut b.measured.points[0].runs {
        run.version = "0.2.0".to_owned();
        run.engine = "io_uring".to_owned();
    }
    let comparison = compared(&exactly(&[1.0, 1.0]), &b);
    let told: Vec<&str> = comparison.differences.iter().map(|d| d.what.as_str()).collect();
    assert_eq!(told, ["version", "engine"]);
}

#[test]
fn settings_of_runs_that_differ_are_named() {
    let with = |options: Option<&[(&str, &str)]>, effective: &str| {
        let mut subject = exactly(&[1.0, 1.0]);
        for run in &mut subject.measured.points[0].runs {
            let values = |options: &[(&str, &str)]| {
                options.iter().map(|(name, value)| Value::new(name, value)).collect()
            };
            run.options = options.map(values);
            run.settings = vec![wirecost_model::measure::Setting {
                name: "wndsz.send".to_owned(),
                host: "server".to_owned(),
                requested: "64k".to_owned(),
                effective: effective.to_owned(),
                previous: None,
            }];
        }
        subject
    };
    let a = with(Some(&[("duration", "2s"), ("connections", "4"), ("engine", "epoll")]), "64k");
    let b = with(Some(&[("duration", "2s"), ("tos", "8"), ("engine", "epoll")]), "128k");
    let told = |a: &Subject, b: &Subject| {
        let comparison = compared(a, b);
        let of = comparison.differences.into_iter();
        let told: Vec<_> = of.map(|d| (d.what, d.a.unwrap(), d.b.unwrap())).collect();
        (told, comparison.unknown)
    };
    let line = |what: &str, a: &str, b: &str| (what.to_owned(), a.to_owned(), b.to_owned());
    let (differences, unknown) = told(&a, &b);
    assert_eq!(
        differences,
        [
            line("connections", "4", "not set"),
            line("tos", "not set", "8"),
            line("wndsz.send in effect", "64k", "128k"),
        ]
    );
    assert!(!unknown.iter().any(|text| text.contains("earlier version")), "{unknown:?}");
    // A record that does not say what was set is not one in which nothing was.
    let (differences, unknown) = told(&a, &with(None, "64k"));
    assert_eq!(differences, []);
    assert!(unknown.iter().any(|text| text.contains("B (exact)")), "{unknown:?}");
}

#[test]
fn settings_of_the_studies_that_differ_are_named() {
    let with = |keys: &[(&str, &str)]| {
        let keys = keys.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Subject { study_keys: Some(keys.collect()), ..exactly(&[1.0, 1.0]) }
    };
    let a = with(&[("title", "one"), ("set.option.wndsz", "\"64k\""), ("repeat.times", "3")]);
    let b = with(&[
        ("title", "two"),
        ("set.option.wndsz", "\"1m\""),
        ("set.tos", "8"),
        ("repeat.times", "3"),
    ]);
    let comparison = compared(&a, &b);
    let told: Vec<_> = comparison
        .differences
        .iter()
        .map(|d| (d.kind, d.what.as_str(), d.a.as_deref().unwrap(), d.b.as_deref().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (DifferenceKind::Study, "set.option.wndsz", "\"64k\"", "\"1m\""),
            (DifferenceKind::Study, "set.tos", "not set", "8"),
        ]
    );
    let without = Subject { study_keys: None, ..a.clone() };
    let comparison = compared(&a, &without);
    assert!(comparison.unknown.iter().any(|text| text.contains("no readable study.toml")));
}

#[test]
fn a_cost_from_zero_is_worse() {
    let counts = |values: [u64; 2]| {
        let mut all = Vec::new();
        for (value, repeat) in values.into_iter().zip(1..) {
            let mut run = run(1, repeat, GBIT);
            run.tcp = Some(wirecost_model::run::Tcp {
                retransmits: Some(value),
                segments_sent: None,
                out_of_order: None,
                closed_unread: None,
                rtt_us: None,
                rtt_us_min: None,
                rtt_us_max: None,
                rtt_samples: 0,
            });
            run.transactions = Some(Transactions { count: 1, per_second: 1.0 });
            all.push(run);
        }
        subject("counts", all)
    };
    let selector = options(0.05, &["retransmits", "transactions"]);
    let comparison = compare(&counts([0, 0]), &counts([7, 7]), &selector, "0.1.0").unwrap();
    let figure = &comparison.points[0].figures[0];
    assert_eq!((figure.verdict, figure.ratio), (Verdict::Worse, None));
    assert!(figure.reason.as_deref().unwrap().contains("A is 0"));
}

#[test]
fn hosts_with_different_names_are_matched_by_role() {
    let named = |name: &str, kernel: &str| {
        let mut subject = exactly(&[1.0, 1.0]);
        for run in &mut subject.measured.points[0].runs {
            run.hosts = vec![HostRow { name: name.to_owned(), ..host() }];
        }
        let mut environment = Environment::default();
        environment.kernel.release = Some(kernel.to_owned());
        environment.kernel.version = Some("#1".to_owned());
        Subject { hosts: vec![[(name.to_owned(), environment)].into()], ..subject }
    };
    let differences = compared(&named("h1", "6.18"), &named("client", "6.12")).differences;
    let told: Vec<(&str, Vec<String>)> =
        differences.iter().map(|d| (d.what.as_str(), d.hosts.clone())).collect();
    assert_eq!(told, [("hosts", vec![]), ("release", vec!["the master".to_owned()])]);
}
