//! What packets have to do with a difference of cost: fewer bytes in what goes to the device at once, and
//! more acknowledgements for the same data.

use super::functions::{Pair, pairs};
use super::line::mean;
use super::{Finding, Kind, Question, Runs, Tested, effect, tested, words};
use crate::measured::MeasuredPoint;
use crate::metrics::{self, Selector};
use crate::statistics::contrast::{Contrast, contrast};
use crate::statistics::welch;
use wirecost_model::metric::Unit;

pub(super) const KIND: Kind = Kind {
    name: "packets",
    help: "how sizes of segments and numbers of ACKs change between the ends of an axis, and whether the cost changes with them",
    question: Question::Cause,
    find,
};

/// Smaller changes are not reported.
const CHANGE: f64 = 1.2;

/// Figures of which less means more packets for the same bytes.
const SUBJECTS: [(&str, &str); 2] = [
    ("segments.sent_bytes", "the mean size of packets passed to the sender's device"),
    ("segments_per_ack", "the number of data segments per ACK that the sender receives"),
];

/// A figure at both ends.
struct Change<'a> {
    pair: Pair<'a>,
    selector: Selector,
    noun: &'static str,
    contrast: Contrast,
}

fn find<'a>(runs: &'a Runs<'_>) -> Option<Tested<'a>> {
    let measured = runs.saturated;
    // One for each two points, whichever host its functions are of.
    let pairs = pairs(measured).into_iter().filter(|pair| pair.whose == "sender");
    let mut tests = Vec::new();
    for pair in pairs {
        for (metric, noun) in SUBJECTS {
            if let Some((selector, contrast)) = between(&pair, metric) {
                tests.push((
                    contrast.p_value,
                    Change { pair: pair.clone(), selector, noun, contrast },
                ));
            }
        }
    }
    tested(tests, |p_value, change| change.finding(p_value))
}

/// The metric of the sender, or of the machine where it has none of its own, and how it changes.
fn between(pair: &Pair<'_>, metric: &str) -> Option<(Selector, Contrast)> {
    [format!("hosts.sender.{metric}"), metric.to_owned()].iter().find_map(|name| {
        let selector = metrics::find(name).ok()?;
        let contrast = contrast(&[(pair.to.1.figures(&selector), pair.from.1.figures(&selector))])?;
        Some((selector, contrast))
    })
}

impl Change<'_> {
    fn finding(&self, p_value: f64) -> Option<Finding> {
        let Contrast { ratio, interval, .. } = self.contrast;
        let (verb, factor, (low, high)) = match ratio {
            ratio if ratio >= CHANGE => ("rises", ratio, interval),
            ratio if ratio <= 1.0 / CHANGE => {
                ("falls", 1.0 / ratio, (1.0 / interval.1, 1.0 / interval.0))
            }
            _ => return None,
        };
        let unit = self.selector.metric().unit;
        let at = |point: &MeasuredPoint, selector: &Selector, unit: Unit| {
            wirecost_model::document::show(unit, mean(&point.figures(selector)))
        };
        let Pair { axis, from, to, .. } = &self.pair;
        let [low, high] = [low, high].map(words::fold);
        let low = low.trim_end_matches('x');
        let text = format!(
            "{}, {} {verb} from {} to {}, by a factor of {} ({low} to {})",
            words::span(axis, from.0, to.0),
            self.noun,
            at(from.1, &self.selector, unit),
            at(to.1, &self.selector, unit),
            words::fold(factor).trim_end_matches('x'),
            high.trim_end_matches('x')
        );
        Some(Finding {
            metric: Some(self.selector.name.clone()),
            effect: effect("ratio", Unit::Ratio, ratio, Some(interval)),
            evidence: self.cost(ratio < 1.0).into_iter().collect(),
            ..KIND.along(axis, &self.pair.fixed, p_value, &text)
        })
    }

    /// The cost at both ends, where it changes as packets would make it.
    fn cost(&self, more_packets: bool) -> Option<String> {
        let costs = [
            ("hosts.sender.cycles_per_kbyte", "the sender's cycles/KByte"),
            ("cycles_per_kbyte", "cycles/KByte"),
        ];
        costs.iter().find_map(|(name, noun)| {
            let selector = metrics::find(name).ok()?;
            let [from, to] =
                [self.pair.from.1, self.pair.to.1].map(|point| point.figures(&selector));
            if welch(&from, &to)? >= super::LEVEL || (mean(&to) > mean(&from)) != more_packets {
                return None;
            }
            let verb = if more_packets { "rise" } else { "fall" };
            let [from, to] = [from, to].map(|figures| words::plain(mean(&figures)));
            Some(format!("{noun} {verb} from {from} to {to} between the same points"))
        })
    }
}
