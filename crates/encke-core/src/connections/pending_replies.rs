//! Replies to publications that are not persisted yet. Where histories survive the process, a publication is
//! acknowledged only after it is persisted.
//!
//! Consecutive publications on one channel share a token. On a WebSocket their replies leave together when the token is
//! settled; clients match them by id. If the WebSocket is gone by then, the replies go to the session's outbox, for its
//! next connection. Over HTTP the whole response waits, with its replies in order. A request that holds a connect is
//! answered without them; its late replies wait in the session's outbox.
//!
//! The bytes that the history store has not reported yet bound the number of waiting replies.

use std::collections::HashMap;

use bayeux::Message;
use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::protocol::batch::{Batch, LateKey};

/// The waiting replies of one shard.
#[derive(Default)]
pub(crate) struct PendingReplies {
    /// The number of the latest token.
    tokens: u64,
    waiting: HashMap<u64, Waiting, RandomState>,
    pub(crate) late: Slab<Late>,
    replies: usize,
}

/// The replies that wait for one token.
pub(crate) struct Waiting {
    pub(crate) channel: Box<str>,
    pub(crate) replies: SmallVec<[(Option<bayeux::Id<'static>>, To); 1]>,
}

/// The destination of a late reply.
#[derive(Clone, Copy)]
pub(crate) enum To {
    /// The WebSocket of the publication, or the current connection of the publishing session if that WebSocket is gone.
    Socket(SocketKey, SessionKey),
    /// A request, and the index of this reply among the request's late replies.
    Request(LateKey, usize),
}

/// Late replies for one WebSocket, of one session.
pub(crate) struct OnSocket {
    pub(crate) socket: SocketKey,
    pub(crate) session: SessionKey,
    /// The replies, separated by commas.
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
    /// The byte offset of this reply among the other replies.
    pub(crate) at: usize,
    /// The reply. Empty until it is known.
    pub(crate) text: Vec<u8>,
}

/// The state of a request with late replies.
pub(crate) enum Fate {
    /// The batch is still being processed.
    Open,
    /// The request is answered when its last late reply is known.
    HeldBack(Box<(Batch, ExchangeId, HttpTransport)>),
    /// The request was answered without its late replies. They go to this session.
    Answered(Option<SessionKey>),
}

impl PendingReplies {
    /// The number of waiting replies.
    pub(crate) fn len(&self) -> usize {
        self.replies
    }

    /// The number of a new token.
    pub(crate) fn new_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Lets the reply to a message wait for a token.
    pub(crate) fn add(&mut self, token: u64, message: &Message<'_>, to: To) {
        let waiting = self.waiting.entry(token).or_insert_with(|| Waiting {
            channel: message.channel.as_deref().unwrap_or_default().into(),
            replies: SmallVec::new(),
        });
        waiting.replies.push((message.id.clone().map(bayeux::Id::into_owned), to));
        self.replies += 1;
    }

    /// Removes the replies that wait for a token.
    pub(crate) fn take(&mut self, token: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&token)?;
        self.replies -= waiting.replies.len();
        Some(waiting)
    }
}

/// Inserts late replies at their offsets among the others. All are separated by commas.
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
