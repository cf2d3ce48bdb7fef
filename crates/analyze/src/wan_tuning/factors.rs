//! Which factors matter, and which do not.

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;

use super::{Answer, Block, Factor, differ, disturbances, finding, throughput};
use crate::Estimate;
use crate::findings::words;
use crate::measured::MeasuredPoint;

/// The slowest and the fastest value of a factor.
struct Range<'a> {
    axis: &'a str,
    least: (&'a str, Estimate),
    most: (&'a str, Estimate),
}

impl<'a> Range<'a> {
    /// `None` where fewer than two values were measured.
    fn of(factor: &Factor<'a>) -> Option<Self> {
        let levels = factor.levels.iter();
        let known: Vec<(&str, Estimate)> =
            levels.filter_map(|(value, point)| Some((*value, throughput(point).ok()?))).collect();
        let by_mean = |a: &&(&str, Estimate), b: &&(&str, Estimate)| a.1.mean.total_cmp(&b.1.mean);
        let (least, most) = (known.iter().min_by(by_mean)?, known.iter().max_by(by_mean)?);
        (known.len() > 1).then_some(Self { axis: factor.axis, least: *least, most: *most })
    }

    fn ratio(&self) -> f64 {
        if self.least.1.mean > 0.0 { self.most.1.mean / self.least.1.mean } else { f64::INFINITY }
    }

    fn matters(&self) -> bool {
        differ(self.least.1, self.most.1)
    }

    fn text(&self) -> String {
        let rate = |(value, of): (&str, Estimate)| {
            format!("{} with {value}", show(Unit::BitsPerSecond, of.mean))
        };
        let ratio = match self.ratio() {
            ratio if ratio.is_finite() => format!(", {ratio:.2}x"),
            _ => String::new(),
        };
        format!("{} ({} to {}{ratio})", self.axis, rate(self.least), rate(self.most))
    }
}

pub(super) fn answer(block: &Block<'_>) -> Answer {
    let mut ranges: Vec<Range<'_>> = block.factors.iter().filter_map(Range::of).collect();
    if ranges.is_empty() {
        return Err("no factor has two values that were measured".to_owned());
    }
    ranges.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    let (matter, rest): (Vec<&Range<'_>>, Vec<&Range<'_>>) =
        ranges.iter().partition(|range| range.matters());
    let names = |ranges: &[&Range<'_>]| {
        words::list(&ranges.iter().map(|range| range.axis.to_owned()).collect::<Vec<_>>())
    };
    let levels = block.factors.iter().flat_map(|factor| factor.levels.iter().map(|(_, at)| *at));
    let mut points: Vec<&MeasuredPoint> = levels.collect();
    points.sort_by_key(|point| std::ptr::from_ref(*point));
    points.dedup_by_key(|point| std::ptr::from_ref(*point));
    let disturbed = disturbances(&points);
    let told: Vec<String> = matter.iter().map(|range| range.text()).collect();
    let text = match (matter.is_empty(), rest.is_empty()) {
        (true, _) => {
            format!("no factor changes throughput by more than 5%: {}{disturbed}", names(&rest))
        }
        (false, true) => format!("throughput depends on {}{disturbed}", words::list(&told)),
        (false, false) => format!(
            "throughput depends on {}; it changes by less than 5%, or less than its interval, with {}{disturbed}",
            words::list(&told),
            names(&rest)
        ),
    };
    Ok(Some(Finding {
        metric: Some("throughput".to_owned()),
        evidence: ranges.iter().map(Range::text).collect(),
        ..finding(block, None, block.sentence(&text))
    }))
}
