//! Quotes as text: CSV (RFC 4180) with a line of names, or JSON.
//!
//! A text is read row by row: only the quotes themselves are in memory beside it, and their number is limited.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Quote;
use crate::run::Failure;

/// The columns of a CSV file.
#[derive(Debug)]
pub(super) struct Columns {
    symbol: usize,
    bid: Option<usize>,
    ask: Option<usize>,
    last: Option<usize>,
    /// The column of the time, and milliseconds for each of its units.
    time: Option<(usize, f64)>,
}

impl Columns {
    /// Reads the first line.
    pub(super) fn parse(line: &str) -> Result<Columns, Failure> {
        let names = cells(line.trim_start_matches('\u{feff}'))?;
        let find = |wanted: &str| names.iter().position(|name| name.trim().eq_ignore_ascii_case(wanted));
        let symbol = find("symbol").ok_or_else(|| format!("no column is named symbol: {:?}", beginning(line)))?;
        let time = find("time_ms").map(|column| (column, 1.0)).or(find("time").map(|column| (column, 1_000.0)));
        Ok(Columns { symbol, bid: find("bid"), ask: find("ask"), last: find("last"), time })
    }

    pub(super) fn has_time(&self) -> bool {
        self.time.is_some()
    }

    /// Reads a line: the quote, and its time in milliseconds if there is one.
    pub(super) fn row(&self, line: &str) -> Result<(Quote, Option<f64>), Failure> {
        let cells = cells(line)?;
        let wrong = |what: &str| format!("not {what}: {:?}", beginning(line));
        let number = |column: Option<usize>| match column.and_then(|column| cells.get(column)).map(|cell| cell.trim()) {
            None | Some("") => Ok(None),
            Some(text) => {
                text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Some).ok_or(wrong("a number"))
            }
        };
        let symbol = cells.get(self.symbol).map(|symbol| symbol.trim()).unwrap_or_default();
        if symbol.is_empty() || symbol.len() > SYMBOL_BYTES_MAX {
            return Err(wrong("a symbol").into());
        }
        let quote =
            Quote { symbol: symbol.into(), bid: number(self.bid)?, ask: number(self.ask)?, last: number(self.last)? };
        let time = self.time.map(|(column, unit)| Ok::<_, Failure>((number(Some(column))?, unit))).transpose()?;
        Ok((quote, time.and_then(|(time, unit)| Some(time? * unit))))
    }
}

/// All quotes of a text, up to a limit, and the error of the first that is none.
pub(super) fn quotes(text: &str) -> Result<(Vec<Quote>, Option<Failure>), Failure> {
    let (mut quotes, mut wrong) = (Vec::new(), None);
    let mut add = |quote: Result<Quote, Failure>| match quote {
        Ok(_) if quotes.len() == QUOTES_MAX => _ = wrong.get_or_insert("too many quotes".into()),
        Ok(quote) => quotes.push(quote),
        Err(error) => _ = wrong.get_or_insert(error),
    };
    if text.trim_start().starts_with('[') {
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_seq(Rows(|row: &str| add(of_json(row))))?;
        json.end()?;
    } else {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let columns = Columns::parse(lines.next().ok_or("an empty text")?)?;
        lines.map(|line| columns.row(line).map(|(quote, _)| quote)).for_each(&mut add);
    }
    Ok((quotes, wrong))
}

/// Passes the elements of a JSON array on, one by one, as they are written.
struct Rows<F>(F);

impl<'de, F: FnMut(&str)> Visitor<'de> for Rows<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of quotes")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut rows: A) -> Result<(), A::Error> {
        while let Some(row) = rows.next_element::<&'de RawValue>()? {
            (self.0)(row.get());
        }
        Ok(())
    }
}

fn of_json(row: &str) -> Result<Quote, Failure> {
    check_length(row)?;
    let value: Value = serde_json::from_str(row)?;
    let symbol = value["symbol"].as_str().filter(|symbol| !symbol.is_empty() && symbol.len() <= SYMBOL_BYTES_MAX);
    let symbol = symbol.ok_or_else(|| format!("no symbol: {:?}", beginning(row)))?;
    let price = |name: &str| value[name].as_f64();
    Ok(Quote { symbol: symbol.into(), bid: price("bid"), ask: price("ask"), last: price("last") })
}

/// The cells of a line (RFC 4180 §2); a quoted cell does not reach over its line.
fn cells(line: &str) -> Result<Vec<String>, Failure> {
    check_length(line)?;
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.trim_end_matches('\r').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if is_quoted || cell.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    cells.push(cell);
    if is_quoted { Err(format!("a quote is open: {:?}", beginning(line)).into()) } else { Ok(cells) }
}

/// Refuses a row whose parts would take far more memory than itself.
fn check_length(row: &str) -> Result<(), Failure> {
    if row.len() <= ROW_BYTES_MAX { Ok(()) } else { Err(format!("a long row: {:?}", beginning(row)).into()) }
}

/// The beginning of a text, for an error.
fn beginning(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

/// Longest symbol.
const SYMBOL_BYTES_MAX: usize = 64;

/// Longest row: a line of CSV, or an element of the array.
const ROW_BYTES_MAX: usize = 16 * 1024;
/// Most quotes of a text.
const QUOTES_MAX: usize = 100_000;

/// Most characters of the input in an error.
const ERROR_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        let columns = Columns::parse("\u{feff}Last, TIME ,symbol,bid\r").expect("columns");
        let (quote, time) = columns.row("3.5,1.25,\"A,\"\"B\",\r").expect("a row");
        assert_eq!(quote, Quote { symbol: "A,\"B".into(), last: Some(3.5), ..Quote::default() });
        assert_eq!(time, Some(1_250.0));
        assert_eq!(Columns::parse("time_ms,symbol").expect("columns").row("7,A").expect("a row").1, Some(7.0));
        assert!(Columns::parse("a,b").is_err());
    }

    #[test]
    fn a_wrong_line_is_an_error_that_shows_its_beginning() {
        let columns = Columns::parse("symbol,bid").expect("columns");
        for line in ["", ",1", "A,x", "A,inf", "A,NaN", "\"A,1", &format!("{},1", "A".repeat(65))] {
            let error = columns.row(line).expect_err(line).to_string();
            assert!(error.len() < 120, "{error}");
        }
    }

    #[test]
    fn a_text_is_csv_or_json_and_wrong_entries_are_left_out() {
        let (csv, error) = quotes("symbol,bid\nA,1\n\nB,x\nC,3\n").expect("quotes");
        assert_eq!((csv.len(), error.is_some()), (2, true));
        let (json, error) =
            quotes(r#" [{"symbol":"A","bid":1},{"bid":2},3,{"symbol":"C","bid":"x"}]"#).expect("quotes");
        assert_eq!((json.len(), error.is_some(), json[0].bid, json[1].bid), (2, true, Some(1.0), None));
        for garbage in ["", "<html>", "[{", "\n\n", "[1,]", "[] x", r#"[{"symbol":"A"},"#] {
            assert!(quotes(garbage).is_err(), "{garbage}");
        }
    }

    #[test]
    fn long_rows_and_more_quotes_than_the_limit_are_left_out() {
        let long = "x".repeat(ROW_BYTES_MAX);
        for text in
            [format!("symbol,note\nA,{long}\nB,1\n"), format!(r#"[{{"symbol":"A","note":"{long}"}},{{"symbol":"B"}}]"#)]
        {
            let (found, error) = quotes(&text).expect("quotes");
            assert_eq!((found.len(), &*found[0].symbol, error.is_some()), (1, "B", true));
        }
        let many = format!("symbol\n{}", "A\n".repeat(QUOTES_MAX + 2));
        let (found, error) = quotes(&many).expect("quotes");
        assert_eq!((found.len(), error.is_some()), (QUOTES_MAX, true));
    }
}
