//! What arrives of datagrams that are sent at a set rate.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;

use super::{Answer, Block, figure, finding, is_of_datagrams, mean, throughput};

/// With a larger loss, the rate is no longer one that the path carries: as the goal of `@udp-rate-search`.
const LOST: f64 = 1.0;

pub(super) fn answer(block: &Block<'_>) -> Answer {
    let points = block.points();
    let Some(point) = points.into_iter().find(|point| is_of_datagrams(point)) else {
        return Ok(None);
    };
    let received = throughput(point)?;
    let offered = mean(point, |run| figure(run, "offered"))?;
    let lost = mean(point, lost_percent)?;
    let rate = |bits: f64| show(Unit::BitsPerSecond, bits);
    let mut text = format!(
        "of {} of UDP that is offered, {} arrives, and {:.2}% of the datagrams are lost",
        rate(offered.mean),
        rate(received.mean),
        lost.mean
    );
    if lost.mean > LOST {
        text += ": more than the path carries (offer less with --set load=RATE, or search the highest rate with \
                 @udp-rate-search)";
    }
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        evidence: vec![format!("{}: {}", block.name(point), rate(received.mean))],
        ..finding(block, None, block.sentence(&text))
    }))
}

fn lost_percent(run: &Run) -> Result<f64, String> {
    let of = run.datagrams.as_ref().ok_or("it sends no datagrams")?;
    match of.sent {
        0 => Err("no datagram was sent".to_owned()),
        sent => Ok(100.0 * of.lost.max(0) as f64 / sent as f64),
    }
}
