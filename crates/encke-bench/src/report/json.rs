//! The report as JSON: exactly the model, with line breaks; and reading it back.

use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::model::{FORMAT_VERSION, Report};
use crate::problem::Problem;

/// Formats a report or comparison as JSON.
///
/// # Errors
///
/// serde fails; the model gives no cause for it.
pub fn of(value: &impl Serialize) -> Result<String, Problem> {
    let mut text = serde_json::to_string_pretty(value).map_err(|error| Problem::Machine(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// Reads a report written by `--json`.
///
/// # Errors
///
/// [`Problem::Usage`], in one line, if the file does not exist or is no report of this format.
pub fn read(path: &Path) -> Result<Report, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    parse(&text).map_err(|reason| Problem::Usage(format!("{} {reason}", path.display())))
}

/// Parses a report. An error continues a sentence that begins with the file's name.
pub fn parse(text: &str) -> Result<Report, String> {
    #[derive(Deserialize)]
    struct Head {
        format: Option<serde_json::Value>,
    }
    if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
        return Err(format!("is not JSON: {error}"));
    }
    let head: Head = serde_json::from_str(text).map_err(|_| NO_REPORT.to_owned())?;
    match head.format {
        None => Err(NO_REPORT.into()),
        Some(format) if format == FORMAT_VERSION => {
            serde_json::from_str(text).map_err(|error| format!("{NO_REPORT}: {error}"))
        }
        Some(format) => Err(format!("has report format {format}; this encke reads format {FORMAT_VERSION}")),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Problem {
    let path = path.display();
    Problem::Usage(match error.kind() {
        ErrorKind::NotFound => format!("no such file: {path}"),
        ErrorKind::InvalidData => format!("{path} is not JSON: it is no text"),
        _ => format!("cannot read {path}: {error}"),
    })
}

const NO_REPORT: &str = "is no report of encke bench";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_refused_in_one_line() {
        let wrong = parse(r#"{"format":7}"#).expect_err("another format");
        assert_eq!(wrong, "has report format 7; this encke reads format 1");
        assert_eq!(parse("[1,2]").expect_err("a list"), NO_REPORT);
        assert_eq!(parse(r#"{"a":1}"#).expect_err("another object"), NO_REPORT);
        assert!(parse("<html>").expect_err("a page").starts_with("is not JSON: "));
        assert!(parse(r#"{"format":1}"#).expect_err("nothing in it").contains("missing field"));
        assert!(parse(r#"{"format":"=1\n"}"#).expect_err("a text").lines().count() == 1);
    }

    #[test]
    fn a_missing_file_is_named() {
        let problem = read(Path::new("/no/such/report.json")).expect_err("no file");
        assert_eq!(problem.to_string(), "no such file: /no/such/report.json");
    }
}
