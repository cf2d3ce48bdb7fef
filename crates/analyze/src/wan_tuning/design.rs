//! The design of a study, from its points: a base, factors that vary alone, and the rest.

use std::collections::BTreeMap;

use super::{STREAMS, TRAFFIC, is_of_datagrams};
use crate::measured::{MeasuredPoint, Measurements};

/// All points with one number of streams.
#[derive(Debug, Clone)]
pub struct Block<'a> {
    /// `None` where the study does not vary it.
    pub streams: Option<&'a str>,
    /// The point with the base value of each factor.
    pub base: &'a MeasuredPoint,
    pub factors: Vec<Factor<'a>>,
    /// Points that differ from the base in more than one factor.
    pub combined: Vec<&'a MeasuredPoint>,
    bases: BTreeMap<&'a str, &'a str>,
}

/// A factor with the points that differ in nothing else.
#[derive(Debug, Clone)]
pub struct Factor<'a> {
    pub axis: &'a str,
    pub base: &'a str,
    /// Each value with its point, the base among them, in the order of the study.
    pub levels: Vec<(&'a str, &'a MeasuredPoint)>,
}

/// By number of streams, in the order of the study. The base value of a factor is the one that most points have; of
/// several, the first.
#[must_use]
pub fn blocks(measured: &Measurements) -> Vec<Block<'_>> {
    let mut bases = bases(measured);
    let tcp = measured.points.iter().find(|point| !is_of_datagrams(point));
    if let Some(value) = tcp.and_then(|of| axis_value(of, TRAFFIC)) {
        bases.insert(TRAFFIC, value);
    }
    let mut blocks = around(measured, &bases);
    blocks.retain(|block| !is_of_datagrams(block.base));
    for block in &mut blocks {
        // Datagrams are sent at a set rate: what arrives of them is no effect of a factor.
        block.keep_points(|point| !is_of_datagrams(point));
    }
    blocks
}

/// The same around the base with UDP.
#[must_use]
pub fn datagram_blocks(measured: &Measurements) -> Vec<Block<'_>> {
    let mut bases = bases(measured);
    let Some(udp) = measured.points.iter().find(|point| is_of_datagrams(point)) else {
        return Vec::new();
    };
    let traffic = axis_value(udp, TRAFFIC);
    if let Some(value) = traffic {
        bases.insert(TRAFFIC, value);
    }
    let mut blocks = around(measured, &bases);
    for block in &mut blocks {
        block.keep_points(|point| axis_value(point, TRAFFIC) == traffic);
    }
    blocks
}

fn axes(measured: &Measurements) -> Vec<&str> {
    measured.axes().into_iter().filter(|axis| *axis != STREAMS).collect()
}

fn bases(measured: &Measurements) -> BTreeMap<&str, &str> {
    let of_axis = |axis| Some((axis, most_common(measured, axis)?));
    axes(measured).into_iter().filter_map(of_axis).collect()
}

fn around<'a>(measured: &'a Measurements, bases: &BTreeMap<&'a str, &'a str>) -> Vec<Block<'a>> {
    let axes = axes(measured);
    let mut streams: Vec<Option<&str>> = Vec::new();
    for point in &measured.points {
        let value = axis_value(point, STREAMS);
        if !streams.contains(&value) {
            streams.push(value);
        }
    }
    streams.into_iter().filter_map(|streams| block(measured, &axes, bases, streams)).collect()
}

fn block<'a>(
    measured: &'a Measurements,
    axes: &[&'a str],
    bases: &BTreeMap<&'a str, &'a str>,
    streams: Option<&'a str>,
) -> Option<Block<'a>> {
    let points = || measured.points.iter().filter(|of| axis_value(of, STREAMS) == streams);
    let differing = |point: &'a MeasuredPoint| -> Vec<&'a str> {
        let differs = |axis: &&str| axis_value(point, axis) != bases.get(axis).copied();
        axes.iter().copied().filter(differs).collect()
    };
    let base = points().find(|point| differing(point).is_empty())?;
    let factor = |axis: &&'a str| {
        let of_axis = points().filter(|point| {
            let differing = differing(point);
            differing.is_empty() || differing == [*axis]
        });
        let levels: Vec<_> =
            of_axis.filter_map(|point| Some((axis_value(point, axis)?, point))).collect();
        (levels.len() > 1).then(|| Factor { axis, base: bases[axis], levels })
    };
    Some(Block {
        streams,
        base,
        factors: axes.iter().filter_map(factor).collect(),
        combined: points().filter(|point| differing(point).len() > 1).collect(),
        bases: bases.clone(),
    })
}

pub(crate) fn axis_value<'a>(point: &'a MeasuredPoint, axis: &str) -> Option<&'a str> {
    let of = point.point.axes.iter().find(|value| value.name == axis)?;
    Some(&of.value)
}

/// The value of an axis that most points have; of several, the first.
pub(crate) fn most_common<'a>(measured: &'a Measurements, axis: &str) -> Option<&'a str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for value in measured.points.iter().filter_map(|point| axis_value(point, axis)) {
        match counts.iter_mut().find(|(known, _)| *known == value) {
            Some((_, count)) => *count += 1,
            None => counts.push((value, 1)),
        }
    }
    // The last of equals would be another than the first.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

impl<'a> Block<'a> {
    /// Leaves out other points, and factors of which one value is left.
    fn keep_points(&mut self, keep: impl Fn(&MeasuredPoint) -> bool) {
        for factor in &mut self.factors {
            factor.levels.retain(|(_, point)| keep(point));
        }
        self.factors.retain(|factor| factor.levels.len() > 1);
        self.combined.retain(|point| keep(point));
    }

    #[must_use]
    pub fn factor(&self, axis: &str) -> Option<&Factor<'a>> {
        self.factors.iter().find(|factor| factor.axis == axis)
    }

    /// All points with what differs from the base: the base first, then factor by factor.
    #[must_use]
    pub fn points(&self) -> Vec<&'a MeasuredPoint> {
        let is_base = |point: &MeasuredPoint| std::ptr::eq(point, self.base);
        let alone = self.factors.iter().flat_map(|factor| factor.levels.iter().map(|(_, at)| *at));
        let others = alone.filter(|point| !is_base(point)).chain(self.combined.iter().copied());
        std::iter::once(self.base).chain(others).collect()
    }

    /// What differs from the base: `option.cc=reno`; `the base` where nothing does.
    #[must_use]
    pub fn name(&self, point: &MeasuredPoint) -> String {
        let differs = |axis: &&wirecost_model::study::Value| {
            axis.name != STREAMS && self.bases.get(axis.name.as_str()) != Some(&axis.value.as_str())
        };
        let parts: Vec<String> = point
            .point
            .axes
            .iter()
            .filter(differs)
            .map(|axis| format!("{}={}", axis.name, axis.value))
            .collect();
        if parts.is_empty() { "the base".to_owned() } else { parts.join(" ") }
    }

    /// `1 stream`, `5 streams`; nothing where the study does not vary it.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        self.streams.map(|streams| match streams {
            "1" => "1 stream".to_owned(),
            _ => format!("{streams} streams"),
        })
    }

    /// `With 5 streams, throughput ...`; the text begins in small letters and has no end.
    pub(super) fn sentence(&self, text: &str) -> String {
        match self.title() {
            Some(title) => format!("With {title}, {text}."),
            None => crate::findings::words::sentence(&[], text),
        }
    }
}
