//! Charts as SVG files, drawn by plotters.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{Axis, Bars, Chart, Plot, Point, Scale, Series, Unit};
use crate::report::columns::{shortened, wrapped};
use crate::report::html::escape;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

/// Draws a chart.
pub(super) fn draw(chart: &Chart, width: u32) -> String {
    let mut svg = String::new();
    // Writing to a string does not fail; a drawing error leaves the part drawn so far.
    let _ = on_canvas(chart, width, &mut svg);
    let style: String = COLORS.iter().map(|(light, dark)| dark_rule(*light, dark)).collect();
    let name = escape(chart.title());
    let head = format!("<svg role=\"img\" aria-label=\"{name}\" ");
    let svg = svg.trim_start().replacen("<svg ", &head, 1);
    let style = format!("><title>{name}</title><style>@media (prefers-color-scheme: dark) {{ {style}}}</style>");
    svg.replacen('>', &style, 1)
}

fn on_canvas(chart: &Chart, width: u32, svg: &mut String) -> Drawn {
    let letters = (width - 2 * EDGE as u32) as usize / LETTER_PIXELS;
    let note = if chart.note().is_empty() { Vec::new() } else { wrapped(chart.note(), letters) };
    let header = EDGE + 24 + 17 * note.len() as i32;
    let body = match chart {
        Chart::Plot(_) => (width * 52 / 100).clamp(240, 340) as i32 + LEGEND_PIXELS,
        Chart::Bars(bars) => Layout::new(bars, width as i32 - 2 * EDGE).height,
    };
    let root = SVGBackend::with_string(svg, (width, (header + body + EDGE) as u32)).into_drawing_area();
    root.fill(&GROUND)?;
    let title = shortened(chart.title(), letters * 3 / 4);
    root.draw(&Text::new(
        title,
        (EDGE, EDGE - 4),
        TextStyle::from(("sans-serif", 18.0, FontStyle::Bold).into_font()).color(&INK),
    ))?;
    for (at, line) in note.into_iter().enumerate() {
        root.draw(&Text::new(line, (EDGE, EDGE + 20 + 17 * at as i32), font(13.0, &SOFT)))?;
    }
    let area = root.margin(header, EDGE, EDGE, EDGE);
    match chart {
        Chart::Plot(plot) => draw_plot(plot, &area)?,
        Chart::Bars(bars) => draw_bars(bars, &area)?,
    }
    Ok(root.present()?)
}

fn draw_plot(plot: &Plot, area: &Area<'_>) -> Drawn {
    let names: Vec<&str> = plot.series.iter().map(|series| series.name.as_str()).collect();
    draw_legend(&names, area)?;
    let area = &area.margin(legend_height(&names, area.dim_in_pixel().0 as i32), 0, 0, 0);
    let (x, y) = plot.scales();
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let xs = range(x, points().filter_map(|point| x.position(point.x)));
    let ys = range(y, points().filter_map(|point| y.position(point.y)));
    match (x, y) {
        (Scale::Log, Scale::Log) => draw_axes(plot, area, xs.log_scale(), ys.log_scale()),
        (Scale::Log, _) => draw_axes(plot, area, xs.log_scale(), ys),
        (_, Scale::Log) => draw_axes(plot, area, xs, ys.log_scale()),
        _ => draw_axes(plot, area, xs, ys),
    }
}

/// The range of an axis: a log scale fits its figures, others begin at zero.
fn range(scale: Scale, positions: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, most) = positions.fold((f64::MAX, f64::MIN), |(least, most), at| (at.min(least), at.max(most)));
    match scale {
        _ if least > most => 0.1..1.0,
        Scale::Log => least / 1.3..most * 1.3,
        _ if most <= least.min(0.0) => least.min(0.0)..least.min(0.0) + 1.0,
        _ => least.min(0.0)..most * 1.04,
    }
}

fn draw_axes<X, Y>(plot: &Plot, area: &Area<'_>, xs: X, ys: Y) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let (x, y) = plot.scales();
    let mut chart = ChartBuilder::on(area).x_label_area_size(44).y_label_area_size(78).build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        .x_desc(label(&plot.x, x))
        .y_desc(label(&plot.y, y))
        .x_labels((area.dim_in_pixel().0 / 100).clamp(2, 7) as usize)
        .y_labels(6)
        .x_label_formatter(&|at| tick(plot.x.unit, x, *at))
        .y_label_formatter(&|at| tick(plot.y.unit, y, *at))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(BASE)
        .label_style(font(12.0, &SOFT))
        .axis_desc_style(font(13.0, &SOFT))
        .draw()?;
    let position = |point: &Point| Some((x.position(point.x)?, y.position(point.y)?));
    for (slot, Series { points, .. }) in plot.series.iter().enumerate() {
        let color = color(slot);
        let placed: Vec<_> = points.iter().map(|point| (point.hollow, position(point))).collect();
        let runs = placed.chunk_by(|a, b| a.1.is_some() == b.1.is_some());
        for part in runs.filter(|part| part[0].1.is_some()) {
            let line = part.iter().filter_map(|(_, at)| *at);
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        }
        if points.len() <= MARKED_POINTS_MAX {
            let marks = placed.iter().filter_map(|(hollow, at)| Some((*at.as_ref()?, *hollow)));
            chart.draw_series(marks.map(|(at, hollow)| {
                let style = if hollow { color.stroke_width(1) } else { color.filled() };
                match slot % 3 {
                    0 => Circle::new(at, 4, style).into_dyn(),
                    1 => TriangleMarker::new(at, 5, style).into_dyn(),
                    _ => Cross::new(at, 4, color.stroke_width(2)).into_dyn(),
                }
            }))?;
        }
    }
    Ok(())
}

fn label(axis: &Axis, scale: Scale) -> String {
    format!("{}{}", axis.label, if scale == Scale::Log { " (log scale)" } else { "" })
}

/// The label of a tick. On an axis of nines only whole numbers have one.
fn tick(unit: Unit, scale: Scale, at: f64) -> String {
    match scale {
        Scale::Nines if at.fract().abs() > 1e-6 => String::new(),
        Scale::Nines if at < 0.5 => "0 %".into(),
        Scale::Nines => format!("{:.*} %", (at - 2.0).max(0.0) as usize, 100.0 - 10f64.powf(2.0 - at)),
        _ if at == 0.0 => "0".into(),
        _ => unit.text(at),
    }
}

/// The positions of bars.
struct Layout {
    /// The width of the names to the left of the bars; zero if they are above.
    names: i32,
    /// The width of the figures at the ends.
    labels: i32,
    legend: i32,
    height: i32,
}

impl Layout {
    fn new(bars: &Bars, width: i32) -> Layout {
        let pixels = |text: &str| (text.chars().count() * LETTER_PIXELS) as i32;
        let widest = bars.groups.iter().map(|group| pixels(&group.name)).max().unwrap_or(0);
        let single = bars.series.len() <= 1;
        let names = if single && widest <= width / 3 { widest + 12 } else { 0 };
        let all = bars.groups.iter().flat_map(|group| &group.bars);
        let labels = all.map(|bar| pixels(&bar.label(bars))).max().unwrap_or(0).min(width / 2) + 10;
        let series: Vec<&str> = bars.series.iter().map(String::as_str).collect();
        let legend = legend_height(&series, width);
        let group = |count: usize| count as i32 * BAR_PIXELS + if names > 0 { 6 } else { 28 };
        let height = legend + bars.groups.iter().map(|one| group(one.bars.len())).sum::<i32>();
        Layout { names, labels, legend, height }
    }
}

fn draw_bars(bars: &Bars, area: &Area<'_>) -> Drawn {
    let width = area.dim_in_pixel().0 as i32;
    let layout = Layout::new(bars, width);
    draw_legend(&bars.series.iter().map(String::as_str).collect::<Vec<_>>(), area)?;
    let room = f64::from((width - layout.names - layout.labels).max(20));
    let mut y = layout.legend;
    for (group, shares) in bars.groups.iter().zip(bars.shares()) {
        if layout.names == 0 {
            y += 20;
        }
        let at = if layout.names > 0 { y + 2 } else { y - 17 };
        area.draw(&Text::new(shortened(&group.name, width as usize / LETTER_PIXELS), (0, at), font(13.0, &INK)))?;
        for (slot, (bar, share)) in group.bars.iter().zip(shares).enumerate() {
            let end = layout.names + share.map_or(0, |share| ((share * room) as i32).max(2));
            if share.is_some() {
                let corners = [(layout.names, y), (end, y + BAR_PIXELS - 3)];
                area.draw(&Rectangle::new(corners, color(slot).filled()))?;
            }
            area.draw(&Text::new(bar.label(bars), (end + 6, y + 2), font(13.0, &INK)))?;
            y += BAR_PIXELS;
        }
        y += if layout.names > 0 { 6 } else { 8 };
    }
    Ok(())
}

/// The positions of a legend's names, in rows of this width; empty for a single name.
fn legend(names: &[&str], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut y, mut points) = (0, 0, Vec::new());
    for name in names.iter().filter(|_| names.len() > 1) {
        let next = x + (name.chars().count() * LETTER_PIXELS) as i32 + 34;
        if next > width && x > 0 {
            y += 20;
            x = 0;
        }
        points.push((x, y));
        x += (name.chars().count() * LETTER_PIXELS) as i32 + 34;
    }
    points
}

fn legend_height(names: &[&str], width: i32) -> i32 {
    legend(names, width).last().map_or(0, |(_, y)| y + 26)
}

fn draw_legend(names: &[&str], area: &Area<'_>) -> Drawn {
    let points = legend(names, area.dim_in_pixel().0 as i32);
    for (slot, ((x, y), name)) in points.into_iter().zip(names).enumerate() {
        area.draw(&Rectangle::new([(x, y + 2), (x + 12, y + 14)], color(slot).filled()))?;
        area.draw(&Text::new((*name).to_owned(), (x + 18, y + 1), font(13.0, &INK)))?;
    }
    Ok(())
}

fn font(size: f64, color: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(color)
}

fn color(slot: usize) -> RGBColor {
    COLORS[slot % SERIES].0
}

/// A rule that replaces a colour on dark backgrounds.
fn dark_rule(RGBColor(red, green, blue): RGBColor, dark: &str) -> String {
    let light = format!("#{red:02X}{green:02X}{blue:02X}");
    format!("[fill=\"{light}\"] {{ fill: {dark} }} [stroke=\"{light}\"] {{ stroke: {dark} }} ")
}

const INK: RGBColor = RGBColor(0x13, 0x22, 0x2c);
const SOFT: RGBColor = RGBColor(0x4f, 0x61, 0x6c);
const GRID: RGBColor = RGBColor(0xe3, 0xea, 0xec);
const BASE: RGBColor = RGBColor(0x8f, 0xa1, 0xaa);
const GROUND: RGBColor = WHITE;
/// The number of colours of series.
const SERIES: usize = 6;
/// Colours on light and on dark backgrounds. Those of the series, which come first, are Okabe and Ito's, which colour-blind
/// people can distinguish, with a contrast of 3 or more (WCAG 1.4.11).
const COLORS: [(RGBColor, &str); 11] = [
    (RGBColor(0x00, 0x69, 0xa8), "#56b4e9"),
    (RGBColor(0xc6, 0x4e, 0x00), "#ff9a52"),
    (RGBColor(0x00, 0x80, 0x5e), "#35d0a2"),
    (RGBColor(0xa4, 0x48, 0x8a), "#e79bcb"),
    (RGBColor(0x8a, 0x6a, 0x00), "#f0d04a"),
    (RGBColor(0x3f, 0x8f, 0xc4), "#a9b8ff"),
    (INK, "#e5edf1"),
    (SOFT, "#9aacb8"),
    (GRID, "#223140"),
    (BASE, "#5b6f7e"),
    (GROUND, "#111a24"),
];
/// The space around a chart.
const EDGE: i32 = 18;
const BAR_PIXELS: i32 = 22;
/// Room for a row of a legend above a plot.
const LEGEND_PIXELS: i32 = 26;
/// The width of an average letter.
const LETTER_PIXELS: usize = 7;
/// Lines with more points than this have no marks: they would hide the line.
const MARKED_POINTS_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<Series>) -> Chart {
        let x = Axis::new("time", Unit::Seconds, Scale::Linear);
        let y = Axis::new("p99", Unit::Micros, Scale::Auto);
        Chart::Plot(Plot { title: "p99 over time".into(), note: "a note".into(), x, y, series })
    }

    #[test]
    fn a_gap_in_the_figures_is_a_gap_in_the_line() {
        let points: Vec<(f64, f64)> =
            (0..60).map(|at| (f64::from(at), if at == 30 { f64::NAN } else { 10.0 })).collect();
        let svg = plot(vec![Series::line("a", points)]).file(500);
        let lines = svg.split("<polyline").skip(1).map(|line| line.split("/>").next().unwrap_or_default());
        assert_eq!(lines.filter(|line| line.contains("#0069A8")).count(), 2);
    }

    #[test]
    fn a_legend_stands_where_there_is_more_than_one_line() {
        let line = |name| Series::line(name, [(0.0, 1.0), (1.0, 2.0)]);
        assert!(!plot(vec![line("only")]).file(500).contains("only"));
        let two = plot(vec![line("first"), line("second")]).file(500);
        assert!(two.contains("first") && two.contains("second"));
    }

    #[test]
    fn ticks_of_an_axis_of_nines_are_percentiles() {
        let ticks = [0.0, 1.0, 1.5, 2.0, 4.0].map(|at| tick(Unit::Count, Scale::Nines, at));
        assert_eq!(ticks, ["0 %", "90 %", "", "99 %", "99.99 %"]);
    }

    #[test]
    fn every_scale_takes_every_figure() {
        for scale in [Scale::Linear, Scale::Log, Scale::Auto, Scale::Nines] {
            for values in
                [&[][..], &[0.0], &[-5.0, 3.0], &[f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE], &[0.5]]
            {
                let points = values.iter().map(|value| (*value, *value));
                let axis = Axis::new("figures", Unit::Count, scale);
                let series = vec![Series::line("a", points)];
                let plot = Plot { title: "t".into(), note: String::new(), x: axis.clone(), y: axis, series };
                assert!(Chart::Plot(plot).file(300).ends_with("</svg>\n"), "{scale:?} {values:?}");
            }
        }
    }
}
