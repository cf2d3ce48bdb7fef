//! Settings and limits that clip what a run asks for.

use wirecost_model::doctor::Finding;
use wirecost_model::environment::{AVAILABLE_CONGESTION_CONTROL, Environment, Usability};

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
    format!("{name} is not visible in this network namespace")
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
        let found = format!("{name} limits {what} buffers to {}", bytes(most));
        let why =
            "larger values of `wndsz` have no effect, and bursts of datagrams overflow the buffer";
        let finding = match fastest(environment) {
            Some((_, speed)) if speed >= FAST => Finding::problem(found, why),
            _ => Finding::note(found, why),
        };
        verdict.finding(finding.fix(set(name, LARGE_BUFFER)).undo(set(name, most)));
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
                    "{name} limits the buffer of a connection to {}",
                    bytes(most)
                ),
                format!(
                    "one connection cannot fill {} if its round trip is longer than {milliseconds:.1} ms",
                    wirecost_model::units::decimal(speed as f64, "b/s")
                ),
            )
            .about(device)
            .fix(set(name, format!("{least} {usual} {LARGE_BUFFER}")))
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
            format!("{name} limits all TCP buffers together to {}", bytes(all as i64)),
            "above it the kernel drops packets and shrinks windows",
        )
        .fix(set(name, format!("{least} {usual} {}", total / 16 / page)))
        .undo(set(name, environment.sysctl(name).unwrap_or_default())),
    );
}

pub(super) fn tcp_features(environment: &Environment, verdict: &mut Verdict) {
    for (name, without) in [
        ("net.ipv4.tcp_window_scaling", "a connection has at most 64 KiB in flight"),
        ("net.ipv4.tcp_sack", "recovery takes a round trip per lost packet of a window"),
        (
            "net.ipv4.tcp_timestamps",
            "at high rates old segments can be accepted as new ones (PAWS, RFC 7323, 5)",
        ),
        ("net.ipv4.tcp_moderate_rcvbuf", "receive buffers do not grow, so the window stays small"),
    ] {
        match environment.sysctl_number(name) {
            None => verdict.unknown(not_here(name)),
            Some(0) => verdict.finding(
                Finding::problem(format!("{name} is off"), without)
                    .fix(set(name, 1))
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
                    format!("{name} limits the queue of pending connections to {length}"),
                    "if more connections open at once, some retry after a second",
                )
                .fix(set(name, 4 * SHORT_ACCEPT_QUEUE))
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
                format!("only {ports} ports for outgoing connections ({first} to {last})"),
                "a closed connection keeps its port for a minute (TIME_WAIT), so a test that opens many \
                 connections runs out of ports",
            )
            .fix(set(name, "16384 65535"))
            .undo(set(name, format!("{first} {last}"))),
        );
    }
}

pub(super) fn descriptors(environment: &Environment, verdict: &mut Verdict) {
    let Some(most) = environment.process.descriptors else {
        verdict.unknown("the descriptor limit cannot be read");
        return;
    };
    if most < FEW_DESCRIPTORS {
        let limit = |n: u64| format!("prlimit --pid $$ --nofile={n}:{n}");
        verdict.finding(
            Finding::note(
                format!("a process may have {most} open descriptors"),
                "each connection needs one at each end",
            )
            .fix(limit(MANY_DESCRIPTORS))
            .undo(limit(most))
            .advice("run this in the shell that starts wirecost or its agent"),
        );
    }
}

pub(super) fn io_uring(environment: &Environment, verdict: &mut Verdict) {
    let reason = match &environment.process.io_uring {
        Some(Usability::Usable) => return,
        Some(Usability::Unusable(reason)) => reason,
        None => return verdict.unknown("io_uring was not tested"),
    };
    let finding = Finding::note(
        format!("io_uring cannot be used: {reason}"),
        "`--engine io_uring` uses epoll instead, with a warning",
    );
    let name = "kernel.io_uring_disabled";
    verdict.finding(match environment.sysctl_number(name) {
        Some(level @ 1..) => finding.fix(set(name, 0)).undo(set(name, level)),
        _ => finding,
    });
}

pub(super) fn congestion_control(environment: &Environment, verdict: &mut Verdict) {
    let offered = match environment.congestion_controls() {
        Some(names) => names.join(", "),
        None => return verdict.unknown(not_here(AVAILABLE_CONGESTION_CONTROL)),
    };
    match &environment.process.bpf_congestion {
        None => verdict.unknown("congestion control in BPF programs was not tested"),
        Some(Usability::Usable) => {}
        Some(Usability::Unusable(reason)) => verdict.finding(
            Finding::note(
                format!("congestion control in BPF programs cannot be used: {reason}"),
                format!("`cc=bpf-bic` and `--cc-object` are refused. The kernel offers {offered}"),
            )
            .advice(
                "choose one of the kernel's; `modprobe tcp_bic`, `tcp_bbr` and others add to them, if the kernel has \
                 such modules",
            ),
        ),
    }
}

pub(super) fn busy_poll(environment: &Environment, verdict: &mut Verdict) {
    for name in ["net.core.busy_poll", "net.core.busy_read"] {
        // Kernels without it do not poll.
        if let Some(microseconds @ 1..) = environment.sysctl_number(name) {
            verdict.finding(
                Finding::note(
                    format!("{name}: sockets poll for {microseconds} us before they sleep"),
                    "latency is lower and CPU time is higher than without polling",
                )
                .fix(set(name, 0))
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
                "transparent huge pages are enabled for all memory (always)",
                "buffers are in huge pages only by chance, so the cost of copies varies between runs",
            )
            .fix(format!("echo madvise > {file}"))
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
                "probes and packet filters cost several times as much as compiled ones",
            )
            .fix(set(name, 1))
            .undo(set(name, 0)),
        );
    }
}
