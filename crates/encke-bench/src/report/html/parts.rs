//! Pieces of a page: verdict, cards, tables.

use super::super::columns::Grid;
use super::super::model::{Latency, Machine, Server, Trial};
use super::super::text::FAULTS;
use super::super::units::{bytes, count, figure, micros, number};
use super::escape;

/// The verdict with its reasons and notes.
pub(super) fn verdict(holds: bool, interrupted: bool, reasons: &[&[String]]) -> String {
    let (class, sentence) = match holds {
        true => ("verdict", "✓ Everything asked for holds."),
        false => ("verdict bad", "✗ Does not hold."),
    };
    let reasons: String = reasons.concat().iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect();
    let reasons = if reasons.is_empty() { reasons } else { format!("<ul>{reasons}</ul>") };
    let broken = if interrupted { "<p class=\"broken\">Interrupted: this is the report so far.</p>" } else { "" };
    format!("<div class=\"{class}\"><p>{sentence}</p>{reasons}{broken}</div>\n")
}

/// Names and values; those without a value are left out.
pub(super) fn definitions(class: &str, pairs: &[(&str, &str)]) -> String {
    let said = pairs.iter().filter(|(_, value)| !value.is_empty());
    let pair =
        |(name, value): &(&str, &str)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
    let pairs: String = said.map(pair).collect();
    if pairs.is_empty() { pairs } else { format!("<dl class=\"{class}\">\n{pairs}</dl>\n") }
}

/// The machine as names and values.
pub(super) fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let some = |known: bool, text: String| if known { text } else { String::new() };
    vec![
        ("System", machine.system.clone()),
        ("Processor", machine.processor.clone()),
        ("Cores", some(machine.cores > 0, count(machine.cores.into()))),
        ("Memory", some(machine.memory_bytes > 0, bytes(machine.memory_bytes as f64))),
        ("Version of the load", some(!machine.version.is_empty(), format!("encke bench {}", machine.version))),
    ]
}

/// The key figures of the trial that speaks for the run.
pub(super) fn cards(trial: Option<&Trial>, trials: usize) -> String {
    let Some(trial) = trial else { return String::new() };
    let mut cards = String::new();
    let mut shown = 0;
    let mut card = |name: &str, value: &str, note: &str, bad: bool| {
        let note = if note.is_empty() { String::new() } else { format!("<dd>{}</dd>", escape(note)) };
        let class = if bad { "card bad" } else { "card" };
        let (name, value) = (escape(name), escape(value));
        shown += 1;
        cards += &format!("<dl class=\"{class}\"><dt>{name}</dt><dd>{value}</dd>{note}</dl>\n");
    };
    if trial.incoming.messages > 0 {
        let sent = match trial.outgoing.messages {
            0 => String::new(),
            _ => format!("{} sent/s", number(trial.outgoing.messages_per_s())),
        };
        card("Received per second", &number(trial.incoming.messages_per_s()), &sent, false);
    }
    if let Some(latency) = trial.latency.as_ref().filter(|latency| latency.count > 0) {
        let least = format!("least {}", micros(latency.min_us as f64));
        card("Median latency", &micros(latency.p50_us as f64), &least, false);
        let p90 = format!("90 %: {}", micros(latency.p90_us as f64));
        card("99 % are faster than", &micros(latency.p99_us as f64), &p90, false);
        let p999 = format!("99.9 %: {}", micros(latency.p999_us as f64));
        card("Highest latency", &micros(latency.max_us as f64), &p999, false);
    }
    if trial.expected > 0 || !trial.faults.none() {
        let value = if trial.faults.none() { "none".into() } else { faults(trial) };
        let expected =
            if trial.expected > 0 { format!("of {} deliveries", count(trial.expected)) } else { String::new() };
        card("Lost, doubled, late…", &value, &expected, !trial.faults.none());
    }
    if let Some(server) = &trial.server {
        let per_delivery = match server.ns_per_delivery {
            ns if ns > 0.0 => format!("{} per delivery", figure(ns, "ns")),
            _ => String::new(),
        };
        card("Server cores used", &number(server.cores), &per_delivery, false);
        if server.rss_peak_bytes > 0 {
            let before = format!("{} before", bytes(server.rss_before_bytes as f64));
            card("Server memory, peak", &bytes(server.rss_peak_bytes as f64), &before, false);
        }
    }
    // A quiet machine needs no card.
    if let Some(others) = trial.others_cores.filter(|others| *others > OTHERS_CORES_MAX) {
        card("Cores others used meanwhile", &number(others), "the nearer to 0, the better all figures", true);
    }
    for one in &trial.figures {
        card(&one.name, &figure(one.value, &one.unit), "", false);
    }
    let which = match trials {
        0..=1 => String::new(),
        _ => format!("<p>Key figures of the trial <strong>{}</strong></p>\n", escape(&trial.name)),
    };
    if cards.is_empty() {
        cards
    } else {
        format!("<div class=\"cards\" style=\"--columns: {}\">\n{which}{cards}</div>\n", columns(shown))
    }
}

/// Into how many columns cards are laid: of four to seven, the most that leave the last row fullest.
fn columns(cards: usize) -> usize {
    if cards == 3 {
        return 3;
    }
    (4..=7).min_by_key(|columns| (cards.div_ceil(*columns) * columns - cards, 7 - columns)).unwrap_or(4)
}

/// The faults in words, such as `12 lost, 3 late`; empty if there are none.
pub(super) fn faults(trial: &Trial) -> String {
    let found = FAULTS.iter().filter(|(_, part)| part(&trial.faults) > 0);
    let words: Vec<String> = found.map(|(name, part)| format!("{} {name}", count(part(&trial.faults)))).collect();
    words.join(", ")
}

/// A row per trial.
pub(super) fn trials(trials: &[Trial]) -> String {
    if trials.is_empty() {
        return String::new();
    }
    let positive = |value: f64| if value > 0.0 { number(value) } else { String::new() };
    let row = |trial: &Trial| {
        let us = |part: fn(&Latency) -> u64| match &trial.latency {
            Some(latency) if latency.count > 0 => micros(part(latency) as f64),
            _ => String::new(),
        };
        let server = |part: fn(&Server) -> f64, text: fn(f64) -> String| match trial.server.as_ref().map(part) {
            Some(value) if value > 0.0 => text(value),
            _ => String::new(),
        };
        vec![
            named(trial),
            if trial.holds { "yes".into() } else { "no".into() },
            trial.planned_per_s.map(positive).unwrap_or_default(),
            positive(trial.outgoing.messages_per_s()),
            positive(trial.incoming.messages_per_s()),
            us(|latency| latency.p50_us),
            us(|latency| latency.p90_us),
            us(|latency| latency.p99_us),
            us(|latency| latency.p999_us),
            us(|latency| latency.max_us),
            faults(trial),
            server(|server| server.cores, number),
            server(|server| server.ns_per_delivery, number),
            server(|server| server.rss_peak_bytes as f64, bytes),
            positive(trial.load_cores),
            trial.others_cores.map(number).unwrap_or_default(),
        ]
    };
    let grid = Grid { words: false, head: HEAD.map(Into::into).into(), rows: trials.iter().map(row).collect() };
    let grid = grid.without_empty();
    // Trials that only hold add nothing to the verdict.
    let idle = grid.head.len() <= 2 && (trials.len() == 1 || trials.iter().all(|trial| trial.holds));
    if idle { String::new() } else { table(&Table::guessed(grid)) }
}

/// A table and which of its columns hold figures.
pub(super) struct Table {
    grid: Grid,
    figures: Vec<bool>,
}

impl Table {
    /// Guesses columns of figures: every cell begins with a digit or is empty. The first column names its row.
    pub(super) fn guessed(grid: Grid) -> Self {
        let begins = |cell: &str| cell.starts_with(|char: char| char.is_ascii_digit() || "-–−∞.".contains(char));
        let is_figure = |column: usize| {
            let mut cells = grid.rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty());
            column > 0
                && cells.clone().next().is_some()
                && cells.all(|cell| begins(cell) && !cell.contains(", ") && !cell.contains(':'))
        };
        let figures = (0..grid.head.len()).map(is_figure).collect();
        Table { grid, figures }
    }
}

/// A table that scrolls within its panel where it is too wide.
pub(super) fn table(table: &Table) -> String {
    let class = |column: usize| if table.figures.get(column) == Some(&true) { " class=\"n\"" } else { "" };
    let head = |(column, name): (usize, &String)| format!("<th scope=\"col\"{}>{}</th>", class(column), escape(name));
    let cell = |(column, cell): (usize, &String)| match column {
        0 => format!("<th scope=\"row\">{}</th>", marked(cell)),
        _ if is_sentence(cell) && class(column).is_empty() => format!("<td class=\"says\">{}</td>", escape(cell)),
        _ => format!("<td{}>{}</td>", class(column), escape(cell)),
    };
    let head: String = table.grid.head.iter().enumerate().map(head).collect();
    let row = |row: &Vec<String>| format!("<tr>{}</tr>\n", row.iter().enumerate().map(cell).collect::<String>());
    let all = table.grid.rows.as_slice();
    let (first, left_out, last) = match all.len() {
        0..=ROWS_MAX => (all, String::new(), &all[..0]),
        rows => {
            let text = format!("… {} rows more, which are in the CSV …", count((rows - ROWS_MAX) as u64));
            let columns = table.grid.head.len();
            let left_out = format!("<tr><th colspan=\"{columns}\">{text}</th></tr>\n");
            (&all[..ROWS_MAX / 2], left_out, &all[rows - ROWS_MAX / 2..])
        }
    };
    let rows = |rows: &[Vec<String>]| rows.iter().map(row).collect::<String>();
    let rows = rows(first) + &left_out + &rows(last);
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )
}

/// Returns true if a cell may be broken into lines; a date or a number with its unit may not.
fn is_sentence(cell: &str) -> bool {
    cell.contains(' ') && cell.len() > 24
}

/// A trial's name, as a cell; [`marked`] makes a small line of why it does not hold.
fn named(trial: &Trial) -> String {
    match trial.reasons.as_slice() {
        reasons if trial.holds || reasons.is_empty() => trial.name.clone(),
        reasons => format!("{}{REASONS}{}", trial.name, reasons.join(" ")),
    }
}

fn marked(cell: &str) -> String {
    match cell.split_once(REASONS) {
        Some((name, reasons)) => format!("{}<small>{}</small>", escape(name), escape(reasons)),
        None => escape(cell),
    }
}

/// Above this, the figures describe other processes as much as the server.
const OTHERS_CORES_MAX: f64 = 0.2;

/// Longer tables are cut in the middle.
const ROWS_MAX: usize = 120;

/// Separates a name from reasons within a cell; no name contains it.
const REASONS: char = '\u{1f}';

const HEAD: [&str; 16] = [
    "Trial",
    "Holds",
    "Planned/s",
    "Sent/s",
    "Received/s",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "Max",
    "Faults",
    "Server cores",
    "ns/delivery",
    "Peak memory",
    "Load cores",
    "Others’ cores",
];
