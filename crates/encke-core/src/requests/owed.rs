//! Replies that wait. Where histories survive the process, a publication is acknowledged only after it is persisted; in a cluster,
//! when other nodes have it. A session that replays gets the position of its publication with the reply, so that waits until the
//! owner of the history has it. In a cluster, a subscribe is acknowledged only after publications of the other nodes arrive.
//!
//! Consecutive publications on one channel share a token. On a WebSocket their replies leave together when the token is
//! settled; clients match them by id. If the WebSocket is gone by then, the replies go to the session's outbox, for its
//! next connection. Over HTTP the whole response waits, with its replies in order. A request that holds a connect is
//! answered without them; its late replies wait in the session's outbox.
//!
//! The bytes that the history store or the cluster has not reported yet bound the number of waiting replies to publications,
//! [`INTEREST_REPLIES_MAX`] bounds that of replies to subscribes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bayeux::ext::Heartbeat;
use bayeux::{Message, RawJson, Reply};
use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::events::{ExchangeId, HttpTransport, Persisted, SessionKey, SocketKey};
use crate::protocol::batch::{Batch, LateKey, Via};

/// The replies that one shard owes its clients.
#[derive(Default)]
pub(crate) struct Owed {
    /// The number of the latest token.
    tokens: u64,
    waiting: HashMap<u64, Waiting, RandomState>,
    late: Slab<Late>,
    replies: usize,
}

/// The replies that wait for one token.
struct Waiting {
    channel: Box<str>,
    replies: SmallVec<[(Text, To); 1]>,
    /// The epoch of the publications, and the offset of the first one.
    position: Option<(Arc<str>, u64)>,
    /// The session that gets nothing before the reply.
    withheld: Option<SessionKey>,
}

/// The text of a late reply.
enum Text {
    /// It depends on the outcome: the id of the message, and its index among the publications of the token if the reply has its
    /// position.
    OfOutcome(Option<bayeux::Id<'static>>, Option<u64>),
    /// It is written already.
    Written(Box<[u8]>),
}

impl Text {
    fn write(&self, outcome: &ReplyOutcome<'_>, text: &mut Vec<u8>) {
        let (id, index) = match self {
            Text::Written(written) => return text.extend_from_slice(written),
            Text::OfOutcome(id, index) => (id.as_ref(), *index),
        };
        let ReplyOutcome { channel, is_persisted, error, timestamp, position } = *outcome;
        let position = position.as_ref().filter(|_| is_persisted).zip(index);
        let ext = position.map(|((epoch, first), index)| {
            let stamp = Heartbeat { epoch: Cow::Borrowed(epoch), offset: Some(first + index), lost: None };
            format!("{{\"replay\":{}}}", stamp.to_json())
        });
        let reply = Reply {
            id,
            ext: ext.as_deref().map(RawJson::trusted),
            successful: Some(is_persisted),
            error: (!is_persisted).then_some(error),
            timestamp: timestamp.filter(|_| is_persisted),
            ..Reply::new(channel)
        };
        reply.write(text);
    }
}

/// The outcome of publications.
struct ReplyOutcome<'a> {
    channel: &'a str,
    is_persisted: bool,
    error: &'a str,
    timestamp: Option<&'a str>,
    position: &'a Option<(Arc<str>, u64)>,
}

/// The destination of a late reply.
#[derive(Clone, Copy)]
enum To {
    /// The WebSocket of the publication, or the current connection of the publishing session if that WebSocket is gone.
    Socket(SocketKey, SessionKey),
    /// A request, and the index of this reply among the request's late replies.
    Request(LateKey, usize),
}

/// The replies to settled publications.
pub(crate) struct Settled {
    /// The channel of the publications.
    pub(crate) channel: Box<str>,
    /// The number of publications.
    pub(crate) publications: usize,
    /// The replies, in order.
    pub(crate) due: SmallVec<[Due; 1]>,
    /// The session that gets messages again when these have left.
    pub(crate) withheld: Option<SessionKey>,
}

/// Something that is to be sent now.
pub(crate) enum Due {
    /// Replies for a WebSocket.
    Socket(OnSocket),
    /// A reply for the current or next connection of a session.
    Session(SessionKey, Vec<u8>),
    /// The response to a request that was held back.
    Response(Box<Answer>),
}

/// Late replies for one WebSocket, of one session.
pub(crate) struct OnSocket {
    pub(crate) socket: SocketKey,
    pub(crate) session: SessionKey,
    /// The replies, separated by commas.
    pub(crate) text: Vec<u8>,
    pub(crate) count: u32,
}

/// A request whose batch has been processed.
pub(crate) struct Answer {
    pub(crate) batch: Batch,
    pub(crate) exchange: ExchangeId,
    pub(crate) transport: HttpTransport,
}

/// A request with late replies.
struct Late {
    replies: Vec<LateReply>,
    missing: usize,
    /// True if a reply to a connect must not overtake them.
    holds_connects: bool,
    fate: Fate,
}

struct LateReply {
    /// The byte offset of this reply among the other replies.
    at: usize,
    /// The reply. Empty until it is known.
    text: Vec<u8>,
}

/// The state of a request with late replies.
enum Fate {
    /// The batch is still being processed.
    Open,
    /// The request is answered when its last late reply is known.
    HeldBack(Box<Answer>),
    /// The request was answered without its late replies. They go to this session.
    Answered(Option<SessionKey>),
}

impl Owed {
    /// The number of waiting replies.
    pub(crate) fn len(&self) -> usize {
        self.replies
    }

    /// True if a request has late replies.
    #[cfg(test)]
    pub(crate) fn has_late_replies(&self) -> bool {
        !self.late.is_empty()
    }

    /// The number of a new token, for which replies to publications can wait.
    pub(crate) fn new_token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Lets the reply to a publication in a batch wait for a token. With an index among the publications of the token the reply has
    /// the position of the message.
    pub(crate) fn owe(
        &mut self,
        token: u64,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        index: Option<u64>,
    ) {
        let id = message.id.clone().map(bayeux::Id::into_owned);
        self.wait(token, batch, message, session, Text::OfOutcome(id, index));
    }

    /// The publications of a token are in a history, in this epoch, the first one with this offset.
    pub(crate) fn recorded(&mut self, token: u64, epoch: Arc<str>, first: u64) {
        if let Some(waiting) = self.waiting.get_mut(&token) {
            waiting.position = Some((epoch, first));
        }
    }

    /// Lets this reply to a message of a batch wait for a token.
    pub(crate) fn owe_written(
        &mut self,
        token: u64,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        reply: Vec<u8>,
    ) {
        self.wait(token, batch, message, session, Text::Written(reply.into()));
    }

    /// Notes that a session gets nothing before the reply that waits for this token. A connect of the same request waits, too:
    /// its client takes no message before that reply.
    pub(crate) fn withhold(&mut self, token: u64, batch: &Batch, session: SessionKey) {
        self.waiting.get_mut(&token).into_iter().for_each(|waiting| waiting.withheld = Some(session));
        let late = batch.late.as_ref().and_then(|key| self.late.get_mut(key.0));
        late.into_iter().for_each(|late| late.holds_connects = true);
    }

    /// True if no further reply to a subscribe may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.replies >= INTEREST_REPLIES_MAX
    }

    fn wait(&mut self, token: u64, batch: &mut Batch, message: &Message<'_>, session: SessionKey, text: Text) {
        let to = match batch.via {
            Via::Socket(socket) => To::Socket(socket, session),
            Via::Http { .. } => {
                let open = || Late { replies: Vec::new(), missing: 0, holds_connects: false, fate: Fate::Open };
                let LateKey(index) = *batch.late.get_or_insert_with(|| LateKey(self.late.insert(open())));
                let late = &mut self.late[index];
                late.replies.push(LateReply { at: batch.replies.len(), text: Vec::new() });
                late.missing += 1;
                To::Request(LateKey(index), late.replies.len() - 1)
            }
        };
        let waiting = self.waiting.entry(token).or_insert_with(|| Waiting {
            channel: message.channel.as_deref().unwrap_or_default().into(),
            replies: SmallVec::new(),
            position: None,
            withheld: None,
        });
        waiting.replies.push((text, to));
        self.replies += 1;
    }

    /// Takes a request whose batch has been processed. Returns it if it is to be answered now. Otherwise its answer comes
    /// out of [`Owed::settle`].
    pub(crate) fn answer(&mut self, mut answer: Answer) -> Option<Answer> {
        let Some(key) = answer.batch.late else { return Some(answer) };
        let late = self.late.get_mut(key.0)?;
        if answer.batch.is_connected() && late.missing > 0 && !late.holds_connects {
            // A client that waits for its connect must not wait for a disk.
            late.fate = Fate::Answered(answer.batch.session);
            answer.batch.replies = merge(&answer.batch.replies, &late.replies);
            return Some(answer);
        }
        late.fate = Fate::HeldBack(Box::new(answer));
        self.complete(key).map(|answer| *answer)
    }

    /// Settles a token: returns the replies that have waited for it.
    pub(crate) fn settle(
        &mut self,
        persisted: Persisted,
        timestamp: Option<&str>,
        refusal: impl Fn(&str) -> String,
    ) -> Option<Settled> {
        let Waiting { channel, replies, position, withheld } = self.waiting.remove(&persisted.number)?;
        let publications = replies.len();
        self.replies -= publications;
        let error = if persisted.is_persisted { String::new() } else { refusal(&channel) };
        let mut due = SmallVec::new();
        let mut on_socket: Option<OnSocket> = None;
        let (position, is_persisted) = (&position, persisted.is_persisted);
        let outcome = ReplyOutcome { channel: &channel, is_persisted, error: &error, timestamp, position };
        for (reply, to) in replies {
            match to {
                To::Request(key, index) => {
                    let mut text = Vec::with_capacity(128);
                    reply.write(&outcome, &mut text);
                    due.extend(self.late_reply(key, index, text));
                }
                To::Socket(socket, session) => {
                    if on_socket.as_ref().is_some_and(|other| (other.socket, other.session) != (socket, session)) {
                        due.extend(on_socket.take().map(Due::Socket));
                    }
                    let replies =
                        on_socket.get_or_insert_with(|| OnSocket { socket, session, text: Vec::new(), count: 0 });
                    if replies.count > 0 {
                        replies.text.push(b',');
                    }
                    reply.write(&outcome, &mut replies.text);
                    replies.count += 1;
                }
            }
        }
        due.extend(on_socket.map(Due::Socket));
        Some(Settled { channel, publications, due, withheld })
    }

    fn late_reply(&mut self, key: LateKey, index: usize, text: Vec<u8>) -> Option<Due> {
        let late = self.late.get_mut(key.0)?;
        late.missing -= 1;
        if let Fate::Answered(session) = late.fate {
            if late.missing == 0 {
                self.late.remove(key.0);
            }
            return Some(Due::Session(session?, text));
        }
        late.replies[index].text = text;
        self.complete(key).map(Due::Response)
    }

    /// Takes out a request that was held back, if no late reply is missing any more.
    fn complete(&mut self, key: LateKey) -> Option<Box<Answer>> {
        self.late.get(key.0).filter(|late| late.missing == 0 && matches!(late.fate, Fate::HeldBack(_)))?;
        let late = self.late.remove(key.0);
        let Fate::HeldBack(mut answer) = late.fate else { return None };
        answer.batch.replies = merge(&answer.batch.replies, &late.replies);
        Some(answer)
    }
}

/// Inserts late replies at their offsets among the others. All are separated by commas.
fn merge(others: &[u8], late: &[LateReply]) -> Vec<u8> {
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

/// Replies that wait on one shard. Above it, replies to subscribes leave at once.
const INTEREST_REPLIES_MAX: usize = 65_536;
