//! Replies to publications that are not kept yet: where histories survive the process, the reply says that the message will, too.
//!
//! Publications that follow each other on one channel wait for one ticket. On a WebSocket their replies leave by themselves when it
//! is settled, together; clients match them by id. If the WebSocket is gone by then, the session has moved on to another or will, and its
//! outbox takes them. Over HTTP the whole response waits, and has its replies in order. A request that holds a connect, too, is answered
//! without; there the reply waits in the session's outbox.
//!
//! What waits here is bounded by the bytes that the keeper has not answered yet.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::protocol::batch::{Batch, LateKey};

/// The replies of one shard that wait.
#[derive(Default)]
pub(crate) struct PendingReplies {
    pub(crate) tokens: u64,
    pub(crate) waiting: HashMap<u64, Waiting, RandomState>,
    pub(crate) late: Slab<Late>,
    pub(crate) replies: usize,
}

/// What waits for one ticket.
pub(crate) struct Waiting {
    pub(crate) channel: Box<str>,
    pub(crate) replies: SmallVec<[(Option<bayeux::Id<'static>>, To); 1]>,
}

/// Where a reply goes.
#[derive(Clone, Copy)]
pub(crate) enum To {
    /// The WebSocket of the publication; without it, whatever carries the session that published.
    Socket(SocketKey, SessionKey),
    /// The n-th late reply of a request.
    Request(LateKey, usize),
}

/// Late replies for one WebSocket, of one session.
pub(crate) struct OnSocket {
    pub(crate) socket: SocketKey,
    pub(crate) session: SessionKey,
    /// With commas between.
    pub(crate) text: Vec<u8>,
    pub(crate) count: u32,
}

/// A request with late replies.
pub(crate) struct Late {
    pub(crate) replies: Vec<LateReply>,
    pub(crate) missing: usize,
    pub(crate) fate: Fate,
}

pub(crate) struct LateReply {
    /// Where among the other replies it stands, in bytes.
    pub(crate) at: usize,
    /// Empty until it is known.
    pub(crate) text: Vec<u8>,
}

/// What becomes of a request with late replies.
pub(crate) enum Fate {
    /// It is being worked through.
    Open,
    /// It is answered when the last of them is there.
    HeldBack(Box<(Batch, ExchangeId, HttpTransport)>),
    /// It was answered without: they go to the session.
    Answered(Option<SessionKey>),
}

impl PendingReplies {
    /// Replies that wait.
    pub(crate) fn len(&self) -> usize {
        self.replies
    }
}

/// Puts late replies where they belong among the others, which have commas between.
pub(crate) fn merge(others: &[u8], late: &[LateReply]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(others.len() + late.iter().map(|late| late.text.len() + 1).sum::<usize>());
    let mut add = |part: &[u8]| {
        let part = part.strip_prefix(b",").unwrap_or(part);
        if !merged.is_empty() && !part.is_empty() {
            merged.push(b',');
        }
        merged.extend_from_slice(part);
    };
    let mut from = 0;
    for late in late {
        add(&others[from..late.at]);
        add(&late.text);
        from = late.at;
    }
    add(&others[from..]);
    merged
}
