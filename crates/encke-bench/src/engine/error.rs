//! Errors of a session's connection.

use std::io;

use crate::engine::connections::os_message;
use crate::problem::Problem;

/// The reason that a connection failed. The text follows "the server", as in "the server *closed the connection*".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionError {
    /// It could not be made.
    Unreachable(String),
    /// The machine has no more sockets or ports.
    Machine(String),
    /// The peer does not speak the expected protocol.
    NotSpoken(String),
    /// It broke.
    Lost(String),
    /// The session was refused or ended.
    Refused(String),
}

impl ConnectionError {
    /// Classifies the error of a failed connect.
    pub(super) fn connecting(error: &io::Error) -> ConnectionError {
        let text = os_message(error);
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => ConnectionError::Machine(format!("no local port is free: {text}")),
            io::ErrorKind::OutOfMemory => ConnectionError::Machine(text),
            _ if text.contains("Too many open files") => ConnectionError::Machine(text),
            _ => ConnectionError::Unreachable(text),
        }
    }

    /// Classifies the error of an established connection.
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
    /// Converts an epoll error.
    fn from(problem: Problem) -> Self {
        ConnectionError::Machine(problem.to_string())
    }
}
