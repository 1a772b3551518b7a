//! A node of a cluster: what it wants of the other nodes, what it sends them, and what it takes from them. [`Node`] is a
//! deterministic machine: time is an input, and there are no threads and no sockets.
//!
//! An *engine* carries envelopes between nodes, by subject, at most once. It keeps the order of one node's envelopes on one
//! subject. NATS is one.
//!
//! ```text
//!   shards ── publications ──▶ Outgoing ── envelopes ──▶ engine ── envelopes ──▶ Incoming ── publications ──▶ shards
//!     └────── interest ──────▶ Wants ── subscriptions ──▶ engine
//! ```

mod command;
#[cfg(test)]
mod dice;
mod envelope;
mod event;
mod hex;
mod histories;
mod incoming;
mod leases;
mod member;
mod member_histories;
mod node;
mod node_rings;
mod numbers;
mod outgoing;
mod own_name;
mod remote_calls;
mod resumptions;
mod revocations;
mod sessions;
mod subject;
mod user_ends;
mod user_limits;
mod wants;

pub use command::{
    Command, Expected, JournalValue, KEY_BYTES_MAX, KeyAnswer, KeyFailure, KeyReply, RequestFailure, VALUE_BYTES_MAX,
};
pub use envelope::{Envelope, EnvelopeError};
pub use event::Event;
pub use histories::{Content, Copied, Cursor, Entry, Histories, HistoriesSettings, HistoryCounts};
pub use histories::{HistoryOutput, Report, Rings, SinceMs, Submission};
pub use leases::{LeaseOutput, Leases};
pub use member::{Member, MemberOutput};
pub use node::{Counts, Node, NodeLimits};
pub use node_rings::Shards;
pub use own_name::OwnName;
pub use remote_calls::{
    Answers, CallKind, Callee, RemoteCallCounts, RemoteCallOutput, RemoteCalls, RemoteCallsSettings,
};
pub use revocations::{RevocationCounts, RevocationOutput, Revocations};
pub use sessions::{
    Order, Ordered, Output, Past, RecordView, RelayId, RelayOutput, RelayRequest, Resumption, SessionCounts, Sessions,
    SessionsSettings, Visited, Visitor,
};
pub use subject::{NAME_BYTES_MAX, SUBJECT_BYTES_MAX, Subjects, channel_bytes_max};
pub use user_ends::UserEnd;
pub use user_limits::{UserLimitCounts, UserLimits};
