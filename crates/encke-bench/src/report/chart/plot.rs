//! Lines, dots and bubbles over two axes.

use super::draw::{DASHES, SLOTS, Svg, cut_to, text_width};
use super::legend::{self, Entry, REFERENCE_DASH, Swatch, class};
use super::scale::{Axis, Ruler, Way};

/// Series over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows, in a few words.
    pub title: String,
    /// What has to be known to read it; may be empty.
    pub note: String,
    /// The axis across.
    pub x: Axis,
    /// The axis up.
    pub y: Axis,
    /// What is drawn; beyond the sixth, colours begin again.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Its points, in the order in which a line goes through them.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line, with marks where there are few points.
    Line,
    /// Marks alone.
    Dots,
    /// Circles whose areas are the points' sizes, each with its note beside it where there is room.
    Bubbles,
    /// A quiet line that the others are compared with, such as what was planned.
    Reference,
}

/// A point of a series. One that has no place on the axes, such as NaN, is a gap in the line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Area of a bubble, in any unit.
    pub size: f64,
    /// What is told about the point besides its place; may be empty.
    pub note: String,
    /// Marked as one that does not count fully: its mark is hollow.
    pub hollow: bool,
}

impl Series {
    /// A line through points.
    pub fn line(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let point = |(x, y)| Point { x, y, ..Point::default() };
        Series { name: name.into(), style: Style::Line, points: points.into_iter().map(point).collect() }
    }

    fn marked(&self) -> bool {
        self.style == Style::Dots || self.style == Style::Line && self.points.len() <= MARKED_POINTS_MAX
    }
}

impl Plot {
    /// Whether there is anything to see: a point with a place.
    pub fn is_empty(&self) -> bool {
        let points =
            self.series.iter().filter(|series| series.style != Style::Reference).flat_map(|series| &series.points);
        !points.into_iter().any(|point| point.x.is_finite() && point.y.is_finite())
    }
}

/// The place of the plot's ground on the drawing, and its rulers.
struct Ground {
    x: Ruler,
    y: Ruler,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

pub(super) fn draw(plot: &Plot, svg: &mut Svg) {
    if plot.series.len() > 1 {
        legend::draw(&entries(plot), svg);
    }
    let ground = ground(plot, svg);
    axes(plot, &ground, svg);
    svg.tell("x", &ground.x.told(plot.x.unit));
    svg.tell("y", &ground.y.told(plot.y.unit));
    let mut slot = 0;
    let mut labels = Labels::default();
    for series in &plot.series {
        let class = if series.style == Style::Reference { "reference".into() } else { class(slot) };
        svg.open(&class);
        match series.style {
            Style::Bubbles => bubbles(series, &ground, largest(plot), svg, &mut labels),
            Style::Line | Style::Dots | Style::Reference => line(series, slot, plot, &ground, svg),
        }
        svg.close();
        slot += usize::from(series.style != Style::Reference);
    }
    labels.draw(&ground, svg);
    svg.y = ground.bottom + 38.0;
}

fn entries(plot: &Plot) -> Vec<Entry<'_>> {
    let mut slot = 0;
    let mut entries = Vec::new();
    for series in &plot.series {
        let swatch = match series.style {
            Style::Line => Swatch::Line(slot, series.marked()),
            Style::Dots => Swatch::Mark(slot),
            Style::Bubbles => Swatch::Bubble(slot),
            Style::Reference => Swatch::Reference,
        };
        slot += usize::from(series.style != Style::Reference);
        entries.push(Entry { name: &series.name, swatch });
    }
    entries
}

fn ground(plot: &Plot, svg: &mut Svg) -> Ground {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let (xs, ys): (Vec<f64>, Vec<f64>) = points().map(|point| (point.x, point.y)).unzip();
    // Bubbles at the ends of an axis need room beyond them.
    let has_bubbles = plot.series.iter().any(|series| series.style == Style::Bubbles);
    let room = if has_bubbles { bubble_radius(svg) } else { 0.0 };
    let height = (svg.inner() * 0.52).clamp(GROUND_PIXELS_MIN, GROUND_PIXELS_MAX);
    let top = svg.y + LABEL_ROW;
    let bottom = top + height;
    let y = Ruler::new(&plot.y, &ys, (bottom - room, top + room), Way::Up);
    let labels = y.ticks.iter().map(|tick| text_width(&tick.1)).fold(0.0, f64::max);
    let left = svg.edge + labels + 8.0;
    // The last label across may be as wide as this to the right of its tick.
    let right = svg.right() - 20.0;
    let x = Ruler::new(&plot.x, &xs, (left + room, right - room), Way::Across);
    Ground { x, y, left, right, top, bottom }
}

fn axes(plot: &Plot, ground: &Ground, svg: &mut Svg) {
    let (left, right, bottom) = (ground.left, ground.right, ground.bottom);
    let up = cut_to(&named(&plot.y, &ground.y), svg.inner());
    svg.text(svg.edge, ground.top - 12.0, "start", "label", &up);
    for (y, label) in &ground.y.ticks {
        svg.line((left, *y), (right, *y), "grid");
        svg.text(left - 8.0, y + 4.0, "end", "tick", label);
    }
    for (x, label) in &ground.x.ticks {
        svg.line((*x, ground.top), (*x, bottom), "grid");
        // The first and the last label stay within the drawing.
        let half = text_width(label) / 2.0;
        let x = x.clamp(svg.edge + half, (svg.right() - half).max(svg.edge + half));
        svg.text(x, bottom + 17.0, "middle", "tick", label);
    }
    svg.line((left, bottom), (right, bottom), "base");
    let across = cut_to(&named(&plot.x, &ground.x), svg.inner());
    let half = text_width(&across) / 2.0;
    let middle = ((left + right) / 2.0).clamp(svg.edge + half, (svg.right() - half).max(svg.edge + half));
    svg.text(middle, bottom + 35.0, "middle", "label", &across);
}

/// The axis's label with the unit of its ticks, and a word where ratios are drawn.
fn named(axis: &Axis, ruler: &Ruler) -> String {
    let unit = if ruler.unit.is_empty() { String::new() } else { format!(", {}", ruler.unit) };
    let log = if ruler.is_log() { " (log scale)" } else { "" };
    format!("{}{unit}{log}", axis.label)
}

fn line(series: &Series, slot: usize, plot: &Plot, ground: &Ground, svg: &mut Svg) {
    let places: Vec<Option<(f64, f64)>> = series.points.iter().map(|point| ground.at(point)).collect();
    match series.style {
        Style::Reference => svg.path(&thinned(&places), "line", REFERENCE_DASH, None),
        Style::Line => {
            // A few marks tell their figures themselves.
            let name = Some(series.name.as_str()).filter(|_| !series.marked());
            svg.path(&thinned(&places), "line", DASHES[slot % SLOTS], name);
        }
        Style::Dots | Style::Bubbles => {}
    }
    if !series.marked() {
        return;
    }
    for (point, place) in series.points.iter().zip(places) {
        let Some(place) = place else { continue };
        let (x, y) = (plot.x.unit.text(point.x), plot.y.unit.text(point.y));
        let note = match point.note.as_str() {
            "" => format!("{}: {x}, {y}", series.name),
            note => note.into(),
        };
        svg.mark(place, slot, if point.hollow { "hollow" } else { "mark" }, &note);
    }
}

impl Ground {
    fn at(&self, point: &Point) -> Option<(f64, f64)> {
        Some((self.x.at(point.x)?, self.y.at(point.y)?))
    }
}

/// At most four points per two pixels across: the first, the lowest, the highest and the last; more cannot be seen.
fn thinned(places: &[Option<(f64, f64)>]) -> Vec<Option<(f64, f64)>> {
    if places.len() <= DENSE_POINTS {
        return places.into();
    }
    let column = |place: &Option<(f64, f64)>| place.map(|(x, _)| (x / 2.0).floor() as i64);
    let mut thin = Vec::new();
    for chunk in places.chunk_by(|a, b| column(a) == column(b)) {
        let height = |at: &usize| chunk[*at].map_or(0.0, |place| place.1);
        let by_height = |a: &usize, b: &usize| height(a).total_cmp(&height(b));
        let lowest = (0..chunk.len()).max_by(by_height).unwrap_or(0);
        let highest = (0..chunk.len()).min_by(by_height).unwrap_or(0);
        let mut kept = vec![0, lowest, highest, chunk.len() - 1];
        kept.sort_unstable();
        kept.dedup();
        thin.extend(kept.into_iter().map(|at| chunk[at]));
    }
    thin
}

fn bubbles(series: &Series, ground: &Ground, largest: f64, svg: &mut Svg, labels: &mut Labels) {
    let full = bubble_radius(svg);
    for point in &series.points {
        let Some(place) = ground.at(point) else { continue };
        let share = if largest > 0.0 && point.size.is_finite() { (point.size.max(0.0) / largest).sqrt() } else { 0.0 };
        let radius = (share * full).clamp(BUBBLE_PIXELS_MIN, full);
        let note = if point.note.is_empty() { &series.name } else { &point.note };
        svg.circle(place, radius, "bubble", &format!("{}: {note}", series.name));
        labels.bubbles.push((place, radius, point.note.clone()));
    }
}

fn bubble_radius(svg: &Svg) -> f64 {
    (svg.inner() / 16.0).clamp(14.0, 36.0)
}

fn largest(plot: &Plot) -> f64 {
    let sizes = plot.series.iter().flat_map(|series| &series.points).map(|point| point.size);
    sizes.filter(|size| size.is_finite()).fold(0.0, f64::max)
}

/// Notes beside bubbles, drawn last so that none lies under a bubble.
#[derive(Default)]
struct Labels {
    bubbles: Vec<((f64, f64), f64, String)>,
}

impl Labels {
    fn draw(&self, ground: &Ground, svg: &mut Svg) {
        let circle = |((x, y), radius, _): &((f64, f64), f64, String)| [x - radius, y - radius, x + radius, y + radius];
        let mut taken: Vec<[f64; 4]> = self.bubbles.iter().map(circle).collect();
        for ((x, y), radius, note) in &self.bubbles {
            let width = text_width(note);
            let box_at = |left: f64, base: f64| [left, base - 11.0, left + width, base + 3.0];
            let places = [
                box_at(x + radius + 4.0, y + 4.0),
                box_at(x - radius - 4.0 - width, y + 4.0),
                box_at(x - width / 2.0, y - radius - 5.0),
                box_at(x - width / 2.0, y + radius + 13.0),
            ];
            let inside = |b: &[f64; 4]| {
                b[0] >= ground.left && b[2] <= svg.right() && b[1] >= ground.top && b[3] <= ground.bottom
            };
            let free = |b: &[f64; 4]| taken.iter().all(|t| b[2] < t[0] || t[2] < b[0] || b[3] < t[1] || t[3] < b[1]);
            if let Some(found) = places.into_iter().find(|place| inside(place) && free(place)).filter(|_| width > 0.0) {
                svg.text(found[0], found[3] - 3.0, "start", "value", note);
                taken.push(found);
            }
        }
    }
}

/// Lines with more points than this have no marks: they would hide the line.
const MARKED_POINTS_MAX: usize = 24;

/// Lines with more points than this are thinned.
const DENSE_POINTS: usize = 400;

const GROUND_PIXELS_MIN: f64 = 180.0;
const GROUND_PIXELS_MAX: f64 = 300.0;

/// Height of the row that names the axis up.
const LABEL_ROW: f64 = 26.0;

const BUBBLE_PIXELS_MIN: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::super::scale::{Scale, Unit};
    use super::super::{Chart, STYLE};
    use super::*;

    fn plot(series: Vec<Series>) -> Plot {
        let x = Axis::new("seconds", Unit::Seconds, Scale::Linear);
        let y = Axis::new("p99", Unit::Micros, Scale::Auto);
        Plot { title: "p99 over time".into(), note: "a note".into(), x, y, series }
    }

    #[test]
    fn a_gap_in_the_figures_is_a_gap_in_the_line() {
        let points = [(0.0, 10.0), (1.0, 20.0), (2.0, f64::NAN), (3.0, 30.0), (4.0, 20.0)];
        let svg = Chart::Plot(plot(vec![Series::line("a", points)])).inline(500);
        let line = svg.split("<path d=\"").nth(1).expect("a line");
        let steps = line.split('"').next().expect("its steps");
        assert_eq!((steps.matches('M').count(), steps.matches('L').count()), (2, 2), "{steps}");
    }

    #[test]
    fn ten_thousand_points_are_drawn_as_what_can_be_seen() {
        let spike = |at: u32| if at == 5_000 { 9_999.0 } else { 100.0 + f64::from(at % 7) };
        let points = (0..10_000).map(|at| (f64::from(at), spike(at)));
        let svg = Chart::Plot(plot(vec![Series::line("a", points)])).inline(500);
        assert!(svg.len() < 30_000, "{} bytes", svg.len());
        let top = Chart::Plot(plot(vec![Series::line("a", [(0.0, 100.0), (5_000.0, 9_999.0), (9_999.0, 100.0)])]))
            .inline(500);
        let highest = |svg: &str| {
            let steps = svg.split("<path d=\"").nth(1).expect("a line").split('"').next().expect("steps").to_owned();
            let heights =
                steps.split(['M', 'L']).filter_map(|step| step.trim_end_matches("h0").split(' ').nth(1)?.parse().ok());
            heights.fold(f64::MAX, f64::min)
        };
        assert_eq!(highest(&svg), highest(&top), "the spike is still there");
    }

    #[test]
    fn a_file_brings_its_style_and_its_ground_and_a_page_does_not_need_them() {
        let chart = Chart::Plot(plot(vec![Series::line("a", [(0.0, 1.0), (1.0, 2.0)])]));
        assert!(chart.file(640).contains(STYLE) && chart.file(640).contains("class=\"back\""));
        assert!(chart.file(640).contains("p99 over time</text>"));
        assert!(!chart.inline(640).contains("<style>") && !chart.inline(640).contains("class=\"back\""));
    }

    #[test]
    fn a_legend_stands_where_there_is_more_than_one_line() {
        let line = |name| Series::line(name, [(0.0, 1.0), (1.0, 2.0)]);
        assert!(!Chart::Plot(plot(vec![line("only")])).inline(400).contains(">only</text>"));
        let two = Chart::Plot(plot(vec![line("first"), line("second")])).inline(400);
        assert!(two.contains(">first</text>") && two.contains(">second</text>") && two.contains("stroke-dasharray"));
    }

    #[test]
    fn labels_of_bubbles_do_not_overlap() {
        let point = |x: f64| Point { x, y: 10.0, size: 5.0, note: format!("bubble {x}"), hollow: false };
        let points = (0..40).map(|at| point(f64::from(at))).collect();
        let series = Series { name: "crowd".into(), style: Style::Bubbles, points };
        let svg = Chart::Plot(plot(vec![series])).inline(360);
        assert_eq!(svg.matches("<circle").count(), 40);
        assert!(svg.matches("class=\"value\"").count() < 40);
    }
}
