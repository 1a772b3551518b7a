//! What can happen to a connection of a session.

use std::io;

use crate::engine::connections::os_message;
use crate::problem::Problem;

/// Why a connection is of no use any more; the text says what the server did: "the server *closed the connection*".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionError {
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

impl ConnectionError {
    /// Of a connect that failed.
    pub(super) fn connecting(error: &io::Error) -> ConnectionError {
        let text = os_message(error);
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => ConnectionError::Machine(format!("no local port is free: {text}")),
            io::ErrorKind::OutOfMemory => ConnectionError::Machine(text),
            _ if text.contains("Too many open files") => ConnectionError::Machine(text),
            _ => ConnectionError::Unreachable(text),
        }
    }

    /// Of a connection that stood.
    pub(super) fn broken(error: &io::Error) -> ConnectionError {
        ConnectionError::Lost(match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => "broke the connection".into(),
            _ => os_message(error),
        })
    }

    /// The text.
    pub(super) fn reason(&self) -> &str {
        match self {
            ConnectionError::Unreachable(text)
            | ConnectionError::Machine(text)
            | ConnectionError::NotSpoken(text)
            | ConnectionError::Lost(text)
            | ConnectionError::Refused(text) => text,
        }
    }
}

impl From<Problem> for ConnectionError {
    /// Of the machine: epoll.
    fn from(problem: Problem) -> Self {
        ConnectionError::Machine(problem.to_string())
    }
}
