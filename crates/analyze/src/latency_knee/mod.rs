//! p99 latency against load as a curve, and its knee: the load beyond which latency grows faster.

mod fit;
#[cfg(test)]
mod tests;

use wirecost_model::document::{Finding, show};
use wirecost_model::metric::Unit;
use wirecost_model::run::Run;
use wirecost_model::study::{LOAD, OfferedLoad, Value};

use crate::Conclusions;
use crate::conclusions::{effect, figure, mean};
use crate::findings::words;
use crate::measured::{MeasuredPoint, Measurements};

pub use fit::{Fit, LOADS, NoKnee, Scale, fit};

/// Axes that are a load: the first of these that a study has is used.
const AXES: [&str; 3] = [LOAD, "rate", "connections"];

/// The metric of the curve.
pub const P99: &str = "latency.p99";

/// Points that differ in their load alone.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    pub axis: &'a str,
    /// The axes of the study that vary beside the load.
    pub common: Vec<Value>,
    /// By load, ascending.
    pub stops: Vec<Stop<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Stop<'a> {
    /// Bits per second of an offered load; the value of any other axis.
    pub load: f64,
    pub point: &'a MeasuredPoint,
    /// Whether the load was delivered in all runs: if not, the queue grows throughout a run, and latency is that of its
    /// length.
    pub is_delivered: bool,
}

/// The curves of a study.
///
/// # Errors
/// It has no axis of load.
pub fn curves(measured: &Measurements) -> Result<Vec<Curve<'_>>, String> {
    let axes = measured.axes();
    let Some(axis) = AXES.iter().find_map(|name| axes.iter().find(|axis| *axis == name).copied())
    else {
        return Err(format!("the study has none of the axes {}", AXES.join(", ")));
    };
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for point in &measured.points {
        // As fast as possible is no load that is offered: there, the loads are as high as the answers are fast.
        let Some(load) = load(axis, point) else { continue };
        let common = measured.common(point, |of| of == axis);
        let warned =
            |run: &Run| run.warnings.iter().any(|of| of.code == "offered-load-not-reached");
        let stop = Stop { load, point, is_delivered: !point.runs.iter().any(warned) };
        match curves.iter_mut().find(|curve| curve.common == common) {
            Some(curve) => curve.stops.push(stop),
            None => curves.push(Curve { axis, common, stops: vec![stop] }),
        }
    }
    curves.iter_mut().for_each(|of| of.stops.sort_by(|a, b| a.load.total_cmp(&b.load)));
    Ok(curves)
}

fn load(axis: &str, point: &MeasuredPoint) -> Option<f64> {
    if axis != LOAD {
        return point.point.number(axis);
    }
    match point.point.load() {
        OfferedLoad::Max => None,
        _ => mean(point, |run| figure(run, "offered")).ok().map(|of| of.mean),
    }
}

impl Curve<'_> {
    /// Its knee.
    ///
    /// # Errors
    /// Why it has none.
    pub fn knee(&self) -> Result<Fit, NoKnee> {
        let values = |stop: &Stop<'_>| -> Vec<f64> {
            stop.point.runs.iter().filter_map(|run| figure(run, P99).ok()).collect()
        };
        let points: Vec<(f64, Vec<f64>)> =
            self.delivered().map(|stop| (stop.load, values(stop))).collect();
        fit(&points, self.scale())
    }

    fn delivered(&self) -> impl DoubleEndedIterator<Item = &Stop<'_>> {
        self.stops.iter().filter(|stop| stop.is_delivered)
    }

    /// Numbers of connections are mostly powers.
    #[must_use]
    pub fn scale(&self) -> Scale {
        if self.axis == "connections" { Scale::Logarithmic } else { Scale::Linear }
    }

    /// `44.1 Mb/s`, `rate 640`, `100 connections`.
    #[must_use]
    pub fn show(&self, load: f64) -> String {
        match self.axis {
            LOAD => show(Unit::BitsPerSecond, load),
            axis => words::stop(axis, &show(Unit::Count, load)),
        }
    }

    fn sentence(&self) -> Finding {
        let time = |microseconds: f64| show(Unit::Microseconds, microseconds);
        let loads = self.delivered().next().zip(self.delivered().next_back());
        let (first, last) = loads.map_or((0.0, 0.0), |(first, last)| (first.load, last.load));
        let knee = self.knee();
        let mut text = match &knee {
            Ok(fit) => {
                let interval = fit
                    .interval
                    .map(|(low, high)| format!(" ({} to {})", self.show(low), self.show(high)));
                let [at_first, at_knee, at_last] = fit.values.map(time);
                format!(
                    "p99 latency has its knee at {}{}: it goes from {at_first} at {} to {at_knee} at the knee, and to \
                     {at_last} at {}",
                    self.show(fit.knee),
                    interval.unwrap_or_default(),
                    self.show(first),
                    self.show(last),
                )
            }
            Err(reason @ NoKnee::Straight(_)) => format!(
                "no knee of p99 latency was detected from {} to {}: {reason}",
                self.show(first),
                self.show(last)
            ),
            Err(reason) => format!(
                "p99 latency has no knee from {} to {}: {reason}",
                self.show(first),
                self.show(last)
            ),
        };
        if let Some(beyond) = self.stops.iter().find(|stop| !stop.is_delivered) {
            text += &format!("; {} was not delivered", self.show(beyond.load));
        }
        let fit = knee.ok();
        let unit = if self.axis == LOAD { Unit::BitsPerSecond } else { Unit::Count };
        let by_load = self.stops.iter().filter_map(|stop| {
            let p99 = mean(stop.point, |run| figure(run, P99)).ok()?;
            Some(format!("{}: {}", self.show(stop.load), time(p99.mean)))
        });
        let mut evidence = vec![by_load.collect::<Vec<_>>().join(", ")];
        evidence.extend(fit.as_ref().map(|fit| match fit.p_value {
            p if p < 0.0001 => "one straight line fits worse (F test, p < 0.0001)".to_owned(),
            p => format!("one straight line fits worse (F test, p = {p:.4})"),
        }));
        Finding {
            kind: String::new(),
            metric: Some(P99.to_owned()),
            axis: Some(self.axis.to_owned()),
            at: self.common.clone(),
            sentence: words::sentence(&self.common.iter().collect::<Vec<_>>(), &text),
            effect: fit.and_then(|fit| effect(self.axis, unit, fit.knee, fit.interval)),
            p_value: None,
            strength: None,
            evidence,
            points: Vec::new(),
        }
    }
}

/// A sentence for each curve.
#[must_use]
pub fn conclusions(measured: &Measurements) -> Conclusions {
    let rule = ("knee", "the knee of latency");
    let mut conclusions = Conclusions::default();
    match curves(measured) {
        Err(reason) => conclusions.add(rule, [Err(reason)]),
        Ok(curves) => {
            let answer = |curve: &Curve<'_>| match curve.knee() {
                // Nothing is known of a curve that was hardly measured.
                Err(reason @ NoKnee::TooFewLoads) => Err(reason.to_string()),
                _ => Ok(Some(curve.sentence())),
            };
            conclusions.add(rule, curves.iter().map(answer));
        }
    }
    conclusions
}
