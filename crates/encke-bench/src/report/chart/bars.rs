//! Groups of bars that run to the right, each with its figure at its end.

use super::draw::{Svg, cut_to, text_width};
use super::legend::{self, Entry, Swatch, class};
use super::scale::{Axis, Ruler, Scale, Way};

/// Groups of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// What it shows, in a few words.
    pub title: String,
    /// What has to be known to read it; may be empty.
    pub note: String,
    /// The axis of the bars' lengths.
    pub axis: Axis,
    /// Names of the bars of each group; beyond the sixth, colours begin again.
    pub series: Vec<String>,
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they are about.
    pub name: String,
    /// A bar per series.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// Its length; none where there is no figure.
    pub value: Option<f64>,
    /// What stands at its end; empty for the figure with its unit.
    pub text: String,
}

impl Bar {
    /// A bar with its figure at its end.
    pub fn of(value: f64) -> Self {
        Bar { value: Some(value), text: String::new() }
    }

    fn told(&self, bars: &Bars) -> String {
        match (self.text.as_str(), self.value) {
            ("", Some(value)) => bars.axis.unit.text(value),
            ("", None) => "no figure".into(),
            (text, _) => text.into(),
        }
    }
}

/// Where bars begin, and how long they are.
struct Lengths {
    left: f64,
    ruler: Ruler,
    /// Room for what stands at a bar's end.
    told: f64,
}

pub(super) fn draw(bars: &Bars, svg: &mut Svg) {
    let single = bars.series.len() <= 1;
    if !single {
        let names = bars.series.iter().enumerate();
        let entries: Vec<Entry> = names.map(|(slot, name)| Entry { name, swatch: Swatch::Bar(slot) }).collect();
        legend::draw(&entries, svg);
    }
    // One bar a group, with a short name: the name stands beside it, otherwise above.
    let widest = bars.groups.iter().map(|group| text_width(&group.name)).fold(0.0, f64::max);
    let beside = single && widest <= svg.inner() * 0.3;
    let lengths = lengths(bars, if beside { widest + 12.0 } else { 0.0 }, svg);
    let log = lengths.ruler.is_log();
    let grid_from = svg.y;
    // The grid lies under the bars, but its height is known only after them: draw bars on a sheet of their own.
    let mut sheet = Svg::new(svg.inner() + 2.0 * svg.edge, svg.edge);
    sheet.y = svg.y;
    for group in &bars.groups {
        draw_group(bars, group, beside, &lengths, &mut sheet);
    }
    if log {
        grid(&lengths, grid_from, sheet.y, svg);
    }
    svg.append(sheet);
    if log {
        svg.skip(18.0);
        let label = cut_to(&format!("{} (log scale)", bars.axis.label), svg.inner());
        svg.text(svg.edge, svg.y + 16.0, "start", "label", &label);
        svg.skip(18.0);
    }
}

fn lengths(bars: &Bars, name: f64, svg: &Svg) -> Lengths {
    let all = || bars.groups.iter().flat_map(|group| &group.bars);
    let told = all().map(|bar| text_width(&bar.told(bars))).fold(0.0, f64::max).min(svg.inner() * 0.45);
    let left = svg.edge + name;
    let values: Vec<f64> = all().filter_map(|bar| bar.value).collect();
    let right = (svg.right() - told - 8.0).max(left + 20.0);
    let ruler = Ruler::new(&bars.axis, &values, (left, right), Way::Across);
    // On a log scale the least mark is where bars begin; a decade below it, the shortest can still be seen.
    let least = values.iter().copied().filter(|value| *value > 0.0).reduce(f64::min);
    let ruler = match least.filter(|_| ruler.is_log()) {
        Some(least) => {
            let axis = Axis { scale: Scale::Log, ..bars.axis.clone() };
            let values: Vec<f64> = values.into_iter().chain([least / 2.0]).collect();
            Ruler::new(&axis, &values, (left, right), Way::Across)
        }
        None => ruler,
    };
    Lengths { left, ruler, told }
}

fn draw_group(bars: &Bars, group: &Group, beside: bool, lengths: &Lengths, svg: &mut Svg) {
    if beside {
        svg.text(svg.edge, svg.y + BAR - 7.0, "start", "name", &group.name);
    } else {
        svg.skip(14.0);
        svg.text(svg.edge, svg.y, "start", "name", &cut_to(&group.name, svg.inner()));
        svg.skip(6.0);
    }
    for (slot, bar) in group.bars.iter().enumerate() {
        let end = bar.value.and_then(|value| lengths.ruler.at(value)).unwrap_or(lengths.left);
        if bar.value.is_some() {
            svg.open(&class(slot));
            svg.bar(lengths.left, svg.y, (end - lengths.left).max(1.5), BAR - 2.0, "bar");
            svg.close();
        }
        let told = cut_to(&bar.told(bars), lengths.told.max(20.0));
        svg.text(end.max(lengths.left) + 6.0, svg.y + BAR - 7.0, "start", "value", &told);
        svg.skip(BAR);
    }
    svg.skip(if beside { 6.0 } else { 8.0 });
}

fn grid(lengths: &Lengths, from: f64, to: f64, svg: &mut Svg) {
    for (x, label) in &lengths.ruler.ticks {
        svg.line((*x, from), (*x, to), "grid");
        let half = text_width(label) / 2.0;
        svg.text(x.clamp(svg.edge + half, svg.right() - half), to + 16.0, "middle", "tick", label);
    }
}

/// Height of a bar with the space under it.
const BAR: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::super::Chart;
    use super::super::scale::Unit;
    use super::*;

    fn bars(scale: Scale, values: &[f64]) -> Bars {
        let group = |value: &f64| Group { name: format!("group {value}"), bars: vec![Bar::of(*value)] };
        let axis = Axis::new("deliveries/s", Unit::Count, scale);
        let groups = values.iter().map(group).collect();
        Bars { title: "Broadcast".into(), note: String::new(), axis, series: vec!["encke".into()], groups }
    }

    fn widths(svg: &str) -> Vec<f64> {
        let width = |bar: &str| bar.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        svg.split("<rect").skip(1).filter_map(width).collect()
    }

    #[test]
    fn lengths_are_in_proportion() {
        let widths = widths(&Chart::Bars(bars(Scale::Linear, &[50.0, 100.0])).inline(500));
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.02, "{widths:?}");
    }

    #[test]
    fn on_a_log_scale_the_small_ones_can_be_seen() {
        let widths = widths(&Chart::Bars(bars(Scale::Log, &[10.0, 1_000_000.0])).inline(500));
        assert!(widths[0] > 10.0 && widths[1] > 2.0 * widths[0], "{widths:?}");
    }

    #[test]
    fn a_missing_figure_is_said_and_not_drawn() {
        let mut bars = bars(Scale::Linear, &[50.0]);
        bars.groups[0].bars[0] = Bar::default();
        let svg = Chart::Bars(bars).inline(500);
        assert!(svg.contains("no figure") && !svg.contains("<rect"), "{svg}");
    }
}
