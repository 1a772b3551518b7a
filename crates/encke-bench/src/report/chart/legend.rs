//! What the lines and bars mean, in rows above them.

use super::draw::{DASHES, SLOTS, Svg, cut_to, text_width};

/// An entry of a legend.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    pub(super) swatch: Swatch,
}

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swatch {
    /// A piece of the line with this number, with its mark if it has marks.
    Line(usize, bool),
    /// The mark alone.
    Mark(usize),
    /// A bubble.
    Bubble(usize),
    /// A piece of the line that all others are to be compared with.
    Reference,
    /// A piece of a bar.
    Bar(usize),
}

impl Swatch {
    /// Its width with the space after it.
    fn width(self) -> f64 {
        match self {
            Swatch::Line(..) | Swatch::Reference => 34.0,
            Swatch::Mark(_) | Swatch::Bubble(_) | Swatch::Bar(_) => 19.0,
        }
    }
}

/// Draws the entries, as many a row as fit; no entry is wider than a row.
pub(super) fn draw(entries: &[Entry], svg: &mut Svg) {
    let mut x = svg.edge;
    svg.skip(12.0);
    for entry in entries {
        let swatch_width = entry.swatch.width();
        let name = cut_to(entry.name, svg.inner() - swatch_width - 4.0);
        let width = swatch_width + text_width(&name);
        if x > svg.edge && x + width > svg.right() {
            x = svg.edge;
            svg.skip(ROW);
        }
        swatch(entry.swatch, x, svg);
        svg.text(x + swatch_width, svg.y, "start", "name", &name);
        x += width + GAP;
    }
    svg.skip(10.0);
}

/// The class that colours the series with this number.
pub(super) fn class(slot: usize) -> String {
    format!("s{}", slot % SLOTS)
}

fn swatch(swatch: Swatch, x: f64, svg: &mut Svg) {
    let middle = svg.y - 4.0;
    let width = swatch.width();
    let ends = [Some((x + 1.0, middle)), Some((x + width - 7.0, middle))];
    let centre = (x + (width - 6.0) / 2.0, middle);
    match swatch {
        Swatch::Line(slot, marked) => {
            svg.open(&class(slot));
            svg.path(&ends, "line", DASHES[slot % SLOTS], None);
            if marked {
                svg.mark(centre, slot, "mark", "");
            }
        }
        Swatch::Mark(slot) => {
            svg.open(&class(slot));
            svg.mark(centre, slot, "mark", "");
        }
        Swatch::Bubble(slot) => {
            svg.open(&class(slot));
            svg.circle(centre, 5.5, "bubble", "");
        }
        Swatch::Reference => {
            svg.open("reference");
            svg.path(&ends, "line", REFERENCE_DASH, None);
        }
        Swatch::Bar(slot) => {
            svg.open(&class(slot));
            svg.bar(x, middle - 6.0, 12.0, 12.0, "bar");
        }
    }
    svg.close();
}

/// Dash of the line to compare with.
pub(super) const REFERENCE_DASH: &str = "3 3";

/// Between entries.
const GAP: f64 = 16.0;

/// Between rows.
const ROW: f64 = 19.0;
