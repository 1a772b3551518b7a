//! Why a measurement could not be made.

use std::io;

/// Why a run ended without a result; each variant says who is at fault. The text is one line.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The request itself makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Nobody answers at the target.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's words.
        reason: String,
    },
    /// Somebody answers at the target, but does not speak what the scenario speaks.
    #[error("no Bayeux server at {address}: {reason}")]
    NotBayeux {
        /// Host, port and path.
        address: String,
        /// What came in place of Bayeux.
        reason: String,
    },
    /// The server did something a client cannot go on from.
    #[error("the server {0}")]
    Server(String),
    /// The machine does not allow what was asked: too few files, no such process.
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
