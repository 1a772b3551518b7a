//! Why a measurement could not be made.

use std::fmt;
use std::io;

/// Why a run ended without a result; each variant says who is at fault.
#[derive(Debug)]
pub enum Problem {
    /// The machine does not allow what was asked: too few files, no such process.
    Machine(String),
    /// The server did something a client cannot go on from.
    Server(String),
    /// The request itself makes no sense.
    Usage(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Machine(text) => write!(formatter, "machine: {text}"),
            Problem::Server(text) => write!(formatter, "server: {text}"),
            Problem::Usage(text) => write!(formatter, "usage: {text}"),
        }
    }
}

impl std::error::Error for Problem {}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Problem::Machine(error.to_string())
    }
}

impl From<rustix::io::Errno> for Problem {
    fn from(error: rustix::io::Errno) -> Self {
        Problem::Machine(io::Error::from(error).to_string())
    }
}
