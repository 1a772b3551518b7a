//! Errors that prevent a measurement.

use std::io;

/// The reason that a run ended without a result. Each variant names the party at fault. The text is one line.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The request itself makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The target does not answer.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's words.
        reason: String,
    },
    /// The target does not speak the scenario's protocol.
    #[error("no Bayeux server at {address}: {reason}")]
    NotBayeux {
        /// Host, port and path.
        address: String,
        /// The data received instead of Bayeux.
        reason: String,
    },
    /// The server did something that a client cannot continue after.
    #[error("the server {0}")]
    Server(String),
    /// The machine does not allow the request: too few files, no such process.
    #[error("{0}")]
    Machine(String),
}

impl Problem {
    /// The program's exit code: 2 for wrong use, 3 where no Bayeux server is, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Problem::Usage(_) => 2,
            Problem::Unreachable { .. } | Problem::NotBayeux { .. } => 3,
            Problem::Server(_) | Problem::Machine(_) => 1,
        }
    }
}

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
