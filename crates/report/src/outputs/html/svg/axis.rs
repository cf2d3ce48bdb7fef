//! Axes: where values are on them, and ticks at round numbers.

use wirecost_model::document::{Axis, AxisScale};
use wirecost_model::metric::Unit;
use wirecost_model::units;

use super::LETTER;

/// An axis of a drawing.
#[derive(Debug)]
pub(super) struct Placed<'a> {
    axis: &'a Axis,
    /// Values at both ends, as logarithms on a logarithmic axis.
    from: f64,
    to: f64,
    /// Pixels at both ends.
    begin: f64,
    end: f64,
}

/// A line of the grid, with its label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub place: f64,
    pub text: String,
}

impl<'a> Placed<'a> {
    /// An axis that has room for all values, between two pixels. `from_zero`: a linear one begins at 0.
    pub(super) fn new(
        axis: &'a Axis,
        values: impl Iterator<Item = f64>,
        (begin, end): (f64, f64),
        from_zero: bool,
    ) -> Self {
        let known: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let least = known.iter().copied().fold(f64::INFINITY, f64::min);
        let most = known.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if known.is_empty() { (0.0, 1.0) } else { (least, most) };
        let (from, to) = match axis.scale {
            AxisScale::Names => (-0.5, axis.labels.len() as f64 - 0.5),
            AxisScale::Logarithmic => {
                let (low, high) =
                    (least.max(f64::MIN_POSITIVE).ln(), most.max(f64::MIN_POSITIVE).ln());
                let room = (0.04 * (high - low)).max(0.02);
                (low - room, high + room)
            }
            AxisScale::Tail => (tail(least).min(tail(50.0)), 1.02 * tail(most)),
            AxisScale::Linear if from_zero => {
                (least.min(0.0), if most > 0.0 { 1.05 * most } else { 1.0 })
            }
            AxisScale::Linear => {
                let room = (0.04 * (most - least)).max(f64::MIN_POSITIVE);
                (least - room, most + room)
            }
        };
        Self { axis, from, to: if to > from { to } else { from + 1.0 }, begin, end }
    }

    /// The pixel of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = match self.axis.scale {
            AxisScale::Logarithmic => value.max(f64::MIN_POSITIVE).ln(),
            AxisScale::Tail => tail(value),
            _ => value,
        };
        let share = ((value - self.from) / (self.to - self.from)).clamp(-0.01, 1.01);
        self.begin + share * (self.end - self.begin)
    }

    /// Whether a value has a place between both ends.
    pub(super) fn contains(&self, value: f64) -> bool {
        let value = match self.axis.scale {
            AxisScale::Logarithmic if value <= 0.0 => return false,
            AxisScale::Logarithmic => value.ln(),
            AxisScale::Tail => tail(value),
            _ => value,
        };
        (self.from..=self.to).contains(&value)
    }

    /// Pixels between two names.
    pub(super) fn step(&self) -> f64 {
        (self.end - self.begin).abs() / (self.to - self.from)
    }

    /// What stands beside the axis: its title and the unit of its ticks.
    pub(super) fn title(&self) -> String {
        let unit = self.unit().1;
        match self.axis.scale {
            // The title of such a figure is its unit.
            _ if self.axis.unit == Unit::CyclesPerKByte => self.axis.title.clone(),
            AxisScale::Linear if self.axis.labels.is_empty() && !unit.is_empty() => {
                format!("{} ({unit})", self.axis.title)
            }
            _ => self.axis.title.clone(),
        }
    }

    /// By what ticks are divided, and the unit that they then have.
    fn unit(&self) -> (f64, String) {
        let most = self.to.abs().max(self.from.abs());
        scaled_unit(self.axis.unit, most)
    }

    /// The axis for the script, which draws parts of it: how values lie on it, those at both ends, by what
    /// ticks are divided, and their unit.
    pub(super) fn data(&self) -> String {
        let scale = match self.axis.scale {
            AxisScale::Names => "names",
            AxisScale::Logarithmic => "logarithmic",
            AxisScale::Tail => "tail",
            AxisScale::Linear => "linear",
        };
        let unit = serde_json::to_value(self.axis.unit).unwrap_or_default();
        let unit = unit.as_str().unwrap_or_default();
        format!("{scale} {:.6} {:.6} {} {unit}", self.from, self.to, self.unit().0)
    }

    /// Whether its ticks are labels, in place of round numbers.
    pub(super) fn is_labelled(&self) -> bool {
        !self.axis.labels.is_empty()
    }

    /// About as many ticks.
    pub(super) fn ticks(&self, number: usize) -> Vec<Tick> {
        let ticks = match self.axis.scale {
            _ if !self.axis.labels.is_empty() => self.labels(),
            AxisScale::Logarithmic if (self.to - self.from).exp() < NARROW => {
                self.round_ratios(number)
            }
            AxisScale::Logarithmic => self.powers(),
            AxisScale::Tail => self.percentiles(),
            _ => self.round(number),
        };
        ticks.into_iter().map(|(value, text)| Tick { place: self.at(value), text }).collect()
    }

    fn labels(&self) -> Vec<(f64, String)> {
        self.axis.labels.iter().map(|label| (label.at, label.text.clone())).collect()
    }

    /// Multiples of 1, 2 or 5 times a power of ten.
    fn round(&self, number: usize) -> Vec<(f64, String)> {
        let (divisor, _) = self.unit();
        let (from, to) = (self.from / divisor, self.to / divisor);
        let step = round_step((to - from) / number.max(1) as f64);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (from / step).ceil() as i64;
        let last = (to / step).floor() as i64;
        let tick = |times: i64| {
            let value = times as f64 * step;
            let text = match digits {
                0 => units::whole(value),
                _ => format!("{value:.digits$}"),
            };
            (value * divisor, text)
        };
        (first..=last).map(tick).collect()
    }

    /// Round values of a logarithmic axis that spans too little for powers of ten.
    fn round_ratios(&self, number: usize) -> Vec<(f64, String)> {
        let (from, to) = (self.from.exp(), self.to.exp());
        let (divisor, unit) = scaled_unit(self.axis.unit, to);
        let step = round_step((to - from) / divisor / number.max(1) as f64);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let blank = if matches!(unit.as_str(), "" | "%") { "" } else { " " };
        let first = (from / divisor / step).ceil() as i64;
        let last = (to / divisor / step).floor() as i64;
        let tick = |times: i64| {
            let value = times as f64 * step;
            (value * divisor, format!("{value:.digits$}{blank}{unit}"))
        };
        (first..=last).map(tick).collect()
    }

    /// The median, and where a tenth, a hundredth and so on are left.
    fn percentiles(&self) -> Vec<(f64, String)> {
        let nines = (1..=self.to.floor().max(0.0) as i32).map(|of| 100.0 - 100.0 * 10f64.powi(-of));
        let all = [0.0, 50.0].into_iter().chain(nines);
        all.filter(|at| self.contains(*at)).map(|at| (at, self.axis.show(at))).collect()
    }

    /// Powers of ten; with less than two of them, 2 and 5 times these too.
    fn powers(&self) -> Vec<(f64, String)> {
        let (from, to) = (self.from.exp(), self.to.exp());
        let few = (to / from).log10() < 2.5;
        let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
        let values =
            decades.flat_map(|of| factors.iter().map(move |factor| factor * 10f64.powi(of)));
        let within = values.filter(|value| (from..=to).contains(value));
        within.map(|value| (value, plain(self.axis.unit, value))).collect()
    }
}

/// Of ticks those whose labels do not cover one another, from left to right.
pub(super) fn apart(ticks: Vec<Tick>) -> Vec<Tick> {
    let mut shown: Vec<Tick> = Vec::new();
    for tick in ticks {
        let width = |tick: &Tick| LETTER * (tick.text.chars().count() as f64 + 1.5);
        let free = shown
            .last()
            .is_none_or(|last| tick.place - last.place > (width(&tick) + width(last)) / 2.0);
        if free {
            shown.push(tick);
        }
    }
    shown
}

/// A logarithmic axis that spans less has round values for ticks.
const NARROW: f64 = 3.0;

/// Decades of what is left of 100 percent.
fn tail(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).clamp(1e-12, 1.0).log10()
}

fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let times = least / power;
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| times <= *step + 1e-9).unwrap_or(10.0);
    step * power
}

/// By what values up to `most` are divided to be read easily, and their unit then.
fn scaled_unit(unit: Unit, most: f64) -> (f64, String) {
    let steps: &[(f64, &str)] = match unit {
        Unit::BitsPerSecond | Unit::PerSecond | Unit::Bytes => {
            &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]
        }
        Unit::Microseconds => &[(1e6, "s"), (1e3, "ms")],
        _ => &[],
    };
    let found = steps.iter().find(|(step, _)| most >= *step);
    match (found, unit) {
        (Some((step, name)), Unit::Microseconds) => (*step, (*name).to_owned()),
        (Some((step, prefix)), _) => (*step, format!("{prefix}{}", unit.symbol())),
        (None, _) => (1.0, unit.symbol().to_owned()),
    }
}

/// A round value with its unit: `20 ms`.
fn plain(unit: Unit, value: f64) -> String {
    if unit == Unit::CyclesPerKByte && value >= 1.0 {
        return units::count(value.round() as u64);
    }
    let (divisor, unit) = scaled_unit(unit, value);
    let value = value / divisor;
    let digits = if value < 1.0 { (-value.log10().floor()).max(0.0) as usize } else { 0 };
    let blank = if matches!(unit.as_str(), "" | "%") { "" } else { " " };
    format!("{value:.digits$}{blank}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, values: &[f64]) -> Vec<String> {
        let placed = Placed::new(axis, values.iter().copied(), (0.0, 100.0), true);
        placed.ticks(5).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_from_zero() {
        let rate = Axis::new("throughput", Unit::BitsPerSecond);
        assert_eq!(texts(&rate, &[3e9, 9.2e9]), ["0", "2", "4", "6", "8"]);
        let placed = Placed::new(&rate, [9.2e9].into_iter(), (0.0, 100.0), true);
        assert_eq!(placed.title(), "throughput (Gb/s)");
        assert_eq!(placed.at(0.0), 0.0);
        assert_eq!(texts(&rate, &[0.0]), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn logarithmic_ticks_have_their_units() {
        let time = Axis::new("p99", Unit::Microseconds).logarithmic();
        assert_eq!(texts(&time, &[40.0, 4e6]), ["100 us", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(texts(&time, &[9.0, 41.0]), ["10 us", "20 us"]);
    }

    #[test]
    fn ratios_close_to_one_have_ticks_of_their_own() {
        let ratio = Axis::new("B/A", Unit::Ratio).logarithmic();
        assert_eq!(texts(&ratio, &[0.9, 1.12]), ["0.9", "1.0", "1.1"]);
        assert_eq!(texts(&ratio, &[0.1, 8.0]), ["0.1", "0.2", "0.5", "1", "2", "5"]);
    }

    #[test]
    fn each_nine_of_percentiles_has_the_same_width() {
        let axis = Axis::percentiles();
        assert_eq!(texts(&axis, &[0.0, 99.995]), ["0", "50", "90", "99", "99.9", "99.99"]);
        let placed = Placed::new(&axis, [0.0, 99.995].into_iter(), (0.0, 100.0), true);
        let widths = [90.0, 99.0, 99.9].map(|at| placed.at(at));
        assert!((widths[2] - 2.0 * widths[1] + widths[0]).abs() < 1e-6, "{widths:?}");
    }

    #[test]
    fn names_stand_in_the_middle_of_their_places() {
        let axis = Axis::of_names("engine", ["epoll", "io_uring"].map(str::to_owned));
        let placed = Placed::new(&axis, [0.0, 1.0].into_iter(), (0.0, 100.0), true);
        let places: Vec<f64> = placed.ticks(5).into_iter().map(|tick| tick.place).collect();
        assert_eq!(places, [25.0, 75.0]);
    }

    #[test]
    fn labels_do_not_cover_one_another() {
        let tick = |place: f64| Tick { place, text: "1000".to_owned() };
        let shown = apart([0.0, 10.0, 20.0, 40.0].map(tick).into());
        assert_eq!(shown.iter().map(|tick| tick.place).collect::<Vec<_>>(), [0.0, 40.0]);
    }
}
