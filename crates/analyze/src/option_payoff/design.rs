//! The pairs of a study: points that differ in nothing but one option.

use wirecost_model::run::Run;
use wirecost_model::study::{Value, number};

use super::{ACROSS, OPTION, SIZE, TRAFFIC};
use crate::measured::{MeasuredPoint, Measurements};
use crate::wan_tuning::{axis_value, most_common};

/// An option with the same of everything else, by size.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    /// As the value is called; of other axes than [`OPTION`] the axis, and `tune.mtu=9000` where it is not switched on.
    pub option: String,
    pub axis: &'a str,
    /// What is the same at all of its points, and differs between curves.
    pub common: Vec<Value>,
    /// In ascending order of the size.
    pub sizes: Vec<AtSize<'a>>,
}

/// Both points of a pair.
#[derive(Debug, Clone, Copy)]
pub struct AtSize<'a> {
    /// As the study calls it; empty where it does not vary the size.
    pub label: &'a str,
    pub bytes: Option<f64>,
    pub off: &'a MeasuredPoint,
    pub on: &'a MeasuredPoint,
}

/// Ends a value that switches off what is on at the base.
const SWITCHED_OFF: &str = " off";
/// Values of an axis that say that it is switched off.
const OFF: [&str; 3] = ["off", "false", "0"];
/// Values that say no more than that it is on.
const ON: [&str; 2] = ["on", "true"];

/// All curves, in the order of the study.
#[must_use]
pub fn curves(measured: &Measurements) -> Vec<Curve<'_>> {
    let axes: Vec<&str> =
        measured.axes().into_iter().filter(|axis| !ACROSS.contains(axis)).collect();
    let bases: Vec<(&str, &str)> =
        axes.iter().filter_map(|axis| Some((*axis, most_common(measured, axis)?))).collect();
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for point in &measured.points {
        let Some((axis, base, value)) = switched(point, &bases) else { continue };
        let Some(other) = measured.points.iter().find(|other| {
            switched(other, &bases).is_none()
                && is_base(other, &bases)
                && ACROSS.iter().all(|axis| axis_value(other, axis) == axis_value(point, axis))
        }) else {
            continue;
        };
        let switched_off = value.strip_suffix(SWITCHED_OFF);
        let (off, on, on_value) = match switched_off.is_some() || OFF.contains(&value) {
            true => (point, other, switched_off.unwrap_or(base)),
            false => (other, point, value),
        };
        let option = match axis {
            OPTION => on_value.to_owned(),
            _ if ON.contains(&on_value) => axis.to_owned(),
            _ => format!("{axis}={on_value}"),
        };
        let label = axis_value(point, SIZE).unwrap_or_default();
        let at = AtSize { label, bytes: number(label), off, on };
        let common: Vec<Value> = common(measured, point);
        match curves.iter_mut().find(|of| of.option == option && of.common == common) {
            Some(curve) => curve.sizes.push(at),
            None => curves.push(Curve { option, axis, common, sizes: vec![at] }),
        }
    }
    for curve in &mut curves {
        curve
            .sizes
            .sort_by(|a, b| a.bytes.partial_cmp(&b.bytes).unwrap_or(std::cmp::Ordering::Equal));
    }
    let order: Vec<Vec<Value>> =
        measured.points.iter().map(|point| common(measured, point)).collect();
    let place = |curve: &Curve<'_>| {
        let group = order.iter().position(|common| *common == curve.common);
        (group, axes.iter().position(|axis| *axis == curve.axis))
    };
    curves.sort_by_key(place);
    curves
}

/// The axis in which alone a point differs from the base, the value of the base and its own.
fn switched<'a>(
    point: &'a MeasuredPoint,
    bases: &[(&'a str, &'a str)],
) -> Option<(&'a str, &'a str, &'a str)> {
    let mut differing = bases.iter().filter_map(|(axis, base)| {
        let value = axis_value(point, axis)?;
        (value != *base).then_some((*axis, *base, value))
    });
    let first = differing.next()?;
    differing.next().is_none().then_some(first)
}

fn is_base(point: &MeasuredPoint, bases: &[(&str, &str)]) -> bool {
    bases.iter().all(|(axis, base)| axis_value(point, axis) == Some(base))
}

/// The axes of a point that are not the same everywhere, but for its size and its options.
fn common(measured: &Measurements, point: &MeasuredPoint) -> Vec<Value> {
    let of = point.point.axes.iter().filter(|axis| {
        let name = axis.name.as_str();
        ACROSS.contains(&name) && name != SIZE && measured.values(name).len() > 1
    });
    of.cloned().collect()
}

impl Curve<'_> {
    /// As the study calls it; `None` where it has no such axis.
    #[must_use]
    pub fn traffic(&self) -> Option<&str> {
        axis_value(self.sizes.first()?.on, TRAFFIC)
    }

    /// Whether messages come back, so that the time of an operation is that of a round trip.
    #[must_use]
    pub fn has_round_trips(&self) -> bool {
        let mut runs = self.sizes.iter().flat_map(|at| at.off.runs.iter().chain(&at.on.runs));
        let both = |run: &Run| {
            run.throughput.as_ref().is_some_and(|moved| moved.tx_bytes > 0 && moved.rx_bytes > 0)
        };
        runs.next().is_some_and(both)
    }
}
