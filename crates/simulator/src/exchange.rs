//! HTTP exchanges: a request of a client, and its response.

use encke_core::Request;

use crate::script::Transport;

/// One HTTP request and its response.
#[derive(Debug)]
pub struct Exchange {
    /// The client that sends it.
    pub client: usize,
    /// The session whose client id is in it.
    pub session: Option<usize>,
    /// Its transport.
    pub transport: Transport,
    /// The ids of its messages.
    pub ids: Vec<u64>,
    /// True if its messages include a connect.
    pub connects: bool,
    /// True if it shows the server that the client of its session lives.
    pub sign_of_life: bool,
    /// Its body, for clients that send it again.
    pub body: String,
    /// Its state.
    pub state: State,
    /// True if the client still waits.
    pub client_waits: bool,
    /// The shard whose connection it came on.
    pub shard: usize,
    /// The time at which its client has read the response, in milliseconds.
    pub read_ms: u64,
}

/// The state of an exchange.
#[derive(Debug)]
pub enum State {
    /// On its way.
    Sent(Box<Request>),
    /// The server has it and owes a response.
    Open,
    /// The server was notified that nobody waits.
    Abandoned,
    /// There was a response.
    Answered,
    /// It never arrived.
    Lost,
}

impl Exchange {
    /// True if a response is owed.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// True if it can progress.
    pub fn may_progress(&self) -> bool {
        matches!(self.state, State::Sent(_)) || (self.is_open() && !self.client_waits)
    }
}
