//! The core of Encke: one shard of the server as a deterministic machine, without I/O.
//!
//! A shard owns the sessions, subscriptions and outboxes of one thread. Events come in as method calls with the time.
//! Their consequences are queued, and come out in two ways: [`Shard::flush`] writes outboxes to a [`Wire`], and
//! [`Shard::take_effects`] returns everything else. The core never calls back, never blocks, and reads no clock. So a
//! simulation can drive many shards with virtual time, sockets and faults.
//!
//! ```text
//!   socket_text ─┐                                            ┌─▶ flush ─▶ Wire (one gathered write per session and turn)
//!   request ─────┼─▶ batch ─▶ publication ─▶ Channels ─▶ Delivery
//!   receive ─────┘                                            └─▶ effects (responses, closings, messages to other shards)
//!   advance (time)
//! ```
//!
//! [`Shard`] is the entry point. It conducts machines: each owns its data in private fields, does not know the shard, and
//! returns what others must do.

mod actions;
mod admission;
mod application;
mod attributes;
mod channels;
mod clients;
mod conflation;
mod decision;
mod delivery;
mod events;
mod exchange;
mod handshake_reply;
pub mod history;
mod id;
mod identity;
mod interval;
mod limits;
mod memory;
mod metrics;
mod node_messages;
mod now;
mod opener;
mod protocol;
mod relief;
mod requests;
mod rights;
mod saved;
mod secret;
mod session_terms;
mod settings;
mod shard;
mod side;
mod views;
mod wheel;

pub use admission::account::{Charge, MailboxAccount};
pub use admission::budget::{LIGHT_BYTES_MAX, Usage, Weight};
pub use application::{
    Action, Actions, Answer, Application, Caller, Decision, EXT_BYTES_MAX, EndReason, Handshake, NoApplication,
    Pending, Publishing, Refusal, Replacement, Service, Subscribing, Verdict,
};
pub use attributes::{AttributeChange, AttributeError, Attributes};
pub use channels::interest::Interest;
pub use channels::rules::Rules;
pub use clients::owners::Revoked;
pub use decision::{Awaited, Resolved, WaitKey};
pub use delivery::{Format, Reached, Received, SocketOrigin, Wire};
pub use events::{
    AskedBy, Changed, Closing, ENVELOPE_BYTES, Effect, EncodedPublications, Envelope, ExchangeId, HISTORY_SERVICE,
    HttpTransport, NOT_HERE, OTHER_NODES, PRESENCE_CHANNEL, PRESENCE_SERVICE, Peer, PersistRequest, Persisted,
    PresenceEvent, PublishToken, Report, Request, Response, Searched, SessionKey, ShardMessage, SocketKey,
    crosses_nodes,
};
pub use handshake_reply::{HANDSHAKE_REPLY_BYTES_MAX, HandshakeReply, HandshakeReplyError};
#[cfg(test)]
pub(crate) use id::kernel_entropy;
pub use id::{Entropy, Id, NodeTag};
pub use identity::{Head, Identity, PatternError, Patterns, SessionLimits};
pub use limits::counts::Counts;
pub use limits::rate::Rate;
pub use limits::sessions::{SessionOwner, SessionShares};
pub use limits::shares::{Amount, Budget, Over, Share, Shares, Urgency};
pub use limits::turns::Turns;
pub use limits::users::{Elsewhere as UseElsewhere, UserKey, UserUse, UsersOfNodes};
pub use limits::{Resource, network};
pub use memory::SessionsMemory;
pub use metrics::{Count, Meaning, Metrics};
pub use node_messages::{Elsewhere, ForNodes, FromNodes, Given, Release, Restored, Searcher, Since};
pub use now::Now;
pub use opener::Opener;
pub use protocol::batch::{message_frame, reply_frame};
pub use rights::policy::Policy;
pub use rights::table::{Entry, Granted, Right, ServerEntry};
pub use rights::{By, Client, Denial, May, Wish};
pub use saved::{
    Saved, SavedBatch, SavedCursor, SavedLoss, SavedPattern, SavedReplay, SavedSession, SavedUnacked, Span, Stage,
};
pub use secret::Secret;
pub use session_terms::{SessionTerms, SessionTermsError};
pub use settings::{
    CertificateName, ChannelRule, Declared, FileRule, Group, HistoryCommit, HistoryTerms, ListenerSettings, Publishers,
    SHARDS_MAX, Setting, Settings, SlowConsumer, TlsClient, TlsPair, TransportName, TrustedProxy, TrustedProxyError,
};
pub use shard::{STEPS_PER_DELIVERY, STEPS_PER_TURN, Shard, Shared, StreamOpener, StreamOpening, Taken};
pub use side::Side;
pub use views::{ChannelView, Owner, Page, SLOTS_VISITED_MAX, SessionView};
pub use wheel::SLOT_MS;
