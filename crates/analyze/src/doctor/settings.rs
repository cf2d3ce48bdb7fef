//! Settings and limits that clip what a run asks for.

use wirecost_model::doctor::Finding;
use wirecost_model::environment::{Environment, IoUring};

use super::{Verdict, bytes};

const SMALL_BUFFER: i64 = 4 << 20;
/// Holds 10 Gb/s over 50 ms.
const LARGE_BUFFER: i64 = 64 << 20;
/// From this speed on the usual buffers are too small for anything but a short way.
const FAST: u64 = 10_000_000_000;
const SHORT_ACCEPT_QUEUE: i64 = 1024;
const FEW_PORTS: i64 = 16_384;
const FEW_DESCRIPTORS: u64 = 65_536;
const MANY_DESCRIPTORS: u64 = 1 << 20;
/// Part of the memory that TCP may use at least; the kernel takes 9%.
const TCP_MEMORY: f64 = 0.02;

/// The command that sets a setting.
pub(super) fn set(name: &str, value: impl std::fmt::Display) -> String {
    let value = value.to_string();
    match value.contains(' ') {
        true => format!("sysctl -w {name}='{value}'"),
        false => format!("sysctl -w {name}={value}"),
    }
}

/// Settings that a network namespace may not have.
pub(super) fn not_here(name: &str) -> String {
    format!("the kernel does not show {name} here")
}

pub(super) fn socket_buffers(environment: &Environment, verdict: &mut Verdict) {
    for (name, what) in [("net.core.rmem_max", "receive"), ("net.core.wmem_max", "send")] {
        let Some(most) = environment.sysctl_number(name) else {
            verdict.unknown(not_here(name));
            continue;
        };
        if most >= SMALL_BUFFER {
            continue;
        }
        let found = format!("{name}: a program gets at most {} of {what} buffer", bytes(most));
        let why = "`wndsz` of a profile is clipped to it, and a burst of datagrams overflows it";
        let finding = match fastest(environment) {
            Some((_, speed)) if speed >= FAST => Finding::spoils(found, why),
            _ => Finding::note(found, why),
        };
        verdict.finding(finding.mend(set(name, LARGE_BUFFER)).undo(set(name, most)));
    }
}

/// The fastest device with a wire and its speed.
fn fastest(environment: &Environment) -> Option<(&str, u64)> {
    let devices = environment.devices.iter().flatten();
    devices
        .filter(|device| device.up && device.bus.is_some())
        .filter_map(|device| Some((device.name.as_str(), device.speed_bits_per_second?)))
        .max_by_key(|(_, speed)| *speed)
}

pub(super) fn tcp_buffers(environment: &Environment, verdict: &mut Verdict) {
    let Some((device, speed)) = fastest(environment).filter(|(_, speed)| *speed >= FAST) else {
        return;
    };
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let Some(&[least, usual, most]) = environment.sysctl_numbers(name).as_deref() else {
            verdict.unknown(not_here(name));
            continue;
        };
        if most >= LARGE_BUFFER / 4 {
            continue;
        }
        let milliseconds = most as f64 * 8.0 * 1e3 / speed as f64;
        verdict.finding(
            Finding::note(
                format!(
                    "{name}: a connection's buffer grows to {} at most",
                    bytes(most)
                ),
                format!(
                    "one connection cannot fill {} where the round trip is longer than {milliseconds:.1} ms",
                    wirecost_model::units::decimal(speed as f64, "b/s")
                ),
            )
            .about(device)
            .mend(set(name, format!("{least} {usual} {LARGE_BUFFER}")))
            .undo(set(name, format!("{least} {usual} {most}"))),
        );
    }
}

pub(super) fn tcp_memory(environment: &Environment, verdict: &mut Verdict) {
    let name = "net.ipv4.tcp_mem";
    let pages = environment.sysctl_numbers(name);
    let (Some(&[_, _, most]), Some(total), Some(page)) =
        (pages.as_deref(), environment.memory.total_bytes, environment.memory.page_bytes)
    else {
        verdict.unknown(not_here(name));
        return;
    };
    let all = u64::try_from(most).unwrap_or(0).saturating_mul(page);
    if all as f64 >= total as f64 * TCP_MEMORY {
        return;
    }
    let (least, usual) = (total / 32 / page, total / 24 / page);
    verdict.finding(
        Finding::note(
            format!("{name}: all TCP buffers together may take {}", bytes(all as i64)),
            "beyond it the kernel drops what arrives and shrinks windows",
        )
        .mend(set(name, format!("{least} {usual} {}", total / 16 / page)))
        .undo(set(name, environment.sysctl(name).unwrap_or_default())),
    );
}

pub(super) fn tcp_features(environment: &Environment, verdict: &mut Verdict) {
    for (name, without) in [
        ("net.ipv4.tcp_window_scaling", "a connection has at most 64 KiB under way"),
        ("net.ipv4.tcp_sack", "each lost packet of a window takes a round trip to be found"),
        (
            "net.ipv4.tcp_timestamps",
            "at some Gb/s old segments can be taken for new ones (RFC 7323, 5)",
        ),
        ("net.ipv4.tcp_moderate_rcvbuf", "receive buffers do not grow: the window stays small"),
    ] {
        match environment.sysctl_number(name) {
            None => verdict.unknown(not_here(name)),
            Some(0) => verdict.finding(
                Finding::spoils(format!("{name} is off"), without)
                    .mend(set(name, 1))
                    .undo(set(name, 0)),
            ),
            Some(_) => {}
        }
    }
}

pub(super) fn accept_queue(environment: &Environment, verdict: &mut Verdict) {
    for name in ["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"] {
        let Some(length) = environment.sysctl_number(name) else {
            verdict.unknown(not_here(name));
            continue;
        };
        if length < SHORT_ACCEPT_QUEUE {
            verdict.finding(
                Finding::note(
                    format!("{name}: {length} connections may wait to be accepted"),
                    "when more are opened at once some are tried again after a second",
                )
                .mend(set(name, 4 * SHORT_ACCEPT_QUEUE))
                .undo(set(name, length)),
            );
        }
    }
}

pub(super) fn port_range(environment: &Environment, verdict: &mut Verdict) {
    let name = "net.ipv4.ip_local_port_range";
    let Some(&[first, last]) = environment.sysctl_numbers(name).as_deref() else {
        verdict.unknown(not_here(name));
        return;
    };
    let ports = last - first + 1;
    if ports < FEW_PORTS {
        verdict.finding(
            Finding::note(
                format!("{ports} ports for outgoing connections ({first} to {last})"),
                "a test that opens connections one after another uses each for a minute, and then \
                 has none left",
            )
            .mend(set(name, "16384 65535"))
            .undo(set(name, format!("{first} {last}"))),
        );
    }
}

pub(super) fn descriptors(environment: &Environment, verdict: &mut Verdict) {
    let Some(most) = environment.process.descriptors else {
        verdict.unknown("the limit of descriptors cannot be read");
        return;
    };
    if most < FEW_DESCRIPTORS {
        let limit = |n: u64| format!("prlimit --pid $$ --nofile={n}:{n}");
        verdict.finding(
            Finding::note(
                format!("a process may open {most} descriptors"),
                "each connection takes one at both of its ends",
            )
            .mend(limit(MANY_DESCRIPTORS))
            .undo(limit(most))
            .advice("to be typed in the shell that starts wirecost, or its agent"),
        );
    }
}

pub(super) fn io_uring(environment: &Environment, verdict: &mut Verdict) {
    let reason = match &environment.process.io_uring {
        Some(IoUring::Usable) => return,
        Some(IoUring::Unusable(reason)) => reason,
        None => return verdict.unknown("whether io_uring can be used was not tried"),
    };
    let finding = Finding::note(
        format!("io_uring cannot be used: {reason}"),
        "`--engine io_uring` runs with epoll instead, and says so",
    );
    let name = "kernel.io_uring_disabled";
    verdict.finding(match environment.sysctl_number(name) {
        Some(level @ 1..) => finding.mend(set(name, 0)).undo(set(name, level)),
        _ => finding,
    });
}

pub(super) fn busy_poll(environment: &Environment, verdict: &mut Verdict) {
    for name in ["net.core.busy_poll", "net.core.busy_read"] {
        // Kernels without it do not poll.
        if let Some(microseconds @ 1..) = environment.sysctl_number(name) {
            verdict.finding(
                Finding::note(
                    format!("{name}: who waits for data spins for {microseconds} us first"),
                    "latency is less and CPU time is more than without",
                )
                .mend(set(name, 0))
                .undo(set(name, microseconds)),
            );
        }
    }
}

pub(super) fn huge_pages(environment: &Environment, verdict: &mut Verdict) {
    if environment.kernel.transparent_hugepage.as_deref() == Some("always") {
        let file = "/sys/kernel/mm/transparent_hugepage/enabled";
        verdict.finding(
            Finding::note(
                "the kernel makes huge pages for everybody by itself",
                "whether a buffer lies in one is chance, so copies cost more in one run than in \
                 another",
            )
            .mend(format!("echo madvise > {file}"))
            .undo(format!("echo always > {file}")),
        );
    }
}

pub(super) fn bpf_jit(environment: &Environment, verdict: &mut Verdict) {
    let name = "net.core.bpf_jit_enable";
    // Kernels that always compile do not let it be switched off, and a namespace does not show it.
    if environment.sysctl_number(name) == Some(0) {
        verdict.finding(
            Finding::note(
                "BPF programs are interpreted",
                "probes, and filters of others, cost several times what they do compiled",
            )
            .mend(set(name, 1))
            .undo(set(name, 0)),
        );
    }
}
