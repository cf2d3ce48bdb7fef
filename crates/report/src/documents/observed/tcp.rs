//! The tables of TCP, as a terminal shows them.

mod tests {
    use wirecost_model::observe::{
        AckRatio, CongestionState, ListenDrops, Observation, Retransmits, Spread, TcpFlow,
        TcpSample, TcpSection,
    };

    fn example() -> TcpSection {
        let ratio = |data, acks: u64| AckRatio {
            source: Some("bpf".to_owned()),
            data_segments: Some(data),
            pure_acks: Some(acks),
            segments_per_ack: (acks > 0).then(|| data as f64 / acks as f64),
            reason: None,
        };
        TcpSection {
            segments_sent: Some(16_000),
            acks_received: ratio(16_000, 8000),
            acks_sent: ratio(0, 0),
            duplicate_acks_received: Some(73),
            out_of_order_packets: Some(5),
            retransmits: Retransmits {
                segments: Some(77),
                fast_segments: Some(70),
                timeout_segments: Some(0),
                probe_segments: Some(7),
                percent: Some(0.479),
                ..Retransmits::default()
            },
            listen: ListenDrops { drops: Some(3), ..ListenDrops::default() },
            rtt_us: Some(Spread { min: 21.0, mean: 104.2, max: 1900.0, samples: 12 }),
            cwnd_segments: Some(Spread { min: 10.0, mean: 44.0, max: 120.0, samples: 12 }),
            flows_open: Some(30_000),
            flows: vec![TcpFlow {
                local: "198.18.0.1:40000".to_owned(),
                remote: "198.18.0.2:5001".to_owned(),
                congestion_control: Some("cubic".to_owned()),
                bytes_acked: 5_000_011,
                bytes_received: 0,
                retransmitted_segments: 77,
                samples: vec![TcpSample {
                    seconds: 1.0,
                    cwnd_segments: 44,
                    slow_start_threshold_segments: Some(40),
                    in_flight_segments: 43,
                    rtt_us: 104,
                    min_rtt_us: Some(21),
                    pacing_bits_per_second: None,
                    delivery_bits_per_second: Some(9.4e9),
                    send_window_bytes: Some(65536),
                    retransmitted_segments: 80,
                    congestion_state: Some(CongestionState::Recovery),
                    busy_ms: Some(900.0),
                    receive_window_limited_ms: Some(0.0),
                    send_buffer_limited_ms: Some(1.5),
                }],
            }],
            ..TcpSection::default()
        }
    }

    #[test]
    fn a_host_has_its_figures_and_its_busiest_flows() {
        insta::assert_snapshot!(super::super::shown(example().document(), 100));
    }

    #[test]
    fn a_ratio_that_is_unknown_has_its_reason() {
        let unknown = AckRatio { reason: Some("no flows".to_owned()), ..AckRatio::default() };
        let both = TcpSection {
            acks_received: unknown.clone(),
            acks_sent: unknown,
            ..TcpSection::default()
        };
        let text = super::super::shown(both.document(), 80);
        assert!(text.contains("ACK ratio     sent -, received -"), "{text}");
        assert_eq!(text.matches("ACK ratio: no flows").count(), 1, "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let text = super::super::shown(TcpSection::default().document(), 80);
        assert!(text.contains("ACK ratio     sent -, received -"), "{text}");
        assert!(text.contains("- duplicate ACKs"), "{text}");
    }
}
