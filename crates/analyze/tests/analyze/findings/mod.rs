//! Findings of studies whose answer is known, and of those in which nothing has an effect.

mod power;

use fastrand::Rng;
use wirecost_analyze::findings::simulation::{Figures, study};
use wirecost_analyze::findings::{ALL, Finding, UNCHANGED, UNTESTED, findings};
use wirecost_analyze::measured::Measurements;

fn of_kind<'a>(found: &'a [Finding], kind: &str) -> Vec<&'a Finding> {
    found.iter().filter(|finding| finding.kind == kind).collect()
}

/// The only finding of a kind.
fn only<'a>(found: &'a [Finding], kind: &str) -> &'a Finding {
    match of_kind(found, kind)[..] {
        [one] => one,
        _ => panic!("{kind}: {found:#?}"),
    }
}

fn interval(finding: &Finding) -> (f64, f64) {
    finding.effect.as_ref().unwrap().interval.unwrap()
}

/// Those that state an effect.
fn effects(found: &[Finding]) -> Vec<&Finding> {
    let is_answer = |kind: &str| [UNCHANGED, UNTESTED].contains(&kind);
    found.iter().filter(|finding| !is_answer(&finding.kind)).collect()
}

const CONNECTIONS: &[&str] = &["1", "4", "8", "32", "100", "400", "1000", "2000", "4000", "6000"];

/// Mb/s and cycles/KByte of Sun's 16 cores on a link of 10 Gb/s, by size of a write.
const TCP_TRANSMIT: [(&str, [f64; 10], [f64; 10]); 2] = [
    (
        "64k",
        [928.11, 3710.0, 7420.0, 9220.0, 9240.0, 8930.0, 8800.0, 7010.0, 6440.0, 6370.0],
        [11792.0, 3365.0, 2815.0, 2793.0, 3161.0, 8392.0, 8406.0, 12869.0, 14418.0, 17053.0],
    ),
    (
        "1k",
        [915.02, 3530.0, 5420.0, 5970.0, 5770.0, 5810.0, 4730.0, 3890.0, 3980.0, 3970.0],
        [13450.0, 19239.0, 20890.0, 18792.0, 21831.0, 24547.0, 31557.0, 38520.0, 40116.0, 40209.0],
    ),
];

fn tcp_transmit(repeats: u32, noise: f64, random: &mut Rng) -> Measurements {
    let axes = [("size", &["64k", "1k"][..]), ("connections", CONNECTIONS)];
    study(&axes, repeats, |point| {
        let (_, throughput, cycles) =
            TCP_TRANSMIT.iter().find(|(size, ..)| *size == point[0]).unwrap();
        let at = CONNECTIONS.iter().position(|c| *c == point[1]).unwrap();
        let figures = Figures {
            bits_per_second: throughput[at] * 1e6,
            cycles: [cycles[at], 3000.0],
            link: Some(10_000_000_000),
            ..Figures::default()
        };
        figures.noisy(noise, random)
    })
}

#[test]
fn what_the_first_table_of_this_kind_shows() {
    let mut random = Rng::with_seed(8);
    let mut table = |repeats, noise| tcp_transmit(repeats, noise, &mut random);
    let found = findings(&table(3, 0.005));
    let [large, small] = of_kind(&found, "saturation")[..] else { panic!("{found:#?}") };
    assert_eq!(
        large.sentence,
        "At size=64k, throughput grows up to 32 connections (95% interval 8 to 32), reaching 9.22 Gb/s; there the link of h1 \
         (92% of 10.0 Gb/s) and the link of h2 (92% of 10.0 Gb/s) were saturated; at 2000 \
         connections and beyond it is lower, down to 6.32 Gb/s."
    );
    assert!(
        small
            .sentence
            .starts_with("At size=1k, throughput grows up to 32 connections (95% interval 8 to ")
            && small.sentence.contains("; there no monitored resource was saturated; at 1000 "),
        "{small:?}"
    );
    let [large, small] = of_kind(&found, "cost")[..] else { panic!("{found:#?}") };
    assert!(
        large.sentence.starts_with("At size=64k, the sender's cycles/KByte fall by a factor of 4."),
        "{large:?}"
    );
    assert!(large.sentence.contains("connections and rise by a factor of 6."), "{large:?}");
    // It is as good at 8 connections as at 32, so the noise says where it turns.
    assert!(large.sentence.ends_with("to 6000 connections."), "{large:?}");
    assert!(small.sentence.ends_with("from 1 to 6000 connections."), "{small:?}");
    // What the links did is no law, and no end had full CPUs.
    assert!(of_kind(&found, "scalability").is_empty() && of_kind(&found, "ends").is_empty());

    // As it was published, each point once: less is sure, and no less true.
    let found = findings(&table(1, 0.0));
    assert!(of_kind(&found, "saturation").is_empty(), "{found:#?}");
    let [large, small] = of_kind(&found, "cost")[..] else { panic!("{found:#?}") };
    assert!(large.sentence.ends_with("from 32 to 6000 connections."), "{large:?}");
    assert!(large.evidence[0].contains("32: 2793, 100: 3161"), "{large:?}");
    assert!(small.sentence.ends_with("from 1 to 6000 connections."), "{small:?}");
}

/// Throughput, cost and latency where half of the points offer only a part of what saturates.
fn with_loads(random: &mut Rng) -> Measurements {
    let axes =
        [("connections", &["1", "8", "64", "512"][..]), ("load", &["max", "25%", "50%", "75%"])];
    study(&axes, 3, |point| {
        let at = ["1", "8", "64", "512"].iter().position(|n| *n == point[0]).unwrap();
        let share = [("max", 1.0), ("25%", 0.25), ("50%", 0.5), ("75%", 0.75)];
        let share = share.iter().find(|(load, _)| *load == point[1]).unwrap().1;
        // Idle time costs as much however little is sent.
        let cost = 1000.0 * (1.0 + 1.0 / share);
        let figures = Figures {
            bits_per_second: share * [1e9, 4e9, 4.1e9, 4e9][at],
            busy: [100.0 * share, 50.0 * share],
            cycles: [cost, cost],
            p99: 50.0 / (1.05 - share),
            ..Figures::default()
        };
        figures.noisy(0.01, random)
    })
}

#[test]
fn points_of_a_lower_load_change_no_finding_but_that_of_the_load() {
    let measured = with_loads(&mut Rng::with_seed(3));
    let found = findings(&measured);
    let (of_load, others): (Vec<&Finding>, Vec<&Finding>) =
        found.iter().partition(|finding| finding.axis.as_deref() == Some("load"));
    // Two ends at four numbers of connections, and the latency at each.
    assert_eq!(of_load.len(), 12, "{of_load:#?}");
    let (of_latency, of_cost): (Vec<&Finding>, Vec<&Finding>) =
        of_load.into_iter().partition(|finding| finding.kind == "latency");
    assert_eq!(of_latency.len(), 4, "{of_latency:#?}");
    for finding in of_latency {
        assert!(
            finding.sentence.contains("p99 latency rises by a factor of 1")
                && finding.sentence.ends_with("from load 25% to max."),
            "{finding:?}"
        );
    }
    for finding in of_cost {
        assert_eq!(finding.kind, "cost", "{finding:?}");
        assert!(
            finding.sentence.contains("cycles/KByte fall by a factor of 2.")
                && finding.sentence.ends_with("from load 25% to max."),
            "{finding:?}"
        );
    }
    let saturated = findings(&measured.saturated());
    let of_saturated: Vec<&Finding> = saturated.iter().collect();
    assert_eq!(others, of_saturated);
    assert!(!of_kind(&saturated, "saturation").is_empty(), "{saturated:#?}");
    assert!(saturated.iter().all(|finding| !finding.sentence.contains("load")));
}

#[test]
fn a_load_without_an_effect_has_an_answer() {
    let mut random = Rng::with_seed(4);
    let axes = [("load", &["1gbit", "2gbit", "3gbit"][..])];
    let measured = study(&axes, 3, |point| {
        let bits: f64 = point[0].trim_end_matches("gbit").parse().unwrap();
        Figures { bits_per_second: bits * 1e9, ..Figures::default() }.noisy(0.05, &mut random)
    });
    let found = findings(&measured);
    // Of what was set, throughput, it says nothing.
    let answer = only(&found, UNCHANGED);
    assert!(
        answer.sentence.starts_with("No significant effect of load on p99 latency;"),
        "{found:#?}"
    );
    assert_eq!(found.len(), 1, "{found:#?}");
}

fn http_get(random: &mut Rng) -> Measurements {
    // Sun's HTTP GET: Mb/s and percent of the CPUs that were idle.
    let numbers = ["1", "3", "10", "30", "100", "300", "1000", "2000", "3000"];
    let throughput = [413.0, 1180.0, 3631.86, 5790.68, 6577.13, 6537.30, 6629.40, 6652.14, 6673.01];
    let idle = [97.0, 92.0, 73.0, 21.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    study(&[("connections", &numbers)], 3, |point| {
        let at = numbers.iter().position(|number| *number == point[0]).unwrap();
        let figures = Figures { bits_per_second: throughput[at] * 1e6, ..Figures::default() };
        Figures { busy: [100.0 - idle[at], 40.0], ..figures.noisy(0.01, random) }
    })
}

#[test]
fn where_it_stops_growing_and_that_the_cpus_were_full() {
    let found = findings(&http_get(&mut Rng::with_seed(1)));
    let knee = only(&found, "saturation");
    assert!(
        knee.sentence.starts_with(
            "Throughput grows up to 100 connections (95% interval 30 to 100), reaching 6."
        ) && knee.sentence.ends_with("the CPUs of the sender (h1) were saturated (100% busy)."),
        "{knee:?}"
    );
    let (low, high) = interval(knee);
    assert_eq!((low, high), (30.0, 100.0));
    assert!(knee.p_value.unwrap() < 0.001, "{knee:?}");
    let end = only(&found, "ends");
    assert_eq!(
        end.sentence,
        "The CPUs of the sender (h1) are the bottleneck at 5 of 9 points: they were 100% busy, and \
         those of the receiver 40%."
    );
}

#[test]
fn hosts_that_share_cpus_have_those_of_the_machine() {
    let numbers = ["1", "2", "4", "8", "16", "32"];
    let mut random = Rng::with_seed(9);
    let measured = study(&[("connections", &numbers)], 3, |point| {
        let n: f64 = point[0].parse().unwrap();
        let full = if n >= 8.0 { 99.0 } else { 12.0 * n };
        let figures = Figures { bits_per_second: 1e9 * n.min(8.0), ..Figures::default() };
        Figures { busy: [full, full], ..figures.noisy(0.01, &mut random) }
    });
    let mut shared = with_machines(measured);
    for run in shared.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.machines.truncate(1);
        run.machines[0].hosts = vec!["h1".to_owned(), "h2".to_owned()];
        for (host, other) in run.hosts.iter_mut().zip(["h2", "h1"]) {
            host.cpus = vec![0, 1];
            host.shares_machine_with = vec![other.to_owned()];
        }
    }
    let found = findings(&shared);
    let knee = only(&found, "saturation");
    assert!(
        knee.sentence
            .starts_with("Throughput grows up to 8 connections (95% interval 4 to 8), reaching")
            && knee
                .sentence
                .ends_with("; there the CPUs of the machine were saturated (99% busy)."),
        "{knee:?}"
    );
}

const POWERS: [&str; 9] = ["1", "2", "4", "8", "16", "32", "64", "128", "256"];

fn scalability(random: &mut Rng) -> Measurements {
    study(&[("connections", &POWERS)], 3, |point| {
        let n: f64 = point[0].parse().unwrap();
        let bits = 1e9 * n / (1.0 + 0.02 * (n - 1.0) + 1e-4 * n * (n - 1.0));
        Figures { bits_per_second: bits, ..Figures::default() }.noisy(0.03, random)
    })
}

#[test]
fn a_law_is_found_with_its_peak() {
    let mut random = Rng::with_seed(2);
    let law = &findings(&scalability(&mut random));
    let law = only(law, "scalability");
    assert!(law.sentence.contains("it peaks at ") && !law.sentence.contains("beyond"), "{law:?}");
    let (low, high) = interval(law);
    assert!(low < 2.0 && 2.0 < high && high < 3.0, "{law:?}");
    // A fall that no such law has.
    let measured = study(&[("connections", &POWERS)], 3, |point| {
        let n: f64 = point[0].parse().unwrap();
        let figures = Figures {
            bits_per_second: 1e9 * (n.ln() * 2.0).sin().abs() + 1e8,
            ..Figures::default()
        };
        figures.noisy(0.03, &mut random)
    });
    assert!(of_kind(&findings(&measured), "scalability").is_empty());
}

fn costs(random: &mut Rng) -> Measurements {
    let sizes = ["1k", "4k", "16k", "64k"];
    study(&[("size", &sizes)], 4, |point| {
        let at = sizes.iter().position(|size| *size == point[0]).unwrap();
        // The receiver's stays.
        let cycles = [8000.0 / 2f64.powi(at as i32), 3000.0];
        Figures { cycles, ..Figures::default() }.noisy(0.02, random)
    })
}

#[test]
fn a_cost_that_changes_is_told_with_its_factor() {
    let found = findings(&costs(&mut Rng::with_seed(3)));
    let cost = only(&found, "cost");
    assert!(cost.sentence.starts_with("The sender's cycles/KByte fall "), "{cost:?}");
    assert!(cost.sentence.ends_with("from size 1k to 64k."), "{cost:?}");
    let (low, high) = interval(cost);
    assert!(low < 0.125 && 0.125 < high && high - low < 0.03, "{cost:?}");
    assert_eq!(effects(&found).len(), 1, "{found:#?}");
}

fn full_receiver(random: &mut Rng) -> Measurements {
    study(&[("size", &["1k", "2k", "4k", "8k"])], 3, |_| {
        let figures = Figures { busy: [60.0, 99.0], ..Figures::default() };
        let noisy = figures.clone().noisy(0.03, random);
        Figures { busy: [noisy.busy[0], 99.0], ..noisy }
    })
}

#[test]
fn the_end_whose_cpus_are_full_is_told() {
    let found = findings(&full_receiver(&mut Rng::with_seed(4)));
    let end = only(&found, "ends");
    let begin = "The CPUs of the receiver (h2) are the bottleneck at 4 of 4 points";
    assert!(end.sentence.starts_with(begin), "{end:?}");
    let (low, high) = interval(end);
    assert!(low < 39.0 && 39.0 < high, "{end:?}");
}

/// The warning of a run beside which other programs used CPU time.
fn beside_other_programs(measured: &mut Measurements) {
    for run in measured.points.iter_mut().flat_map(|point| &mut point.runs) {
        let entry = wirecost_model::warning::Entry {
            code: "foreign-cpu".to_owned(),
            message: "other programs used half of the CPU time".to_owned(),
            brief: None,
        };
        run.warnings.push(entry);
    }
}

#[test]
fn cpus_that_other_programs_filled_are_no_bottleneck() {
    let mut measured = full_receiver(&mut Rng::with_seed(4));
    beside_other_programs(&mut measured);
    assert!(of_kind(&findings(&measured), "ends").is_empty());
}

#[test]
fn intervals_of_percentages_end_at_100() {
    let sizes = ["1k", "2k", "4k", "8k"];
    let mut runs = 0;
    let measured = study(&[("size", &sizes)], 4, |_| {
        runs += 1;
        let (share, busy) = if runs == 1 { (0.95, [96.0, 8.0]) } else { (1.0, [100.0, 0.0]) };
        Figures {
            bits_per_second: 1e9 * share,
            link: Some(1_000_000_000),
            busy,
            ..Figures::default()
        }
    });
    let found = findings(&measured);
    assert_eq!(interval(only(&found, "ends")).1, 100.0);
    let links = of_kind(&found, "links");
    assert!(links.len() == 2 && links.iter().all(|link| interval(link).1 == 100.0), "{links:?}");
}

fn grown_functions(random: &mut Rng) -> Measurements {
    study(&[("connections", &["100", "4000"])], 5, |point| {
        let (cycles, send, lock) =
            if point[0] == "100" { (3000.0, 0.30, 0.02) } else { (6000.0, 0.15, 0.09) };
        let figures = Figures {
            cycles: [cycles, 3000.0],
            // 900 cycles both times; 60, then 540.
            functions: vec![("tcp_sendmsg", send), ("lock_sock", lock), ("rare", 0.001)],
            ..Figures::default()
        };
        figures.noisy(0.03, random)
    })
}

#[test]
fn functions_that_grew_are_told_and_others_not() {
    let found = findings(&grown_functions(&mut Rng::with_seed(5)));
    let grown = only(&found, "functions");
    let begin = "From 100 to 4000 connections, these functions of the sender take more cycles/KByte: \
                 lock_sock ";
    assert!(grown.sentence.starts_with(begin), "{grown:?}");
    assert!(!grown.sentence.contains("tcp_sendmsg"), "{grown:?}");
    let (low, high) = interval(grown);
    assert!(low < 9.0 && 9.0 < high, "{grown:?}");
}

fn engines(random: &mut Rng) -> Measurements {
    let axes = [("engine", &["epoll", "io_uring", "threads"][..]), ("size", &["1k", "8k", "64k"])];
    let measured = study(&axes, 4, |point| {
        let cost = match point[0] {
            "io_uring" => 0.85,
            "threads" => 1.3,
            _ => 1.0,
        };
        Figures { cycles: [3000.0 * cost; 2], ..Figures::default() }.noisy(0.03, random)
    });
    // There is no machine that both hosts share, and so no cost of all together but by machine.
    with_machines(measured)
}

#[test]
fn the_best_choice_is_told_where_it_is_one() {
    let found = findings(&engines(&mut Rng::with_seed(6)));
    let choice = only(&found, "choices");
    assert!(
        choice.sentence.starts_with("With engine io_uring, cycles/KByte is 1")
            && choice.sentence.contains("% lower (")
            && choice.sentence.contains("than with epoll and 3")
            && choice.sentence.ends_with("than with threads."),
        "{choice:?}"
    );
    let (low, high) = interval(choice);
    assert!(low < 0.85 && 0.85 < high, "{choice:?}");
}

/// One engine has the shorter p99 with many connections, the other with one.
fn crossing(random: &mut Rng) -> Measurements {
    let axes = [("engine", &["epoll", "threads"][..]), ("connections", &["1", "100", "1000"])];
    study(&axes, 4, |point| {
        let p99 = match (point[0], point[1]) {
            ("epoll", "1") => 226.0,
            ("epoll", _) => 56.0,
            _ => 100.0,
        };
        Figures { p99, ..Figures::default() }.noisy(0.05, random)
    })
}

#[test]
fn a_choice_that_depends_on_the_point_names_both_directions() {
    let found = findings(&crossing(&mut Rng::with_seed(11)));
    let choice = only(&found, "choices");
    let begin = "The effect of engine on p99 latency depends on the point: with epoll compared with threads it is 4";
    assert!(choice.sentence.starts_with(begin), "{choice:?}");
    assert!(
        choice.sentence.contains("% lower (")
            && choice.sentence.contains(" at connections=100 and 4")
            && choice.sentence.contains(" at connections=1000, but 2.")
            && choice.sentence.ends_with(" at connections=1."),
        "{choice:?}"
    );
    assert_eq!(choice.metric.as_deref(), Some("latency.p99"));
    assert_eq!(choice.axis.as_deref(), Some("engine"));
}

#[test]
fn a_choice_that_matters_at_one_point_only_names_it() {
    let axes = [("option", &["off", "on"][..]), ("connections", &["1", "4", "16", "64", "256"])];
    let mut random = Rng::with_seed(14);
    let measured = study(&axes, 3, |point| {
        let p99 = match (point[0], point[1]) {
            ("on", "16") => 70.0,
            // As much more elsewhere as it is less there: over all points nothing changes.
            ("on", _) => 109.5,
            _ => 100.0,
        };
        Figures { p99, ..Figures::default() }.noisy(0.03, &mut random)
    });
    let found = findings(&measured);
    let choice = only(&found, "choices");
    let begin = "With option on, p99 latency is 29% lower (";
    let end =
        " at connections=16, compared with off; at the other points no significant difference.";
    assert!(choice.sentence.starts_with(begin) && choice.sentence.ends_with(end), "{choice:?}");
    assert_eq!(choice.evidence.len(), 5, "{choice:?}");
}

#[test]
fn points_that_do_not_show_an_overall_choice_are_named() {
    let axes = [("engine", &["epoll", "threads"][..]), ("connections", &["1", "100", "1000"])];
    let mut random = Rng::with_seed(12);
    let measured = study(&axes, 6, |point| {
        let p99 = match (point[0], point[1]) {
            ("epoll", "1") => 101.0,
            ("epoll", _) => 70.0,
            _ => 100.0,
        };
        Figures { p99, ..Figures::default() }.noisy(0.01, &mut random)
    });
    let found = findings(&measured);
    let choice = only(&found, "choices");
    // No point has the average.
    let end = "than with threads on average (at single points 1% higher to 30% lower) (opposite, but not \
               significantly, at connections=1).";
    assert!(choice.sentence.ends_with(end), "{choice:?}");
}

#[test]
fn a_single_pair_of_points_is_one() {
    let mut random = Rng::with_seed(24);
    let measured = study(&[("engine", &["epoll", "threads"])], 4, |point| {
        let p99 = if point[0] == "epoll" { 50.0 } else { 100.0 };
        Figures { p99, ..Figures::default() }.noisy(0.03, &mut random)
    });
    let found = findings(&measured);
    let choice = only(&found, "choices");
    assert_eq!(choice.evidence[0], "compared in 1 pair of points that differ only in engine");
}

fn full_link(random: &mut Rng) -> Measurements {
    study(&[("size", &["1k", "8k", "64k"])], 3, |point| {
        let share = if point[0] == "1k" { 0.70 } else { 0.97 };
        let figures = Figures {
            bits_per_second: share * 1e9,
            link: Some(1_000_000_000),
            ..Figures::default()
        };
        figures.noisy(0.005, random)
    })
}

#[test]
fn a_link_that_is_full_is_named() {
    let found = findings(&full_link(&mut Rng::with_seed(13)));
    let links = of_kind(&found, "links");
    assert_eq!(links.len(), 2, "{found:#?}");
    assert_eq!(
        links[0].sentence,
        "The link of h1 is the bottleneck at 2 of 3 points: payload uses 97% of 1.00 Gb/s."
    );
}

fn small_segments(random: &mut Rng) -> Measurements {
    let axes = [("case", &["few large", "many small"][..])];
    study(&axes, 4, |point| {
        let (segments, cycles, user) = match point[0] {
            "few large" => ([60_000.0, 7.6], 2800.0, 0.05),
            _ => ([8000.0, 2.1], 6000.0, 0.10),
        };
        let segments = Some(segments);
        Figures { segments, cycles: [cycles, 3000.0], user, ..Figures::default() }
            .noisy(0.03, random)
    })
}

#[test]
fn segments_and_acks_stand_beside_the_cost() {
    let found = findings(&small_segments(&mut Rng::with_seed(14)));
    let [sizes, acks] = of_kind(&found, "packets")[..] else { panic!("{found:#?}") };
    assert!(
        sizes.sentence.starts_with("From case few large to many small, the mean size of packets passed to the sender's device falls from 6")
            || sizes.sentence.starts_with("From case few large to many small, the mean size of packets passed to the sender's device falls from 5"),
        "{sizes:?}"
    );
    assert!(
        acks.sentence.contains("data segments per ACK that the sender receives falls from 7."),
        "{acks:?}"
    );
    assert!(acks.evidence[0].starts_with("the sender's cycles/KByte rise from "), "{acks:?}");
    let system = of_kind(&found, "cpu");
    assert!(
        system[0]
            .sentence
            .starts_with("Most of the sender's CPU time is system time, including interrupts: 9"),
        "{system:#?}"
    );
}

/// Most of the time may be that of other programs.
#[test]
fn runs_with_other_programs_do_not_tell_where_cpu_time_goes() {
    let mut measured = small_segments(&mut Rng::with_seed(14));
    beside_other_programs(&mut measured);
    assert!(of_kind(&findings(&measured), "cpu").is_empty());
}

#[test]
fn user_time_that_rises_with_small_writes_is_told() {
    let sizes = ["64", "512", "4k", "32k"];
    let mut random = Rng::with_seed(15);
    let measured = study(&[("size", &sizes)], 4, |point| {
        let at = sizes.iter().position(|size| *size == point[0]).unwrap();
        Figures { user: 0.4 / 2f64.powi(at as i32), ..Figures::default() }.noisy(0.02, &mut random)
    });
    let found = findings(&measured);
    let told = of_kind(&found, "cpu");
    let begin = "The sender's user share of busy CPU time falls by a factor of ";
    assert!(
        told.iter()
            .any(|f| f.sentence.starts_with(begin) && f.sentence.ends_with("from size 64 to 32k.")),
        "{told:#?}"
    );
}

/// CPUs that are full move as much less as a byte costs more.
fn full_cpus_by_size(random: &mut Rng) -> Measurements {
    let sizes = ["64", "256", "1k", "4k", "16k", "64k"];
    study(&[("size", &sizes)], 3, |point| {
        let at = sizes.iter().position(|size| *size == point[0]).unwrap() as i32;
        let cost = 20_000.0 / 1.8f64.powi(at);
        let figures =
            Figures { cycles: [cost, 3000.0], bits_per_second: 1e13 / cost, ..Figures::default() };
        figures.noisy(0.02, random)
    })
}

#[test]
fn throughput_that_follows_cost_is_told() {
    let found = findings(&full_cpus_by_size(&mut Rng::with_seed(16)));
    let follows = only(&found, "proportion");
    let begin = "Throughput is inversely proportional to the sender's cycles/KByte: at 19x the lowest cost, it is ";
    assert!(follows.sentence.starts_with(begin), "{follows:?}");
    let (low, high) = interval(follows);
    assert!(low < -0.95 && -1.05 < high, "{follows:?}");
}

#[test]
fn one_noisy_point_is_no_proportion() {
    const STUDIES: usize = 250;
    let sizes = ["1", "2", "4", "8", "16", "32", "64", "128"];
    let mut random = Rng::with_seed(41);
    let mut alarms = 0;
    for _ in 0..STUDIES {
        let measured = study(&[("size", &sizes)], 2, |point| {
            let noise = if point[0] == "8" { 0.5 } else { 0.03 };
            let figures = Figures::default().noisy(noise, &mut random);
            // The CPUs are full: what costs more moves as much less.
            let cycles = [3e12 / figures.bits_per_second; 2];
            Figures { cycles, ..figures }
        });
        alarms += of_kind(&findings(&measured), "proportion").len();
    }
    // An F test, which assumes that all points are as noisy, has 8%.
    assert!(alarms * 50 <= STUDIES, "{alarms} of {STUDIES}");
}

#[test]
fn growth_to_the_largest_load_is_told_as_such() {
    let numbers = ["1", "2", "4", "8"];
    let mut random = Rng::with_seed(17);
    let mut measured = |repeats| {
        study(&[("connections", &numbers)], repeats, |point| {
            let n: f64 = point[0].parse().unwrap();
            Figures { bits_per_second: 1e9 * n, ..Figures::default() }.noisy(0.02, &mut random)
        })
    };
    let found = findings(&measured(3));
    let growth = only(&found, "saturation");
    let begin = "Throughput still grows at 8 connections, the largest value measured, reaching 8.";
    let other = "Throughput still grows at 8 connections, the largest value measured, reaching 7.";
    assert!(growth.sentence.starts_with(begin) || growth.sentence.starts_with(other), "{growth:?}");
    assert!(of_kind(&findings(&measured(1)), "saturation").is_empty());
}

#[test]
fn latency_that_rises_along_an_axis_is_told() {
    let found = findings(&rising_latency(&mut Rng::with_seed(21)));
    let latency = only(&found, "latency");
    assert!(latency.sentence.starts_with("P99 latency rises by a factor of "), "{latency:?}");
    assert!(latency.sentence.ends_with("from 1 to 64 connections."), "{latency:?}");
    assert_eq!(latency.metric.as_deref(), Some("latency.p99"));
    let (low, high) = interval(latency);
    assert!(low < 64.0 && 64.0 < high, "{latency:?}");
    assert_eq!(found.len(), 1, "{found:#?}");
}

fn rising_latency(random: &mut Rng) -> Measurements {
    study(&[("connections", &["1", "4", "16", "64"])], 4, |point| {
        let n: f64 = point[0].parse().unwrap();
        Figures { p99: 20.0 * n, ..Figures::default() }.noisy(0.03, random)
    })
}

/// Saturation is where growth ends: of what never grows it has no sentence.
#[test]
fn throughput_that_only_falls_is_told() {
    let found = findings(&falling_throughput(&mut Rng::with_seed(22)));
    let fall = only(&found, "throughput");
    assert!(fall.sentence.starts_with("Throughput falls by a factor of 1."), "{fall:?}");
    assert!(fall.sentence.ends_with("from 1 to 64 connections."), "{fall:?}");
    let (low, high) = interval(fall);
    assert!(low < 0.57 && 0.57 < high, "{fall:?}");
    assert_eq!(found.len(), 1, "{found:#?}");
    // Where it does grow there is one sentence of it.
    let found = findings(&http_get(&mut Rng::with_seed(1)));
    assert!(of_kind(&found, "throughput").is_empty(), "{found:#?}");
}

fn falling_throughput(random: &mut Rng) -> Measurements {
    study(&[("connections", &["1", "4", "16", "64"])], 4, |point| {
        let n: f64 = point[0].parse().unwrap();
        let bits_per_second = 1e9 / (1.0 + n / 84.0);
        Figures { bits_per_second, ..Figures::default() }.noisy(0.02, random)
    })
}

/// What no kind tests along an axis is not named as without an effect.
#[test]
fn an_absence_of_effects_is_of_what_was_tested() {
    let mut random = Rng::with_seed(23);
    let sentence = |axis: (&str, &[&str]), random: &mut Rng| {
        let measured = study(&[axis], 3, |_| Figures::default().noisy(0.05, random));
        let found = findings(&measured);
        assert!(effects(&found).is_empty(), "{found:#?}");
        found.first().map(|finding| finding.sentence.split(';').next().unwrap().to_owned())
    };
    let no_effect = |of: &str| Some(format!("No significant effect of {of}"));
    let along = sentence(("connections", &["1", "8", "64"]), &mut random);
    assert_eq!(along, no_effect("connections on throughput or p99 latency"));
    // Which of these is the larger load differs from run to run.
    assert_eq!(sentence(("load", &["25%", "1gbit", "max"]), &mut random), None);
    assert_eq!(sentence(("load", &["25%", "50%"]), &mut random), None);
    // Of a study that has not come to its third value the two others are compared.
    let mut measured = study(&[("connections", &["1", "8", "64"])], 3, |point| {
        let p99 = if point[0] == "8" { 200.0 } else { 100.0 };
        Figures { p99, ..Figures::default() }.noisy(0.02, &mut random)
    });
    measured.points[2].runs.clear();
    let found = findings(&measured);
    assert!(only(&found, "choices").sentence.starts_with("With connections 1, p99 "), "{found:#?}");
    // A fall of 6% is too small for a sentence of its own, and is none of no effect.
    let measured = study(&[("connections", &["1", "8", "64"])], 5, |point| {
        let p99 = if point[0] == "64" { 106.0 } else { 100.0 };
        Figures { p99, ..Figures::default() }.noisy(0.003, &mut random)
    });
    let found = findings(&measured);
    let answer = only(&found, UNCHANGED);
    let begin = "No significant effect of connections on throughput; ";
    assert!(answer.sentence.starts_with(begin), "{found:#?}");
}

#[test]
fn an_axis_without_an_effect_is_answered() {
    let axes = [("engine", &["epoll", "threads"][..])];
    let mut random = Rng::with_seed(18);
    let mut measured =
        |repeats| study(&axes, repeats, |_| Figures::default().noisy(0.05, &mut random));
    let found = findings(&measured(3));
    let answer = only(&found, UNCHANGED);
    let begin = "No significant effect of engine on throughput or p99 latency; to detect a change of 5% with 80% power takes about ";
    assert!(answer.sentence.starts_with(begin), "{answer:?}");
    let number: u64 = answer.sentence[begin.len()..].split(' ').next().unwrap().parse().unwrap();
    assert!((20..400).contains(&number), "{answer:?}");
    assert_eq!((answer.axis.as_deref(), answer.p_value), (Some("engine"), None));
    let found = findings(&measured(1));
    let answer = only(&found, UNTESTED);
    assert!(
        answer.sentence.ends_with("each point needs at least 3 runs (repeat.times)."),
        "{answer:?}"
    );
    assert!(answer.sentence.starts_with("The effect of engine was not tested"), "{answer:?}");
    // One sentence for all.
    let two = [("engine", &["epoll", "threads"][..]), ("cc", &["cubic", "reno", "bbr"])];
    let found = findings(&study(&two, 1, |_| Figures::default()));
    let answer = only(&found, UNTESTED);
    let begin = "The effects of engine and cc were not tested: each point needs";
    assert!(answer.sentence.starts_with(begin), "{answer:?}");
    assert_eq!(answer.axis, None);
    // One with an effect is answered by that.
    let found = findings(&engines(&mut Rng::with_seed(6)));
    let open: Vec<_> = of_kind(&found, UNCHANGED).iter().map(|f| f.axis.clone().unwrap()).collect();
    assert_eq!(open, ["size"]);
}

/// Each host is a machine of its own.
fn with_machines(mut measured: Measurements) -> Measurements {
    for run in measured.points.iter_mut().flat_map(|point| &mut point.runs) {
        run.machines = run
            .hosts
            .iter()
            .map(|host| wirecost_model::run::MachineRow {
                name: host.name.clone(),
                hosts: vec![host.name.clone()],
                cpus: 1,
                cpu: host.cpu.clone(),
                cpu_source: None,
                cycles_per_kbyte: host.cycles_per_kbyte,
                cycles_source: None,
                cycles_reason: None,
                foreign_cycles_per_kbyte: None,
            })
            .collect();
    }
    measured
}

/// All kinds have something to look at, and nothing to find.
fn without_effect(repeats: u32, noise: f64, random: &mut Rng) -> Measurements {
    let axes = [
        ("engine", &["epoll", "threads"][..]),
        ("connections", &["1", "8", "32", "100", "400", "1000"]),
    ];
    with_machines(study(&axes, repeats, |_| {
        let figures = Figures {
            busy: [96.0, 96.0],
            functions: vec![("a", 0.1), ("b", 0.2), ("c", 0.05), ("d", 0.3)],
            link: Some(1_100_000_000),
            ..Figures::default()
        };
        figures.noisy(noise, random)
    }))
}

#[test]
fn noise_has_no_findings() {
    const STUDIES: usize = 200;
    let mut by_kind = vec![0; ALL.len()];
    let mut alarms = 0;
    for seed in 0..STUDIES {
        let mut random = Rng::with_seed(1000 + seed as u64);
        // Enough noise that no threshold of what is worth a word keeps it silent.
        let found = findings(&without_effect(3, 0.25, &mut random));
        alarms += usize::from(!effects(&found).is_empty());
        for (kind, count) in ALL.iter().zip(&mut by_kind) {
            *count += usize::from(!of_kind(&found, kind.name).is_empty());
        }
    }
    assert!(alarms * 100 <= 5 * STUDIES, "{alarms} of {STUDIES}: {by_kind:?}");
}

/// A study that has findings of many kinds has none when its runs' labels are shuffled.
#[test]
fn shuffled_labels_have_no_findings() {
    const STUDIES: usize = 100;
    let numbers = ["1", "2", "4", "8", "16", "32", "64", "128"];
    let axes = [("engine", &["epoll", "threads"][..]), ("connections", &numbers)];
    let mut random = Rng::with_seed(7);
    let measured = with_machines(study(&axes, 3, |point| {
        let n: f64 = point[1].parse().unwrap();
        let engine = if point[0] == "epoll" { 1.0 } else { 0.8 };
        let bits = engine * 1e9 * n / (1.0 + 0.1 * (n - 1.0) + 1e-3 * n * (n - 1.0));
        let figures = Figures {
            bits_per_second: bits,
            cycles: [3000.0 * n.sqrt() / engine, 3000.0],
            functions: vec![("a", 0.1), ("b", 0.01 * n.sqrt())],
            ..Figures::default()
        };
        figures.noisy(0.03, &mut random)
    }));
    let found = findings(&measured);
    for kind in ["saturation", "scalability", "cost", "functions", "choices"] {
        assert!(!of_kind(&found, kind).is_empty(), "{kind}: {found:#?}");
    }
    let mut alarms = 0;
    for seed in 0..STUDIES {
        let found = findings(&shuffled(&measured, &mut Rng::with_seed(2000 + seed as u64)));
        alarms += usize::from(!effects(&found).is_empty());
    }
    assert!(alarms * 100 <= 5 * STUDIES, "{alarms} of {STUDIES}");
}

/// The same runs, each said to be of the place of another.
fn shuffled(measured: &Measurements, random: &mut Rng) -> Measurements {
    let mut runs: Vec<_> = measured.points.iter().flat_map(|point| point.runs.clone()).collect();
    let mut places: Vec<_> = runs.iter().map(|run| run.study.clone()).collect();
    random.shuffle(&mut places);
    for (run, place) in runs.iter_mut().zip(places) {
        run.study = place;
    }
    Measurements::of(runs.into_iter().map(|run| (String::new(), run)))
}

#[test]
fn what_was_not_measured_has_no_findings() {
    assert!(findings(&Measurements::default()).is_empty());
    let axes = [("connections", &["1", "2", "3", "4"][..])];
    let mut empty = study(&axes, 2, |_| Figures::default());
    for point in &mut empty.points {
        for run in &mut point.runs {
            *run = wirecost_model::run::Run::empty("@rr", "epoll", "0.1.0", 0);
        }
    }
    assert!(findings(&empty).is_empty());
    // Nothing differs at all.
    assert!(effects(&findings(&study(&axes, 3, |_| Figures::default()))).is_empty());
}

#[test]
fn each_kind_is_a_file_and_has_a_name_of_its_own() {
    let mut names: Vec<&str> = ALL.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/findings");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".rs", ""))
        .filter(|name| {
            !["mod", "limits", "line", "simulation", "trend", "unchanged", "words"]
                .contains(&name.as_str())
        })
        .collect();
    files.sort_unstable();
    assert_eq!(files, names);
}
