//! The tables of segments, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        Bucket, DeviceSegments, Observation, SegmentInterval, SegmentSizes, SegmentsSection,
        Slices, TransmitContext, TransmitShare,
    };

    fn example() -> SegmentsSection {
        let sizes = SegmentSizes {
            packets: 1000,
            bytes: 40_426_000,
            segments: 27_900,
            average_bytes: Some(40_426.0),
            average_segments: Some(27.9),
            percent_at_cap: Some(12.34),
            cap_ipv4_bytes: 65536,
            intervals: [40_426, 40_760, 40_530]
                .map(|average| SegmentInterval {
                    end_seconds: 5.0,
                    packets: 10,
                    bytes: average * 10,
                    segments: 10,
                    average_bytes: Some(average as f64),
                })
                .to_vec(),
            lengths: vec![
                Bucket { from: 1024, packets: 400 },
                Bucket { from: 32768, packets: 600 },
            ],
            ..SegmentSizes::default()
        };
        let share = |by, packets: u64, all: u64| TransmitShare {
            by,
            packets,
            bytes: packets,
            percent_packets: packets as f64 * 100.0 / all as f64,
            percent_bytes: packets as f64 * 100.0 / all as f64,
            contexts: Vec::new(),
        };
        SegmentsSection {
            slices: Some(Slices { count: 40, seconds: 2.0, percent: 20.0 }),
            devices: vec![DeviceSegments {
                device: "eth0".to_owned(),
                ifindex: 2,
                sent: sizes,
                received: Some(SegmentSizes::default()),
                gso_max_segments: 65535,
                transmit_contexts: vec![
                    share(TransmitContext::Writer, 120, 1000),
                    share(TransmitContext::AckClock, 880, 1000),
                ],
                transmit_contexts_acks: Vec::new(),
                control_packets: 2,
            }],
            uncounted_packets: 0,
        }
    }

    #[test]
    fn a_device_has_a_row_of_sizes_and_one_of_transmit_contexts() {
        insta::assert_snapshot!(super::super::shown(example().document(), 100));
    }

    #[test]
    fn without_packets_it_says_so() {
        let text = super::super::shown(SegmentsSection::default().document(), 80);
        assert!(text.ends_with("  no packet passed a device\n"), "{text}");
    }
}
