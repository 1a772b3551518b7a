//! The report as one self-contained page, light and dark, for large screens and phones. uPlot, which is embedded, draws the charts;
//! everything else is there without scripts.

mod charts;
mod line;
mod parts;
mod side_by_side;
mod time;

use super::chart::{Bars, Chart};
use super::columns::Grid;
use super::comparison::Comparison;
use super::model::Report;
use super::text::figure_names;
use super::units::{count, date, figure, span};
use parts::{Table, cards, definitions, table, verdict};

/// The page of one run.
pub fn of(report: &Report) -> String {
    let mut body = header(&report.scenario, &report.title, &report.stands_for);
    body += &verdict(report.holds, report.interrupted, &[&report.reasons, &report.at_least]);
    body += &facts(report);
    body += &cards(report.headline(), report.trials.len());
    body += &figures_of(&charts::of(report));
    body += &section("Trials", &parts::trials(&report.trials));
    body += &section("Figures", &figures(report));
    if let Some(rows) = &report.table {
        let grid = Grid { words: false, head: rows.columns.clone(), rows: rows.rows.clone() };
        body += &section("The scenario’s table", &table(&Table::guessed(grid)));
    }
    if !report.transcript.is_empty() {
        let text = escape(&report.transcript.join("\n"));
        body += &section("In the scenario’s words", &format!("<pre tabindex=\"0\">{text}</pre>"));
    }
    body += &settings(report);
    page(&format!("{} · encke bench", report.title), &body, &report.machine.version)
}

/// The page of several runs side by side.
pub fn of_several(comparison: &Comparison, reports: &[Report]) -> String {
    let version = reports.first().map_or("", |report| report.machine.version.as_str());
    let labels: Vec<&str> = comparison.runs.iter().map(|run| run.label.as_str()).collect();
    let title = format!("{} · encke bench", labels.join(", "));
    page(&title, &side_by_side::body(comparison, reports), version)
}

fn page(title: &str, body: &str, version: &str) -> String {
    let (title, version) = (escape(title), escape(version));
    let has_plots = body.contains(PLOT);
    let script = if has_plots { format!("<script>//<![CDATA[\n{UPLOT}{SCRIPT}//]]></script>") } else { String::new() };
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<title>{title}</title>
<style>{UPLOT_STYLE}{PAGE_STYLE}</style>
</head>
<body>
<main>
{body}</main>
<footer>Made by encke bench {version}. Load is open: each message has a planned time, and its latency counts from then, so a server that stalls is charged for all that waited.</footer>
{script}
</body>
</html>
"#
    )
}

fn header(kicker: &str, title: &str, lede: &str) -> String {
    let lede = if lede.is_empty() { String::new() } else { format!("<p class=\"lede\">{}</p>\n", escape(lede)) };
    let (kicker, title) = (escape(kicker), escape(title));
    format!(
        "<header>\n<p class=\"kicker\">{MARK}encke bench<span>{kicker}</span></p>\n<h1>{title}</h1>\n{lede}</header>\n"
    )
}

/// Label, target, start, duration and number of trials.
fn facts(report: &Report) -> String {
    let label = if report.label == report.target { "" } else { report.label.as_str() };
    let began = if report.began_unix_ms > 0 { date(report.began_unix_ms) } else { String::new() };
    let trials = if report.trials.len() > 1 { count(report.trials.len() as u64) } else { String::new() };
    let facts = [
        ("Run", label),
        ("Target", &report.target),
        ("Began", &began),
        ("Took", &span(report.took_ms)),
        ("Trials", &trials),
    ];
    definitions("facts", &facts)
}

/// A section with a heading; nothing if it has nothing.
fn section(heading: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<section class=\"panel\">\n<h2>{}</h2>\n{content}\n</section>\n", escape(heading))
}

/// The charts: bars as markup, plots as data for the script.
fn figures_of(charts: &[Chart]) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let figure = |chart: &Chart| {
        let note = match chart.note() {
            "" => String::new(),
            note => format!("<p>{}</p>", escape(note)),
        };
        let drawing = match chart {
            Chart::Bars(bars) => bars_of(bars),
            Chart::Plot(plot) => {
                // No text of a report may end the script element, or be markup in it.
                let json = plot.json().to_string();
                let json = json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
                format!("{PLOT}<script type=\"application/json\">{json}</script></div>")
            }
        };
        let title = escape(chart.title());
        format!("<figure class=\"panel\">\n<figcaption><h2>{title}</h2>{note}</figcaption>\n{drawing}\n</figure>\n")
    };
    let figures: String = charts.iter().map(figure).collect();
    let hint = if charts.iter().any(|chart| matches!(chart, Chart::Plot(_))) { HINT } else { "" };
    format!(
        "{hint}<div class=\"charts\">\n{figures}</div>\n<noscript><p>The charts need scripts; the tables have all figures.</p></noscript>\n"
    )
}

fn bars_of(bars: &Bars) -> String {
    let mut rows = String::new();
    for (group, shares) in bars.groups.iter().zip(bars.shares()) {
        for (bar, share) in group.bars.iter().zip(shares) {
            let (name, label) = (escape(&group.name), escape(&bar.label(bars)));
            let drawn = share.map(|share| format!("<i style=\"width:{:.1}%\"></i>", share * 100.0)).unwrap_or_default();
            rows += &format!("<span>{name}</span><span>{drawn}</span><span>{label}</span>\n");
        }
    }
    format!("<div class=\"bars\">\n{rows}</div>")
}

/// A text for HTML, SVG and their attributes in quotes. Characters that XML does not have become `�`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for char in text.chars() {
        match char {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\t' | '\n' => escaped.push(char),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

/// The scenario's own figures if there are several trials; those of a single trial are on cards.
fn figures(report: &Report) -> String {
    let names = figure_names(&report.trials);
    if report.trials.len() < 2 || names.is_empty() {
        return String::new();
    }
    let head = std::iter::once("Trial".to_owned()).chain(names.iter().map(|name| (*name).to_owned())).collect();
    let row = |trial: &super::model::Trial| {
        let found = |name: &&str| {
            let found = trial.figures.iter().find(|figure| figure.name == *name);
            found.map(|found| figure(found.value, &found.unit)).unwrap_or_default()
        };
        std::iter::once(trial.name.clone()).chain(names.iter().map(found)).collect()
    };
    table(&Table::guessed(Grid { words: false, head, rows: report.trials.iter().map(row).collect() }))
}

fn settings(report: &Report) -> String {
    let given: Vec<(&str, &str)> =
        report.settings.iter().map(|setting| (setting.name.as_str(), setting.value.as_str())).collect();
    let machine = parts::machine(&report.machine);
    let machine: Vec<(&str, &str)> = machine.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let both = [section("Settings", &definitions("list", &given)), section("Machine", &definitions("list", &machine))];
    format!("<div class=\"halves\">\n{}</div>\n", both.concat())
}

/// The page's own script, which passes the plots to uPlot.
const SCRIPT: &str = include_str!("page.js");
/// uPlot 1.6.32 (MIT, see `uplot/LICENSE`).
const UPLOT: &str = include_str!("uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("uplot/uPlot.min.css");
/// Says how a chart is used.
const HINT: &str = "<p class=\"hint\">Drag across a chart to zoom; double-click or double-tap to reset. Point at a line, or tap it, to read its values.</p>\n";
/// Begins the element of a plot.
const PLOT: &str = "<div class=\"plot\">";

const PAGE_STYLE: &str = include_str!("page.css");

/// Encke's comet, as on the server's start page.
const MARK: &str = r#"<svg class="comet" viewBox="0 0 32 32" width="20" height="20" aria-hidden="true"><path d="M2 3l22 9a7 7 0 1 1-10 9z" opacity=".45"/><circle cx="20" cy="20" r="7"/><circle cx="20" cy="20" r="2.6" class="core"/></svg>"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(escape(r#"<b a="1">&'"#), "&lt;b a=&quot;1&quot;&gt;&amp;&#39;");
        assert_eq!(escape("a\x1b\0\u{ffff}b\n"), "a\u{fffd}\u{fffd}\u{fffd}b\n");
    }
}
