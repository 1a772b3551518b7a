//! Turns the result lines of many runs into a table and a chart.
//!
//! A machine that does other things as well gives a different figure each time, so servers take turns, and each figure
//! here is the median of its runs.

use std::fmt::Write as _;

use serde_json::Value;

/// The result lines of all runs.
#[derive(Debug, Default)]
pub struct Results {
    lines: Vec<Value>,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// At least this multiple of the floor's figure.
    TimesFloorAtLeast(f64),
    /// At most this multiple of the floor's figure.
    TimesFloorAtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// Only shown.
    Nothing,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// What is measured, with its unit.
    pub what: &'static str,
    /// The fields that a result line must have to belong here.
    pub lines: &'static [(&'static str, &'static str)],
    /// The field that is shown.
    pub field: &'static str,
    /// What is asked of it.
    pub wanted: Wanted,
}

/// What `make bench-core` measures.
pub const CORE: &[Row] = &[
    Row {
        what: "Broadcast to 1,000 WebSockets, highest deliveries/s",
        lines: &[("mode", "fanout-max")],
        field: "delivered_per_s",
        wanted: Wanted::TimesFloorAtLeast(0.4),
    },
    Row {
        what: "CPU per delivery at 100,000 deliveries/s, ns",
        lines: &[("mode", "fanout")],
        field: "server_ns_per_delivery",
        wanted: Wanted::TimesFloorAtMost(1.3),
    },
    Row {
        what: "p99 at 100,000 deliveries/s, µs",
        lines: &[("mode", "fanout")],
        field: "p99_us",
        wanted: Wanted::Nothing,
    },
    Row {
        what: "Full sessions opened per second",
        lines: &[("mode", "open")],
        field: "sessions_per_s",
        wanted: Wanted::AtLeast(8000.0),
    },
    Row {
        what: "Idle WebSocket session, one common channel, bytes of RSS",
        lines: &[("mode", "idle"), ("transport", "websocket"), ("own_channels", "false")],
        field: "rss_bytes_per_session",
        wanted: Wanted::AtMost(2048.0),
    },
    Row {
        what: "Idle WebSocket session, a channel of its own, bytes of RSS",
        lines: &[("mode", "idle"), ("transport", "websocket"), ("own_channels", "true")],
        field: "rss_bytes_per_session",
        wanted: Wanted::Nothing,
    },
    Row {
        what: "Idle long-polling session, bytes of RSS",
        lines: &[("mode", "idle"), ("transport", "longpolling")],
        field: "rss_bytes_per_session",
        wanted: Wanted::AtMost(24.0 * 1024.0),
    },
];

/// The servers, in the order of the columns, by the label of their result lines.
pub const SERVERS: &[(&str, &str)] = &[("encke", "Encke"), ("floor", "Floor"), ("bun", "Bun")];

impl Results {
    /// Reads result lines, one JSON object each; other lines are passed over.
    pub fn read(text: &str) -> Self {
        Results { lines: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() }
    }

    /// The median of a row's figure for a server, if it was measured.
    pub fn median(&self, row: &Row, server: &str) -> Option<f64> {
        self.median_of(row.lines, row.field, server)
    }

    /// The median number of cores that other processes used during the runs that tell.
    pub fn others_busy(&self) -> Option<f64> {
        median(self.lines.iter().filter_map(|line| line["others_busy"].as_f64()).collect())
    }

    fn median_of(&self, fields: &[(&str, &str)], field: &str, server: &str) -> Option<f64> {
        let belongs =
            |line: &&Value| line["label"] == server && fields.iter().all(|(name, value)| is(&line[*name], value));
        median(self.lines.iter().filter(belongs).filter_map(|line| line[field].as_f64()).collect())
    }
}

impl Wanted {
    /// Whether a figure is what was wanted; none if nothing was, or if there is no floor to compare with.
    pub fn holds(self, figure: f64, floor: Option<f64>) -> Option<bool> {
        match self {
            Wanted::TimesFloorAtLeast(factor) => floor.map(|floor| figure >= factor * floor),
            Wanted::TimesFloorAtMost(factor) => floor.map(|floor| figure <= factor * floor),
            Wanted::AtLeast(least) => Some(figure >= least),
            Wanted::AtMost(most) => Some(figure <= most),
            Wanted::Nothing => None,
        }
    }

    fn words(self) -> String {
        match self {
            Wanted::TimesFloorAtLeast(factor) => format!("≥ {factor} × floor"),
            Wanted::TimesFloorAtMost(factor) => format!("≤ {factor} × floor"),
            Wanted::AtLeast(least) => format!("≥ {}", thousands(least)),
            Wanted::AtMost(most) => format!("≤ {}", thousands(most)),
            Wanted::Nothing => String::new(),
        }
    }
}

/// The table, in Markdown, and whether all that was wanted and measured holds.
pub fn table(results: &Results) -> (String, bool) {
    let names: Vec<&str> = SERVERS.iter().map(|(_, name)| *name).collect();
    let mut text = format!("| what | wanted | {} | Encke ÷ floor | holds |\n", names.join(" | "));
    text += &format!("| --- | --- |{} ---: | --- |\n", " ---: |".repeat(names.len()));
    let mut all_hold = true;
    for row in CORE {
        let figures: Vec<Option<f64>> = SERVERS.iter().map(|(label, _)| results.median(row, label)).collect();
        let (reached, floor) = (figures[0], figures[1]);
        let holds = reached.and_then(|reached| row.wanted.holds(reached, floor));
        all_hold &= holds != Some(false);
        let cells: Vec<String> = figures.iter().map(|figure| figure.map(thousands).unwrap_or_default()).collect();
        // A memory ratio to a server without sessions says nothing.
        let compared = matches!(row.wanted, Wanted::TimesFloorAtLeast(_) | Wanted::TimesFloorAtMost(_));
        let ratio = reached.zip(floor).filter(|_| compared).map(|(reached, floor)| format!("{:.2}", reached / floor));
        let verdict = match (holds, row.wanted) {
            (Some(true), _) => "yes",
            (Some(false), _) => "**no**",
            (None, Wanted::Nothing) => "",
            (None, _) => "not measured",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {verdict} |",
            row.what,
            row.wanted.words(),
            cells.join(" | "),
            ratio.unwrap_or_default()
        );
    }
    (text, all_hold)
}

/// A bar for each server's highest rate, as an SVG image; none if nothing was measured.
pub fn chart(results: &Results) -> Option<String> {
    let row = &CORE[0];
    let measured = SERVERS.iter().filter_map(|&(label, name)| Some((name, label, results.median(row, label)?)));
    let mut bars: Vec<(&str, &str, f64)> = measured.collect();
    bars.sort_by(|a, b| b.2.total_cmp(&a.2));
    let highest = bars.first()?.2;
    let height = BARS_TOP + BAR_STEP * bars.len() + 16;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" role=\"img\">\n<title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"15\" font-weight=\"600\" fill=\"#1b1f24\">{title}</text>\n\
         <text x=\"20\" y=\"50\" font-size=\"12\" fill=\"#57606a\">million deliveries/s, nothing lost, p99 under one second; longer is better</text>\n",
        title = "Broadcast to 1,000 WebSockets from one core",
    );
    for (index, (name, label, figure)) in bars.iter().enumerate() {
        let y = BARS_TOP + BAR_STEP * index;
        let width = (figure / highest * BAR_WIDTH_MAX).max(1.0);
        let colour = if *label == "encke" { "#2563eb" } else { "#b6c2cf" };
        let _ = writeln!(
            svg,
            "<text x=\"20\" y=\"{text_y}\" font-size=\"13\" fill=\"#1b1f24\">{name}</text>\
             <rect x=\"80\" y=\"{y}\" width=\"{width:.0}\" height=\"22\" rx=\"3\" fill=\"{colour}\"/>\
             <text x=\"{value_x:.0}\" y=\"{text_y}\" font-size=\"13\" fill=\"#1b1f24\">{value:.1}</text>",
            text_y = y + 16,
            value_x = 88.0 + width,
            value = figure / 1e6,
        );
    }
    svg += "</svg>\n";
    Some(svg)
}

fn is(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(flag) => wanted.parse() == Ok(*flag),
        _ => false,
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

/// A whole number with commas.
fn thousands(figure: f64) -> String {
    let digits = format!("{:.0}", figure.abs());
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap_or("")).collect();
    format!("{}{}", if figure <= -0.5 { "-" } else { "" }, groups.join(","))
}

const WIDTH: usize = 640;
const BARS_TOP: usize = 70;
const BAR_STEP: usize = 34;
const BAR_WIDTH_MAX: f64 = 480.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        Results::read(
            r#"{"mode":"fanout-max","label":"floor","delivered_per_s":10000000}
               noise
               {"mode":"fanout-max","label":"floor","delivered_per_s":12000000}
               {"mode":"fanout-max","label":"floor","delivered_per_s":2000000}
               {"mode":"fanout-max","label":"encke","delivered_per_s":5000000}
               {"mode":"idle","transport":"websocket","own_channels":false,"label":"encke","rss_bytes_per_session":3000}"#,
        )
    }

    #[test]
    fn figures_are_medians_and_judged() {
        let (table, all_hold) = table(&results());
        let line = table.lines().nth(2).expect("first row");
        assert!(line.contains("| 5,000,000 | 10,000,000 |") && line.contains("| 0.50 | yes |"), "{line}");
        assert!(table.contains("| ≤ 2,048 | 3,000 |") && table.contains("**no**"));
        assert!(!all_hold);
    }

    #[test]
    fn what_was_not_measured_is_said_so() {
        let (table, all_hold) = table(&Results::default());
        assert!(all_hold && table.contains("not measured"));
        assert!(chart(&Results::default()).is_none());
    }

    #[test]
    fn the_longest_bar_is_the_fastest() {
        let chart = chart(&results()).expect("chart");
        assert!(chart.find("Floor").expect("floor") < chart.find("Encke").expect("encke"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0.0, 999.0, 1000.0, 1_234_567.0].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
