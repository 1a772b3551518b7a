//! Progress on stderr.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// One line a second: overwritten on a terminal, one after another otherwise, none with `--quiet`.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    last: Option<Instant>,
    /// The terminal's line has text.
    on_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    Overwritten,
    Lines,
}

impl Progress {
    /// Prints nothing if `quiet`; overwrites one line on a terminal, otherwise prints lines.
    pub fn new(quiet: bool) -> Self {
        let shown = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (_, true) => Shown::Overwritten,
            _ => Shown::Lines,
        };
        Progress { shown, last: None, on_line: false }
    }

    /// Prints a progress line, unless the last one is less than a second old. `line` is only called to print it.
    pub fn tick(&mut self, line: impl FnOnce() -> String) {
        if self.shown == Shown::Nothing || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let line = line();
        if self.shown == Shown::Overwritten {
            eprint!("\r\x1b[K{line}");
            // A terminal that is gone shows nothing more; the report still counts.
            let _ = std::io::stderr().flush();
            self.on_line = true;
        } else {
            eprintln!("{line}");
        }
    }

    /// Shows a line that stays.
    pub fn print_line(&mut self, line: &str) {
        self.clear();
        if self.shown != Shown::Nothing {
            eprintln!("{line}");
        }
    }

    /// Clears the overwritten line, before something else is printed.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.on_line) {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Just under a second, so that a sample each second is always printed.
const EVERY: Duration = Duration::from_millis(950);
