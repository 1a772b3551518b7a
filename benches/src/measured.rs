//! A page about demanded figures: a table, a chart, and the command to repeat them.

use std::fs;
use std::path::Path;

use encke_bench::machine;
use encke_bench::problem::Problem;
use encke_bench::report::chart::Chart;
use encke_bench::report::units::number;

/// The content of a page.
pub struct Measured {
    /// The name of its files, without their endings.
    pub name: &'static str,
    /// The title of the page.
    pub title: &'static str,
    /// The table, in Markdown.
    pub table: String,
    /// True if all demanded figures were measured and hold.
    pub all_hold: bool,
    /// The chart and its description; none if nothing was measured.
    pub chart: Option<(Chart, &'static str)>,
    /// The procedure, in Markdown.
    pub explanation: &'static str,
    /// The median number of cores that other processes used.
    pub others_cores: Option<f64>,
}

/// The demand on a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// At least this multiple of the figure beside it.
    TimesAtLeast(f64),
    /// At most this multiple of the figure beside it.
    TimesAtMost(f64),
    /// At most this much more than the figure beside it.
    MoreAtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// Only shown.
    Nothing,
}

impl Wanted {
    /// The table's words about a figure, and true if the figure meets the demand. A demand is not met if the figure, or
    /// the one to compare with, was not measured.
    pub fn verdict(self, figure: Option<f64>, beside: Option<f64>) -> (&'static str, bool) {
        match (figure.and_then(|figure| self.holds(figure, beside)), self) {
            (Some(true), _) => ("yes", true),
            (Some(false), _) => ("**no**", false),
            (None, Wanted::Nothing) => ("", true),
            (None, _) => ("not measured", false),
        }
    }

    /// The demand in words; `beside` names the figure that a multiple refers to.
    pub fn words(self, beside: &str) -> String {
        match self {
            Wanted::TimesAtLeast(factor) => format!("≥ {factor} × {beside}").trim_end().into(),
            Wanted::TimesAtMost(factor) => format!("≤ {factor} × {beside}").trim_end().into(),
            Wanted::MoreAtMost(more) => format!("≤ {} more {beside}", number(more)).trim_end().into(),
            Wanted::AtLeast(least) => format!("≥ {}", number(least)),
            Wanted::AtMost(most) => format!("≤ {}", number(most)),
            Wanted::Nothing => String::new(),
        }
    }

    fn holds(self, figure: f64, beside: Option<f64>) -> Option<bool> {
        match self {
            Wanted::TimesAtLeast(factor) => beside.map(|beside| figure >= factor * beside),
            Wanted::TimesAtMost(factor) => beside.map(|beside| figure <= factor * beside),
            Wanted::MoreAtMost(more) => beside.map(|beside| figure <= beside + more),
            Wanted::AtLeast(least) => Some(figure >= least),
            Wanted::AtMost(most) => Some(figure <= most),
            Wanted::Nothing => None,
        }
    }
}

impl Measured {
    /// Writes the page and the chart to a folder, and creates it if necessary.
    ///
    /// # Errors
    /// The folder or a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Problem> {
        let Measured { name, title, table, explanation, .. } = self;
        fs::create_dir_all(folder)?;
        let mut image = String::new();
        if let Some((chart, what)) = &self.chart {
            fs::write(folder.join(format!("{name}.svg")), chart.file(IMAGE_WIDTH_PIXELS))?;
            image = format!("![{what}]({name}.svg)\n\n");
        }
        let facts = machine::facts();
        let machine =
            format!("Measured on {} cores ({}), {}, over loopback.", facts.cores, facts.processor, facts.system);
        let others = self.others_cores.map(|cores| {
            format!(
                "Other processes used {cores:.2} cores meanwhile (median); the nearer to 0, the better the figures.\n"
            )
        });
        let others = others.unwrap_or_default();
        let page = format!("# {title}\n\n{image}{table}\n{explanation}\n{machine}\n{others}");
        Ok(fs::write(folder.join(format!("{name}.md")), page)?)
    }
}

/// The text width of most sites.
pub const IMAGE_WIDTH_PIXELS: u32 = 760;
