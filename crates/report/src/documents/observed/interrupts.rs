//! The tables of interrupts, as a terminal shows them.

mod tests {
    use wirecost_model::document::Block;
    use wirecost_model::observe::{
        DeviceInterrupts, DeviceVector, Handled, InterruptRow, InterruptsSection, KsoftirqdUse,
        NapiRow, Observation, SoftnetRow,
    };

    fn row(source: &str, name: &str, count: u64, seconds: Option<f64>) -> InterruptRow {
        InterruptRow {
            source: source.to_owned(),
            name: name.to_owned(),
            module: (source == "38").then(|| "virtio_net".to_owned()),
            per_second: count as f64 / 2.0,
            total: Handled {
                cpu: None,
                count,
                seconds,
                average_us: seconds.map(|seconds| seconds * 1e6 / count as f64),
                max_us: seconds.map(|_| 61.25),
                in_idle: seconds.map(|seconds| seconds / 4.0),
                in_ksoftirqd: seconds.map(|_| 0.0),
                histogram_ns: None,
            },
            per_cpu: Vec::new(),
        }
    }

    fn section() -> InterruptsSection {
        let vector = DeviceVector {
            source: "38".to_owned(),
            name: "virtio2-input.0".to_owned(),
            queue: Some(0),
            rx: true,
            tx: false,
            interrupts: 5003,
            per_second: 2501.5,
            rx_packets: Some(10_007),
            tx_packets: None,
            rx_packets_per_interrupt: Some(2.0),
            tx_packets_per_interrupt: None,
        };
        let virtual_device = |name: &str| DeviceInterrupts {
            device: name.to_owned(),
            rx_packets: 200_003,
            tx_packets: 200_003,
            reason: Some("a virtual device: packets come to it without an interrupt".to_owned()),
            ..DeviceInterrupts::default()
        };
        InterruptsSection {
            source: "bpf".to_owned(),
            seconds: 2.0,
            cpus: 2,
            interrupts: vec![
                row("38", "virtio2-input.0", 5003, Some(0.0105)),
                row("LOC", "Local timer interrupts", 1009, Some(0.0021)),
                row("NMI", "Non-maskable interrupts", 3, None),
            ],
            interrupts_per_second: 3007.5,
            softirqs: vec![row("net_rx", "net_rx", 210_011, Some(0.402))],
            softirqs_per_second: 105_005.5,
            napi_slices: None,
            storage_sources: None,
            devices: vec![
                DeviceInterrupts {
                    device: "eth0".to_owned(),
                    rx_packets: 10_007,
                    tx_packets: 3_001,
                    interrupts: Some(5003),
                    rx_packets_per_interrupt: Some(2.0),
                    tx_packets_per_interrupt: None,
                    reason: Some("no interrupt for sent packets came in the window".to_owned()),
                    vectors: vec![vector],
                },
                virtual_device("lo"),
                virtual_device("veth0"),
            ],
            napi: Some(vec![
                NapiRow {
                    polls: 200_003,
                    packets: 200_003,
                    packets_per_poll: Some(1.0),
                    ..NapiRow::default()
                },
                NapiRow {
                    device: Some("eth0".to_owned()),
                    id: Some(8193),
                    polls: 5003,
                    packets: 10_007,
                    packets_per_poll: Some(2.0002),
                    empty: 7,
                    budget_exhausted: 1,
                    ..NapiRow::default()
                },
            ]),
            softnet: Vec::new(),
            softnet_total: SoftnetRow { processed: 210_010, dropped: 5, ..SoftnetRow::default() },
            ksoftirqd: Some(KsoftirqdUse {
                seconds: 0.02,
                softirq_seconds: Some(0.0402),
                share: Some(0.1),
            }),
            unmatched: Some(0),
            missing: vec!["times of interrupts for which the kernel has no tracepoint".to_owned()],
        }
    }

    fn shown(section: &InterruptsSection, width: usize) -> String {
        super::super::shown(section.document(), width)
    }

    #[test]
    fn all_tables() {
        insta::assert_snapshot!(shown(&section(), 120));
    }

    #[test]
    fn what_was_only_counted_has_no_times_and_a_reason() {
        let mut counted = section();
        counted.source = "proc".to_owned();
        counted.napi = None;
        counted.devices.truncate(0);
        for row in counted.interrupts.iter_mut().chain(&mut counted.softirqs) {
            row.total = Handled { count: row.total.count, ..Handled::default() };
        }
        counted.missing = vec!["times: no BPF here".to_owned()];
        insta::assert_snapshot!(shown(&counted, 80));
    }

    #[test]
    fn nothing_is_a_line_and_no_table() {
        let section = &InterruptsSection::default().document()[0];
        assert!(matches!(section.blocks.as_slice(), [Block::Note(_)]), "{section:?}");
    }
}
