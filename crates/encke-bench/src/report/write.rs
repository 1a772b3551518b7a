//! The destinations of reports: the terminal, and files.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::model::Report;
use super::text::Paint;
use super::{comparison, csv, html, json, text};
use crate::problem::Problem;

/// The destination of one form of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The standard output; the text goes to the standard error then.
    Stdout,
    /// A file, which is replaced.
    File(PathBuf),
}

/// The forms written besides the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// `--json`.
    pub json: Option<Destination>,
    /// `--csv`.
    pub csv: Option<Destination>,
    /// `--html`.
    pub html: Option<Destination>,
}

impl From<PathBuf> for Destination {
    /// A flag's value: a file, or the standard output for `-`.
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Destination::Stdout } else { Destination::File(path) }
    }
}

impl Outputs {
    /// Finds out before a long run whether its report could be written.
    ///
    /// # Errors
    ///
    /// [`Problem::Usage`] if more than one form goes to the standard output, or a file's folder is not there.
    pub fn check(&self) -> Result<(), Problem> {
        let all = [&self.json, &self.csv, &self.html];
        if all.iter().filter(|to| ***to == Some(Destination::Stdout)).count() > 1 {
            let text = "only one of --json, --csv and --html can go to the standard output; give the others a file";
            return Err(Problem::Usage(text.into()));
        }
        for to in all.into_iter().flatten() {
            if let Destination::File(path) = to {
                check_file(path)?;
            }
        }
        Ok(())
    }

    fn take_stdout(&self) -> bool {
        [&self.json, &self.csv, &self.html].iter().any(|to| **to == Some(Destination::Stdout))
    }
}

/// Shows a report on the terminal and writes it where asked for.
///
/// # Errors
///
/// [`Problem::Usage`] as [`Outputs::check`]; [`Problem::Machine`] if a file cannot be written. The text is shown and the
/// other files are written even then.
pub fn write(report: &Report, outputs: &Outputs) -> Result<(), Problem> {
    outputs.check()?;
    let shown = show(outputs, |paint| text::of(report, paint));
    let json = put(&outputs.json, || json::of(report));
    let csv = put(&outputs.csv, || Ok(csv::of(report)));
    let html = put(&outputs.html, || Ok(html::of(report)));
    shown.and(json).and(csv).and(html)
}

/// Lays runs side by side, each read from a file written by `--json`; ratios are to the first.
///
/// # Errors
///
/// As [`json::read`] and [`write()`]; [`Problem::Usage`] without any file.
pub fn compare(paths: &[PathBuf], outputs: &Outputs) -> Result<(), Problem> {
    outputs.check()?;
    if paths.is_empty() {
        return Err(Problem::Usage("name the reports to lay side by side: files that --json has written".into()));
    }
    let reports = paths.iter().map(|path| json::read(path)).collect::<Result<Vec<_>, _>>()?;
    let side_by_side = comparison::of(&reports);
    let shown = show(outputs, |paint| comparison::text(&side_by_side, paint));
    let json = put(&outputs.json, || json::of(&side_by_side));
    let csv = put(&outputs.csv, || Ok(csv::of_table(&comparison::table(&side_by_side))));
    let html = put(&outputs.html, || Ok(html::of_several(&side_by_side, &reports)));
    shown.and(json).and(csv).and(html)
}

/// Prints the text, to a stream that no other form uses.
fn show(outputs: &Outputs, text: impl FnOnce(Paint) -> String) -> Result<(), Problem> {
    let paint =
        |terminal: bool| if terminal && std::env::var_os("NO_COLOR").is_none() { Paint::Ansi } else { Paint::Plain };
    if outputs.take_stdout() {
        let mut to = std::io::stderr().lock();
        let text = text(paint(to.is_terminal()));
        all(&mut to, &text)
    } else {
        let mut to = std::io::stdout().lock();
        let text = text(paint(to.is_terminal()));
        all(&mut to, &text)
    }
}

fn put(to: &Option<Destination>, text: impl FnOnce() -> Result<String, Problem>) -> Result<(), Problem> {
    match to {
        None => Ok(()),
        Some(Destination::Stdout) => all(&mut std::io::stdout().lock(), &text()?),
        Some(Destination::File(path)) => std::fs::write(path, text()?)
            .map_err(|error| Problem::Machine(format!("cannot write {}: {error}", path.display()))),
    }
}

/// Writes a text. A reader that has closed the pipe is no error.
fn all(to: &mut impl Write, text: &str) -> Result<(), Problem> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Problem::Machine(format!("cannot write the report: {error}")))
        }
        _ => Ok(()),
    }
}

fn check_file(path: &Path) -> Result<(), Problem> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(Problem::Usage(format!("cannot write {}: no such folder", path.display())));
    }
    if path.is_dir() {
        return Err(Problem::Usage(format!("cannot write {}: it is a folder", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Option<Destination> {
        Some(Destination::File(path.into()))
    }

    #[test]
    fn only_one_form_goes_to_the_standard_output() {
        let both = Outputs { json: Some(Destination::Stdout), csv: Some(Destination::Stdout), html: None };
        assert!(both.check().expect_err("two of them").to_string().contains("only one of"));
        assert!(Outputs { csv: None, ..both }.check().is_ok());
    }

    #[test]
    fn a_missing_folder_is_found_before_the_run() {
        let outputs = Outputs { html: file("/no/such/folder/page.html"), ..Outputs::default() };
        let problem = outputs.check().expect_err("no folder").to_string();
        assert_eq!(problem, "cannot write /no/such/folder/page.html: no such folder");
        assert!(Outputs { html: file("page.html"), ..Outputs::default() }.check().is_ok());
        assert!(Outputs { html: file("/"), ..Outputs::default() }.check().is_err());
    }

    #[test]
    fn a_hyphen_means_the_standard_output() {
        assert_eq!(Destination::from(PathBuf::from("-")), Destination::Stdout);
        assert_eq!(Destination::from(PathBuf::from("a.json")), Destination::File("a.json".into()));
    }
}
