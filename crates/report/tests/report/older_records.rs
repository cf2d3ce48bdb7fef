//! Records of earlier versions lack keys that came later; they are read all the same.

use serde_json::json;
use wirecost_model::observe::{CongestionState, TcpSample};

#[test]
fn samples_of_flows_without_the_congestion_state_are_read() {
    let mut sample = json!({
        "seconds": 0.5,
        "cwnd_segments": 10,
        "slow_start_threshold_segments": null,
        "in_flight_segments": 10,
        "rtt_us": 20_000,
        "min_rtt_us": 19_000,
        "pacing_bits_per_second": null,
        "delivery_bits_per_second": 1e9,
        "send_window_bytes": 65_536,
        "retransmitted_segments": 1,
    });
    let older: TcpSample = serde_json::from_value(sample.clone()).unwrap();
    assert_eq!((older.cwnd_segments, older.congestion_state, older.busy_ms), (10, None, None));
    assert_eq!((older.receive_window_limited_ms, older.send_buffer_limited_ms), (None, None));
    sample["congestion_state"] = json!("cwr");
    let newer: TcpSample = serde_json::from_value(sample).unwrap();
    assert_eq!(newer.congestion_state, Some(CongestionState::Cwr));
}
