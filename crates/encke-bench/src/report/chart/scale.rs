//! From figures to pixels: scales, units, and ticks whose labels do not run into each other.

use super::draw::text_width;
use crate::report::units;

/// One axis of a plot, or the one of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it shows, such as `received/s`; the unit is added where the ticks do not say it.
    pub label: String,
    /// What its figures are.
    pub unit: Unit,
    /// How figures become places.
    pub scale: Scale,
}

/// How figures become places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps, from zero.
    Linear,
    /// Equal ratios; what is not above zero has no place.
    Log,
    /// [`Scale::Log`] where figures differ more than thirtyfold, [`Scale::Linear`] otherwise.
    Auto,
    /// Shares q below 1, at log 1/(1-q): as much room for 99 to 99.9 % as for 90 to 99 %.
    Tail,
}

/// What figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Counts, rates, cores: plain figures.
    Count,
    /// Microseconds.
    Micros,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Axis {
    /// An axis.
    pub fn new(label: &str, unit: Unit, scale: Scale) -> Self {
        Axis { label: label.into(), unit, scale }
    }
}

impl Unit {
    /// A figure with its unit.
    pub fn text(self, value: f64) -> String {
        match self {
            Unit::Count => units::number(value),
            Unit::Micros => units::micros(value),
            Unit::Seconds => units::figure(value, "s"),
            Unit::Bytes => units::bytes(value),
        }
    }

    /// The unit in which an axis up to `high` is best read: its size and name.
    fn best(self, high: f64) -> (f64, &'static str) {
        const KIB: f64 = 1024.0;
        let sizes: &[(f64, &str)] = match self {
            Unit::Count => &[(1.0, "")],
            Unit::Micros => &[(1e6, "s"), (1e3, "ms"), (1.0, "µs")],
            Unit::Seconds => &[(3600.0, "h"), (60.0, "min"), (1.0, "s")],
            Unit::Bytes => &[(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB"), (1.0, "B")],
        };
        let several = |(size, _): &&(f64, &str)| high >= 2.0 * size;
        sizes.iter().find(several).or(sizes.last()).copied().unwrap_or((1.0, ""))
    }
}

/// Which way an axis runs; it decides how labels get into each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Across,
    Up,
}

/// An axis with its place on the drawing.
pub(super) struct Ruler {
    kind: Kind,
    low: f64,
    high: f64,
    pixels: (f64, f64),
    /// Places and labels.
    pub(super) ticks: Vec<(f64, String)>,
    /// The unit of all ticks, for the axis's label; empty where each tick says its own.
    pub(super) unit: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linear,
    Log,
    Tail,
}

impl Ruler {
    /// A ruler for these values between two pixels.
    pub(super) fn new(axis: &Axis, values: &[f64], pixels: (f64, f64), way: Way) -> Self {
        let kind = kind(axis.scale, values);
        let fit: Vec<f64> = values.iter().copied().filter(|value| kind.place(*value).is_some()).collect();
        let least = fit.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let most = fit.iter().copied().reduce(f64::max).unwrap_or(1.0);
        let mut ruler = Ruler { kind, low: 0.0, high: 1.0, pixels, ticks: Vec::new(), unit: "" };
        match kind {
            Kind::Linear => ruler.linear(axis.unit, least.min(0.0), most.max(0.0), way),
            Kind::Log => ruler.log(axis.unit, least, most, way),
            Kind::Tail => ruler.tail(most, way),
        }
        ruler
    }

    /// Where a value is; none if it has no place on this scale.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let share = (self.kind.place(value)? - self.low) / (self.high - self.low);
        Some(self.pixels.0 + share * (self.pixels.1 - self.pixels.0))
    }

    /// The ruler for a page's script: kind, unit, ends as transformed, ends in pixels.
    pub(super) fn told(&self, unit: Unit) -> String {
        let (kind, unit) = (format!("{:?}", self.kind), format!("{unit:?}"));
        let Ruler { low, high, pixels: (from, to), .. } = self;
        format!("{kind} {unit} {low} {high} {from:.1} {to:.1}").to_lowercase()
    }

    /// Whether it is the scale of ratios.
    pub(super) fn is_log(&self) -> bool {
        self.kind == Kind::Log
    }

    fn linear(&mut self, unit: Unit, least: f64, most: f64, way: Way) {
        let most = if most > least { most } else { least + 1.0 };
        let (size, name) = unit.best(most.max(-least));
        self.unit = name;
        for wanted in (1..=wanted(self.pixels, way)).rev() {
            let step = step((most - least) / size, wanted as f64) * size;
            let (first, last) = ((least / step).floor(), (most / step).ceil());
            self.low = first * step;
            self.high = if way == Way::Up { last * step } else { most };
            let numbers = (0..=(last - first) as u32).map(|at| (first + f64::from(at)) * step);
            let within = numbers.filter(|value| *value <= self.high * (1.0 + 1e-9));
            let label =
                |value: f64| if unit == Unit::Count { compact(value, step) } else { plain(value / size, step / size) };
            self.ticks = within.filter_map(|value| Some((self.at(value)?, label(value)))).collect();
            if fit(&self.ticks, way) {
                return;
            }
        }
    }

    fn log(&mut self, unit: Unit, least: f64, most: f64, way: Way) {
        let marks = if unit == Unit::Bytes { powers_of_two(least, most) } else { one_two_five(least, most) };
        self.low = marks.first().map_or(0.0, |mark| mark.0.log10());
        self.high = marks.last().map_or(1.0, |mark| mark.0.log10());
        // The coarsest marks that still give three ticks, otherwise finer ones as long as they fit.
        for coarse in [true, false] {
            let chosen = marks.iter().filter(|(_, decade)| *decade || !coarse);
            let label = |value: f64| if unit == Unit::Count { compact(value, value) } else { unit.text(value) };
            let ticks: Vec<_> = chosen.filter_map(|(value, _)| Some((self.at(*value)?, label(*value)))).collect();
            let ticks = thinned(ticks, way);
            if self.ticks.len() < 3 && ticks.len() > self.ticks.len() {
                self.ticks = ticks;
            }
        }
    }

    fn tail(&mut self, most: f64, way: Way) {
        self.high = Kind::Tail.place(most).unwrap_or(1.0).max(1.0);
        for (share, label) in TAIL_TICKS {
            let Some(place) = self.at(share) else { continue };
            let mut ticks = self.ticks.clone();
            ticks.push((place, label.into()));
            ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
            if place <= self.pixels.1 + 0.5 && fit(&ticks, way) {
                self.ticks = ticks;
            }
        }
    }
}

impl Kind {
    fn place(self, value: f64) -> Option<f64> {
        match self {
            Kind::Linear => Some(value).filter(|value| value.abs() < VALUE_MAX),
            Kind::Log => Some(value).filter(|value| (1.0 / VALUE_MAX..VALUE_MAX).contains(value)).map(f64::log10),
            Kind::Tail => Some(value).filter(|share| (0.0..1.0).contains(share)).map(|share| -(1.0 - share).log10()),
        }
    }
}

fn kind(scale: Scale, values: &[f64]) -> Kind {
    match scale {
        Scale::Linear => Kind::Linear,
        Scale::Log => Kind::Log,
        Scale::Tail => Kind::Tail,
        Scale::Auto => {
            let positive = values.iter().copied().filter(|value| Kind::Log.place(*value).is_some());
            let (least, most) =
                positive.fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)));
            if most / least > LOG_FROM_RATIO { Kind::Log } else { Kind::Linear }
        }
    }
}

/// How many ticks an axis gets at most.
fn wanted((from, to): (f64, f64), way: Way) -> u32 {
    let pixels = (to - from).abs();
    (pixels / if way == Way::Up { 36.0 } else { 60.0 }).clamp(1.0, 9.0) as u32
}

/// A step of 1, 2 or 5 times a power of ten that divides a span into about so many parts.
fn step(span: f64, parts: f64) -> f64 {
    let rough = span / parts;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    factor * power
}

/// Marks from below the least to above the most; those at powers of ten are the coarse ones.
fn one_two_five(least: f64, most: f64) -> Vec<(f64, bool)> {
    let (from, to) = (least.log10().floor() as i32, most.log10().ceil() as i32 + 1);
    let all = (from..=to).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| (factor * 10f64.powi(power), factor == 1.0)));
    around(all.collect(), least, most)
}

/// Marks at powers of two; every tenth is a coarse one.
fn powers_of_two(least: f64, most: f64) -> Vec<(f64, bool)> {
    let (from, to) = (least.log2().floor() as i32, most.log2().ceil() as i32 + 1);
    around((from..=to).map(|power| (2f64.powi(power), power % 10 == 0)).collect(), least, most)
}

/// The marks between the last one not above the least and the first one not below the most.
fn around(marks: Vec<(f64, bool)>, least: f64, most: f64) -> Vec<(f64, bool)> {
    let begin = marks.iter().rposition(|mark| mark.0 <= least * 1.0001).unwrap_or(0);
    let end = marks.iter().position(|mark| mark.0 >= most * 0.9999).unwrap_or(marks.len() - 1).max(begin + 1);
    marks.into_iter().take(end + 1).skip(begin).collect()
}

/// Every tick, or every second, third and so on, until labels keep apart.
fn thinned(ticks: Vec<(f64, String)>, way: Way) -> Vec<(f64, String)> {
    let every = |step: usize| ticks.iter().step_by(step).cloned().collect::<Vec<_>>();
    (1..=ticks.len()).map(every).find(|ticks| fit(ticks, way)).unwrap_or_default()
}

/// Whether labels keep apart.
fn fit(ticks: &[(f64, String)], way: Way) -> bool {
    ticks.windows(2).all(|pair| {
        let distance = (pair[1].0 - pair[0].0).abs();
        match way {
            Way::Up => distance >= 18.0,
            Way::Across => distance >= (text_width(&pair[0].1) + text_width(&pair[1].1)) / 2.0 + 10.0,
        }
    })
}

/// A tick's figure with as many decimals as the step has.
fn plain(value: f64, step: f64) -> String {
    let whole = |decimals: &i32| {
        let scaled = step * 10f64.powi(*decimals);
        (scaled - scaled.round()).abs() < 1e-6 * scaled
    };
    if value.abs() < step * 1e-6 {
        return "0".into();
    }
    let decimals = (0..9).find(whole).unwrap_or(9) as usize;
    format!("{value:.decimals$}")
}

/// A tick's figure in thousands, millions or billions where it is that large.
fn compact(value: f64, step: f64) -> String {
    let sizes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match sizes.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, letter)) => {
            let text = plain(value / size, step / size);
            let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            format!("{text}{letter}")
        }
        None => plain(value, step),
    }
}

/// Ticks of shares, the most wanted first.
const TAIL_TICKS: [(f64, &str); 9] = [
    (0.9, "90%"),
    (0.99, "99%"),
    (0.999, "99.9%"),
    (0.9999, "99.99%"),
    (0.99999, "99.999%"),
    (0.999_999, "99.9999%"),
    (0.999_999_9, "99.99999%"),
    (0.5, "50%"),
    (0.0, "0%"),
];

/// Figures that differ more than this are shown by their ratios: on a linear scale the small ones would lie on the floor.
const LOG_FROM_RATIO: f64 = 30.0;

/// Figures beyond this, or below one over it, are no measurement.
const VALUE_MAX: f64 = 1e30;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(unit: Unit, scale: Scale, values: &[f64], pixels: (f64, f64), way: Way) -> Vec<String> {
        let ruler = Ruler::new(&Axis::new("", unit, scale), values, pixels, way);
        ruler.ticks.into_iter().map(|tick| tick.1).collect()
    }

    #[test]
    fn ticks_are_round_figures() {
        let ticks = labels(Unit::Count, Scale::Linear, &[37.0, 912_000.0], (200.0, 0.0), Way::Up);
        assert_eq!(ticks, ["0", "200k", "400k", "600k", "800k", "1M"]);
        let ticks = labels(Unit::Micros, Scale::Linear, &[1_250.0, 9_100.0], (200.0, 0.0), Way::Up);
        assert_eq!(ticks, ["0", "2", "4", "6", "8", "10"]);
        let ticks = labels(Unit::Bytes, Scale::Linear, &[5.2e7], (130.0, 0.0), Way::Up);
        assert_eq!(ticks, ["0", "20", "40", "60"]);
    }

    #[test]
    fn decades_say_their_unit() {
        let ticks = labels(Unit::Micros, Scale::Auto, &[120.0, 2_300_000.0], (200.0, 0.0), Way::Up);
        assert_eq!(ticks, ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn a_narrow_axis_has_fewer_labels() {
        let ends = [0.0, 2_000_000.0];
        let [wide, narrow] = [560.0, 120.0].map(|to| labels(Unit::Count, Scale::Linear, &ends, (0.0, to), Way::Across));
        assert!(wide.len() > narrow.len() && narrow.len() >= 2, "{wide:?} {narrow:?}");
    }

    #[test]
    fn percentiles_spread_towards_one() {
        let axis = Axis::new("", Unit::Count, Scale::Tail);
        let ruler = Ruler::new(&axis, &[0.0, 0.9999], (0.0, 400.0), Way::Across);
        let place = |share| ruler.at(share).expect("a share below 1").round();
        assert_eq!([0.0, 0.9, 0.99, 0.999].map(place), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!(ruler.at(1.0), None, "1 is infinitely far");
        assert_eq!(
            ruler.ticks.iter().map(|tick| tick.1.as_str()).collect::<Vec<_>>(),
            ["50%", "90%", "99%", "99.9%", "99.99%"]
        );
    }

    #[test]
    fn figures_that_are_none_have_no_place() {
        for scale in [Scale::Linear, Scale::Log, Scale::Auto, Scale::Tail] {
            let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE];
            let ruler = Ruler::new(&Axis::new("", Unit::Count, scale), &values, (0.0, 300.0), Way::Across);
            assert_eq!(ruler.at(f64::NAN), None);
            assert!(ruler.ticks.iter().all(|tick| tick.0.is_finite()), "{scale:?}");
            assert!(Ruler::new(&Axis::new("", Unit::Bytes, scale), &[], (0.0, 300.0), Way::Up).ticks.len() < 20);
        }
        assert!(Ruler::new(&Axis::new("", Unit::Count, Scale::Linear), &[0.0], (0.0, 9.0), Way::Up).at(0.0).is_some());
    }
}
