//! What can happen to a connection of a session.

use std::io;

use crate::engine::clients::words;
use crate::problem::Problem;

/// Why a connection is of no use any more; the text says what the server did: "the server *closed the connection*".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It could not be made.
    Unreachable(String),
    /// The machine has no more sockets or ports.
    Machine(String),
    /// What came is not what the scenario speaks.
    NotSpoken(String),
    /// It broke.
    Lost(String),
    /// The session was refused or ended.
    Refused(String),
}

impl Trouble {
    /// Of a connect that failed.
    pub(super) fn connecting(error: &io::Error) -> Trouble {
        let text = words(error);
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => Trouble::Machine(format!("no local port is free: {text}")),
            io::ErrorKind::OutOfMemory => Trouble::Machine(text),
            _ if text.contains("Too many open files") => Trouble::Machine(text),
            _ => Trouble::Unreachable(text),
        }
    }

    /// Of a connection that stood.
    pub(super) fn broken(error: &io::Error) -> Trouble {
        Trouble::Lost(match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "broke the connection".into(),
            _ => words(error),
        })
    }

    /// The text.
    pub(super) fn reason(&self) -> &str {
        match self {
            Trouble::Unreachable(text)
            | Trouble::Machine(text)
            | Trouble::NotSpoken(text)
            | Trouble::Lost(text)
            | Trouble::Refused(text) => text,
        }
    }
}

impl From<Problem> for Trouble {
    /// Of the machine: epoll.
    fn from(problem: Problem) -> Self {
        Trouble::Machine(problem.to_string())
    }
}
