//! What a comparison says for people.

use serde_json::{Value, json};
use wirecost_model::comparison::Comparison;
use wirecost_report::documents::comparison::report;
use wirecost_report::outputs::{self, TerminalStyle};

fn figure(ratio: f64, interval: [f64; 2], verdict: &str, detectable: f64) -> Value {
    let side = |mean: f64| json!({"mean": mean, "interval": [0.0, 2.0 * mean], "runs": 3});
    json!({
        "metric": "throughput", "unit": "b/s", "a": side(1e9), "b": side(1e9 * ratio),
        "ratio": ratio, "interval": interval, "interval_confidence": 0.9875,
        "p_value": 0.01, "p_value_corrected": 0.2, "detectable_change": detectable,
        "verdict": verdict, "reason": null,
    })
}

fn text(of: &Value) -> String {
    let comparison: Comparison = serde_json::from_value(of.clone()).unwrap();
    let mut out = Vec::new();
    let output = outputs::find("markdown").unwrap();
    output.write(&mut out, &report(&comparison), &TerminalStyle::plain(120)).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_change_over_all_points_and_what_was_detectable_are_told() {
    let side = json!({"name": "a", "study": "s", "points": 2, "runs": 6, "failed": 0});
    let point = |n: &str, figure: Value| {
        let axes = json!([{"name": "connections", "value": n}]);
        json!({"point": {"axes": axes, "settings": axes}, "figures": [figure]})
    };
    let mut comparison = json!({
        "schema": "wirecost.compare/1", "status": "failed", "error": "x", "version": "0.1.0",
        "a": side, "b": side, "threshold": 0.05,
        "differences": [{"kind": "study", "hosts": [], "what": "set.option.wndsz",
            "a": "\"64k\"", "b": "not set"}],
        "unknown": [],
        "points": [
            point("1", figure(0.9, [0.7, 1.1], "same", 0.31)),
            point("2", figure(0.88, [0.1, 250.0], "same", 4.0)),
        ],
        "overall": [{"metric": "throughput", "points": 2, "ratio": 0.89, "interval": [0.8, 0.97],
            "interval_confidence": 0.975, "p_value": 0.001, "p_value_corrected": 0.002,
            "verdict": "worse"}],
        "sensitivity": [{"metric": "throughput", "at_points": [0.31, 4.0], "overall": 0.121,
            "runs_for_5_percent_at_each_point": null, "runs_for_5_percent_overall": 17}],
        "not_compared": [], "only_in_a": [], "only_in_b": [], "tests": 2,
    });
    let report = text(&comparison);
    for wanted in [
        "study set.option.wndsz: A \"64k\"; B not set",
        "0.100 to 250 ",
        "31.0%",
        "5.00x",
        "0.800 to 0.970",
        "12.1%",
        "over 10,000",
        "Over all points, throughput of B is worse (-11.0%, adjusted p 0.0020).",
        "corrected for 3 comparisons, 1 of them over all points (Holm)",
        "98.75% at single points",
    ] {
        assert!(report.contains(wanted), "no {wanted}\n{report}");
    }
    assert!(!report.contains("No significant difference"), "{report}");
    comparison["overall"] = json!([]);
    let report = text(&comparison);
    assert!(report.contains("No significant difference in 2 comparisons."), "{report}");
}
