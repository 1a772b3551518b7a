//! The log of a program under test. A line that does not come fails the test: it does not hang.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The lines of a log, as they come.
pub struct Log(Receiver<String>);

impl Log {
    /// Reads the log on a thread, which ends with it.
    pub fn of(from: impl Read + Send + 'static) -> Log {
        let (lines, log) = channel();
        std::thread::spawn(move || {
            BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| lines.send(line + "\n"))
        });
        Log(log)
    }

    /// Reads up to a line that holds `text`, and returns what was read.
    pub fn until(&mut self, text: &str) -> String {
        let mut read = String::new();
        while !read.contains(text) {
            match self.0.recv_timeout(LINE_MAX) {
                Ok(line) => read += &line,
                Err(error) => panic!("no {text:?} in {read} ({error})"),
            }
        }
        read
    }
}

/// The time that a line may take. A busy machine is no reason to fail.
const LINE_MAX: Duration = Duration::from_secs(60);
