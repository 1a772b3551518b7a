//! Charts as SVG: lines, dots and bubbles over two axes, and groups of bars.
//!
//! A chart is data; [`Chart::inline`] draws it for a page that holds [`STYLE`], [`Chart::file`] as a file of its own
//! that reads well on white and on dark. Every width is drawn anew, so that letters keep their size on a phone.
//!
//! Lines differ in colour, dash and mark, so that they can be told apart in print and by the colour-blind.

mod bars;
mod draw;
mod legend;
mod plot;
mod scale;

pub use bars::{Bar, Bars, Group};
pub use draw::escape;
pub use plot::{Plot, Point, Series, Style};
pub use scale::{Axis, Scale, Unit};

use draw::{Svg, wrapped_to};

/// A chart of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Over two axes.
    Plot(Plot),
    /// Bars that run to the right.
    Bars(Bars),
}

impl Chart {
    /// What the chart shows, in a few words.
    pub fn title(&self) -> &str {
        match self {
            Chart::Plot(plot) => &plot.title,
            Chart::Bars(bars) => &bars.title,
        }
    }

    /// What has to be known to read it; may be empty.
    pub fn note(&self) -> &str {
        match self {
            Chart::Plot(plot) => &plot.note,
            Chart::Bars(bars) => &bars.note,
        }
    }

    /// An `<svg>` of so many pixels for a page that holds [`STYLE`] and says title and note itself.
    pub fn inline(&self, width: u32) -> String {
        let mut svg = Svg::new(f64::from(width.max(WIDTH_PIXELS_MIN)), INLINE_EDGE);
        self.draw(&mut svg);
        svg.finish(self.title(), None)
    }

    /// A whole file with title, note, style and ground.
    pub fn file(&self, width: u32) -> String {
        let mut svg = Svg::new(f64::from(width.max(WIDTH_PIXELS_MIN)), FILE_EDGE);
        svg.skip(4.0);
        for line in wrapped_to(self.title(), svg.inner() * 12.0 / TITLE_PIXELS / 1.06) {
            svg.skip(TITLE_PIXELS + 3.0);
            svg.text(svg.edge, svg.y, "start", "title", &line);
        }
        for line in wrapped_to(self.note(), svg.inner()).iter().filter(|line| !line.is_empty()) {
            svg.skip(17.0);
            svg.text(svg.edge, svg.y, "start", "note", line);
        }
        svg.skip(14.0);
        self.draw(&mut svg);
        svg.skip(FILE_EDGE - 6.0);
        svg.finish(self.title(), Some(STYLE)) + "\n"
    }

    fn draw(&self, svg: &mut Svg) {
        match self {
            Chart::Plot(plot) => plot::draw(plot, svg),
            Chart::Bars(bars) => bars::draw(bars, svg),
        }
    }
}

/// How charts look, for a page's style sheet; [`Chart::file`] brings it along.
///
/// The colours are Okabe and Ito's, which the colour-blind can tell apart, made darker on white and lighter on dark until
/// each has a contrast of 3 or more (WCAG 1.4.11).
pub const STYLE: &str = include_str!("chart.css");

/// Narrower than this no chart is drawn.
pub const WIDTH_PIXELS_MIN: u32 = 240;

/// Space around a chart in a page, which has space of its own.
const INLINE_EDGE: f64 = 2.0;

/// Space around a chart in a file.
const FILE_EDGE: f64 = 18.0;

const TITLE_PIXELS: f64 = 16.0;
