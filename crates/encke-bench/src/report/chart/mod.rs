//! Charts as data: lines over two axes, and groups of bars. uPlot draws them in a report's page, plotters in an SVG file.

mod svg;

use serde_json::{Value, json};

use super::units;

/// A chart of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines over two axes.
    Plot(Plot),
    /// Horizontal bars.
    Bars(Bars),
}

/// Lines over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The title, a few words.
    pub title: String,
    /// An explanation; may be empty.
    pub note: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines; beyond the sixth, colours repeat.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which it connects them.
    pub points: Vec<Point>,
}

/// A point of a line. A point outside of the axes, such as NaN, is a gap in the line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Horizontal.
    pub x: f64,
    /// Vertical.
    pub y: f64,
    /// The name of its trial; may be empty.
    pub name: String,
    /// True for a hollow mark: the point does not count fully.
    pub hollow: bool,
}

/// Groups of horizontal bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// The title, a few words.
    pub title: String,
    /// An explanation; may be empty.
    pub note: String,
    /// The axis of the bars' lengths.
    pub axis: Axis,
    /// Names of the bars of each group; beyond the sixth, colours repeat.
    pub series: Vec<String>,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// A bar per series.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its length; none if there is no figure.
    pub value: Option<f64>,
    /// The text at its end; empty for the figure with its unit.
    pub text: String,
}

/// An axis of a plot, or of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its label, such as `received/s`.
    pub label: String,
    /// The kind of its figures.
    pub unit: Unit,
    /// Its scale.
    pub scale: Scale,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps, from zero.
    Linear,
    /// Equal ratios; only figures above zero are shown.
    Log,
    /// [`Scale::Log`] if figures differ more than thirtyfold, [`Scale::Linear`] otherwise.
    Auto,
    /// Shares q below 1, at log 1/(1-q): as much room for 99 to 99.9 % as for 90 to 99 %.
    Nines,
}

/// The kind of figures.
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

impl Chart {
    /// The title.
    pub fn title(&self) -> &str {
        match self {
            Chart::Plot(plot) => &plot.title,
            Chart::Bars(bars) => &bars.title,
        }
    }

    /// The explanation; may be empty.
    pub fn note(&self) -> &str {
        match self {
            Chart::Plot(plot) => &plot.note,
            Chart::Bars(bars) => &bars.note,
        }
    }

    /// The chart as an SVG file of this width, for light and dark backgrounds.
    pub fn file(&self, width_pixels: u32) -> String {
        svg::draw(self, width_pixels.max(WIDTH_PIXELS_MIN))
    }
}

impl Plot {
    /// Returns true if no point can be shown.
    pub fn is_empty(&self) -> bool {
        !self.series.iter().flat_map(|series| &series.points).any(|point| point.x.is_finite() && point.y.is_finite())
    }

    /// The chart for the page's script. Gaps are null; positions on an axis of nines are numbers of nines.
    pub(super) fn json(&self) -> Value {
        let (x, y) = self.scales();
        let axis = |axis: &Axis, scale: Scale| {
            let (unit, scale) = (format!("{:?}", axis.unit).to_lowercase(), format!("{scale:?}").to_lowercase());
            json!({ "label": axis.label, "unit": unit, "scale": scale })
        };
        let point = |point: &Point| match (x.position(point.x), y.position(point.y)) {
            (Some(x), Some(y)) => json!([x, y, point.name, point.hollow]),
            _ => Value::Null,
        };
        let line = |series: &Series| {
            let points: Vec<Value> = series.points.iter().map(point).collect();
            json!({ "name": series.name, "points": points })
        };
        let series: Vec<Value> = self.series.iter().map(line).collect();
        json!({ "x": axis(&self.x, x), "y": axis(&self.y, y), "series": series })
    }

    /// The scales of both axes, chosen for their figures.
    fn scales(&self) -> (Scale, Scale) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        (self.x.scale.chosen(points().map(|point| point.x)), self.y.scale.chosen(points().map(|point| point.y)))
    }
}

impl Series {
    /// A line through points.
    pub fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point { x, y, ..Point::default() };
        Series { name: name.into(), points: points.into_iter().map(point).collect() }
    }
}

impl Bars {
    /// The length of each bar as a share of the longest; none without a figure. On a log scale bars begin at half of the
    /// shortest.
    pub(super) fn shares(&self) -> Vec<Vec<Option<f64>>> {
        let values = || self.groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.value);
        let scale = self.axis.scale.chosen(values());
        let positions = || values().filter_map(|value| scale.position(value));
        let most = positions().fold(f64::MIN, f64::max);
        let (begin, end) = match scale {
            Scale::Log => {
                let begin = positions().fold(f64::MAX, f64::min) / 2.0;
                (begin.log10(), most.log10())
            }
            _ => (0.0, most),
        };
        let share = |bar: &Bar| {
            let position = scale.position(bar.value?)?;
            let position = if scale == Scale::Log { position.log10() } else { position };
            Some(((position - begin) / (end - begin)).clamp(0.0, 1.0)).filter(|share| share.is_finite()).or(Some(0.0))
        };
        self.groups.iter().map(|group| group.bars.iter().map(share).collect()).collect()
    }
}

impl Bar {
    /// A bar with its figure at its end.
    pub fn of(value: f64) -> Self {
        Bar { value: Some(value), text: String::new() }
    }

    /// The text at its end.
    pub(super) fn label(&self, bars: &Bars) -> String {
        match (self.text.as_str(), self.value) {
            ("", Some(value)) => bars.axis.unit.text(value),
            ("", None) => "no figure".into(),
            (text, _) => text.into(),
        }
    }
}

impl Axis {
    /// An axis.
    pub fn new(label: &str, unit: Unit, scale: Scale) -> Self {
        Axis { label: label.into(), unit, scale }
    }
}

impl Scale {
    /// The scale for these figures.
    fn chosen(self, values: impl Iterator<Item = f64>) -> Scale {
        if self != Scale::Auto {
            return self;
        }
        let positive = values.filter(|value| Scale::Log.position(*value).is_some());
        let (least, most) = positive.fold((f64::MAX, 0.0), |(least, most), value| (value.min(least), value.max(most)));
        if most / least > LOG_FROM_RATIO { Scale::Log } else { Scale::Linear }
    }

    /// The position of a figure on a chosen scale; none if it cannot be shown.
    fn position(self, value: f64) -> Option<f64> {
        match self {
            Scale::Linear | Scale::Auto => Some(value).filter(|value| value.abs() < VALUE_MAX),
            Scale::Log => Some(value).filter(|value| (1.0 / VALUE_MAX..VALUE_MAX).contains(value)),
            Scale::Nines => Some(value).filter(|share| (0.0..1.0).contains(share)).map(|share| -(1.0 - share).log10()),
        }
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
}

/// Figures that differ more than this get a log scale: on a linear one the small ones would lie on the axis.
const LOG_FROM_RATIO: f64 = 30.0;
/// Figures beyond this, or below its reciprocal, are no measurement.
const VALUE_MAX: f64 = 1e30;
/// The least width of a chart.
const WIDTH_PIXELS_MIN: u32 = 240;

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale, points: &[(f64, f64)]) -> Plot {
        let (x, y) = (Axis::new("time", Unit::Seconds, Scale::Linear), Axis::new("p99", Unit::Micros, scale));
        Plot { title: String::new(), note: String::new(), x, y, series: vec![Series::line("a", points.to_vec())] }
    }

    fn bars(scale: Scale, values: &[Option<f64>]) -> Bars {
        let group =
            |value: &Option<f64>| Group { name: "a".into(), bars: vec![Bar { value: *value, ..Bar::default() }] };
        let axis = Axis::new("deliveries/s", Unit::Count, scale);
        let groups = values.iter().map(group).collect();
        Bars { title: "Broadcast".into(), note: String::new(), axis, series: Vec::new(), groups }
    }

    #[test]
    fn a_figure_that_cannot_be_shown_is_a_gap() {
        let values = [1.0, f64::NAN, f64::INFINITY, f64::MAX, 2.0];
        let points: Vec<(f64, f64)> = (0..).map(f64::from).zip(values).collect();
        let json = plot(Scale::Linear, &points).json();
        let gaps = json["series"][0]["points"].as_array().expect("points").iter().map(Value::is_null);
        assert_eq!(gaps.collect::<Vec<_>>(), [false, true, true, true, false]);
        assert!(plot(Scale::Linear, &[(0.0, f64::NAN)]).is_empty());
    }

    #[test]
    fn figures_that_differ_much_get_a_log_scale() {
        let scale = |points: &[(f64, f64)]| plot(Scale::Auto, points).json()["y"]["scale"].clone();
        assert_eq!(scale(&[(0.0, 1.0), (1.0, 29.0)]), "linear");
        assert_eq!(scale(&[(0.0, 1.0), (1.0, 31.0), (2.0, 0.0)]), "log");
        assert_eq!(scale(&[]), "linear");
    }

    #[test]
    fn percentiles_spread_towards_one() {
        let nines = [0.0, 0.9, 0.99, 0.999].map(|share| Scale::Nines.position(share).map(f64::round));
        assert_eq!(nines, [Some(0.0), Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!(Scale::Nines.position(1.0), None, "1 is infinitely far");
    }

    #[test]
    fn lengths_of_bars_are_in_proportion_or_visible_on_a_log_scale() {
        assert_eq!(bars(Scale::Linear, &[Some(50.0), Some(100.0), None]).shares(), [[Some(0.5)], [Some(1.0)], [None]]);
        let log = bars(Scale::Log, &[Some(10.0), Some(1e6)]).shares();
        assert!(log[0][0].is_some_and(|share| share > 0.02) && log[1][0] == Some(1.0), "{log:?}");
        assert_eq!(bars(Scale::Linear, &[Some(0.0)]).shares(), [[Some(0.0)]]);
    }
}
