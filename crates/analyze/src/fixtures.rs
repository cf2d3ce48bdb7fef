//! Rows of runs that tests complete with what they are about.

use wirecost_model::host::HostFacts;
use wirecost_model::program::Side;
use wirecost_model::run::{HostRow, MachineRow, Throughput, Window, WindowKind};

/// The host of the program's masters, which measured nothing.
pub(crate) fn host(name: &str) -> HostRow {
    HostRow {
        name: name.to_owned(),
        role: Side::Master,
        address: None,
        cpus: vec![0],
        shares_machine_with: Vec::new(),
        workers: 1,
        cpu: None,
        cpu_source: None,
        cycles_per_kbyte: None,
        cycles_source: None,
        cycles_reason: None,
        busiest_worker: None,
        receive_stamps: None,
        foreign_cycles_per_kbyte: None,
        bytes: None,
        facts: HostFacts::default(),
        clock_offset_us: 0.0,
        clock_error_us: 0.0,
        memory: None,
    }
}

/// The machine of that host alone, with a cost and nothing that says where it went.
pub(crate) fn machine(host: &str, cycles_per_kbyte: f64) -> MachineRow {
    MachineRow {
        name: "m".to_owned(),
        hosts: vec![host.to_owned()],
        cpus: 2,
        cpu: None,
        cpu_source: None,
        cycles_per_kbyte: Some(cycles_per_kbyte),
        cycles_source: Some("tsc-exact".to_owned()),
        cycles_reason: None,
        foreign_cycles_per_kbyte: None,
    }
}

/// All of it from the master to its peer.
pub(crate) fn throughput(bits_per_second: f64, tx_bytes: u64) -> Throughput {
    Throughput {
        bits_per_second,
        tx_bits_per_second: bits_per_second,
        rx_bits_per_second: 0.0,
        tx_bytes,
        rx_bytes: 0,
    }
}

pub(crate) fn window(seconds: f64) -> Window {
    Window {
        seconds,
        phase: 0,
        ramp_seconds: 1.0,
        kind: WindowKind::Duration,
        dead_seconds: None,
        late_us: None,
        started_unix_ms: None,
    }
}
