//! Replies to publications that are not kept yet: where histories survive the process, the reply says that the message will, too.
//!
//! Publications that follow each other on one channel wait for one ticket. On a WebSocket their replies leave by themselves when it
//! is settled, together; clients match them by id. If the WebSocket is gone by then, the session has moved on to another or will, and its
//! outbox takes them. Over HTTP the whole response waits, and has its replies in order. A request that holds a connect, too, is answered
//! without; there the reply waits in the session's outbox.
//!
//! What waits here is bounded by the bytes that the keeper has not answered yet.

use std::collections::HashMap;

use bayeux::{BayeuxError, ChannelName, Message, Reply};
use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;
use websocket::Opcode;

use super::Shard;
use super::batch::{Batch, Via};
use super::effect::{Effect, ExchangeId, HttpTransport, Kept, Mail, SessionKey, SocketKey, Ticket};
use super::sockets::Phase;

/// The replies of one shard that wait.
#[derive(Default)]
pub(super) struct Unkept {
    tickets: u64,
    waiting: HashMap<u64, Waiting, RandomState>,
    late: Slab<Late>,
    replies: usize,
}

/// Which of the requests with late replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LateKey(usize);

/// What waits for one ticket.
struct Waiting {
    channel: Box<str>,
    replies: SmallVec<[(Option<bayeux::Id<'static>>, To); 1]>,
}

/// Where a reply goes.
#[derive(Clone, Copy)]
enum To {
    /// The WebSocket of the publication; without it, whatever carries the session that published.
    Socket(SocketKey, SessionKey),
    /// The n-th late reply of a request.
    Request(LateKey, usize),
}

/// Late replies for one WebSocket, of one session.
struct OnSocket {
    socket: SocketKey,
    session: SessionKey,
    /// With commas between.
    text: Vec<u8>,
    count: u32,
}

/// A request with late replies.
struct Late {
    replies: Vec<LateReply>,
    missing: usize,
    fate: Fate,
}

struct LateReply {
    /// Where among the other replies it stands, in bytes.
    at: usize,
    /// Empty until it is known.
    text: Vec<u8>,
}

/// What becomes of a request with late replies.
enum Fate {
    /// It is being worked through.
    Open,
    /// It is answered when the last of them is there.
    HeldBack(Box<(Batch, ExchangeId, HttpTransport)>),
    /// It was answered without: they go to the session.
    Answered(Option<SessionKey>),
}

impl Unkept {
    /// Replies that wait.
    pub(super) fn len(&self) -> usize {
        self.replies
    }
}

impl Shard {
    /// What replies to publications on a channel wait for; None where nothing is kept, or nothing survives the process.
    pub(super) fn ticket(&mut self, channel: ChannelName<'_>) -> Option<Ticket> {
        if !self.shared.is_durable || channel.is_pattern() {
            return None;
        }
        let rule = self.rule_of(channel)?;
        self.settings.channels[rule].history()?;
        self.unkept.tickets += 1;
        Some(Ticket { shard: self.index as u16, number: self.unkept.tickets })
    }

    /// Lets the reply to a publication wait for its ticket.
    pub(super) fn accept_later(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        ticket: Ticket,
    ) {
        let to = match batch.via {
            Via::Socket(socket) => {
                if let Some(socket) = self.socket_mut(socket) {
                    socket.unkept += 1;
                }
                To::Socket(socket, session)
            }
            Via::Http { .. } => {
                let late = &mut self.unkept.late;
                let open = || Late { replies: Vec::new(), missing: 0, fate: Fate::Open };
                let LateKey(index) = *batch.late.get_or_insert_with(|| LateKey(late.insert(open())));
                let late = &mut late[index];
                late.replies.push(LateReply { at: batch.replies.len(), text: Vec::new() });
                late.missing += 1;
                To::Request(LateKey(index), late.replies.len() - 1)
            }
        };
        let waiting = self.unkept.waiting.entry(ticket.number).or_insert_with(|| Waiting {
            channel: message.channel.as_deref().unwrap_or_default().into(),
            replies: SmallVec::new(),
        });
        waiting.replies.push((message.id.clone().map(bayeux::Id::into_owned), to));
        self.unkept.replies += 1;
        self.metrics.replies_waiting.set(self.unkept.replies);
    }

    /// Answers a request whose batch has been worked through: now, or when all that it published is kept.
    pub(super) fn finish_when_kept(&mut self, mut batch: Batch, exchange: ExchangeId, transport: HttpTransport) {
        let Some(key) = batch.late else { return self.finish(batch, exchange, &transport) };
        let Some(late) = self.unkept.late.get_mut(key.0) else { return };
        if batch.connected && late.missing > 0 {
            // A client that waits for its connect must not wait for a disk.
            late.fate = Fate::Answered(batch.session);
            batch.replies = merge(&batch.replies, &late.replies);
            self.finish(batch, exchange, &transport);
        } else {
            late.fate = Fate::HeldBack(Box::new((batch, exchange, transport)));
            self.finish_late(key);
        }
    }

    /// Tells the shard of a ticket, which may be this one, what became of it.
    pub(super) fn settle_ticket(&mut self, ticket: Option<Ticket>, is_kept: bool) {
        let Some(ticket) = ticket else { return };
        let kept = Kept { number: ticket.number, is_kept };
        if usize::from(ticket.shard) == self.index {
            self.kept(kept);
        } else {
            self.effects.push(Effect::Mail(usize::from(ticket.shard), Mail::Kept(vec![kept])));
        }
    }

    /// A ticket is settled: the replies that wait for it leave.
    pub(super) fn kept(&mut self, kept: Kept) {
        let Some(Waiting { channel, replies }) = self.unkept.waiting.remove(&kept.number) else { return };
        self.unkept.replies -= replies.len();
        self.metrics.replies_waiting.set(self.unkept.replies);
        if !kept.is_kept {
            self.metrics.errors.add(replies.len());
            tracing::debug!(channel, messages = replies.len(), "publications were delivered, but not kept");
        }
        let timestamp = self.timestamp();
        let error = BayeuxError::not_kept(&channel);
        let mut on_socket: Option<OnSocket> = None;
        for (id, to) in replies {
            let reply = Reply {
                id: id.as_ref(),
                successful: Some(kept.is_kept),
                error: (!kept.is_kept).then_some(&error),
                timestamp: timestamp.as_deref().filter(|_| kept.is_kept),
                ..Reply::new(&*channel)
            };
            match to {
                To::Request(key, index) => {
                    let mut text = Vec::with_capacity(128);
                    reply.write(&mut text);
                    self.late_reply(key, index, text);
                }
                To::Socket(socket, session) => {
                    if on_socket.as_ref().is_some_and(|other| (other.socket, other.session) != (socket, session)) {
                        self.late_on_socket(on_socket.take());
                    }
                    let replies =
                        on_socket.get_or_insert_with(|| OnSocket { socket, session, text: Vec::new(), count: 0 });
                    if replies.count > 0 {
                        replies.text.push(b',');
                    }
                    reply.write(&mut replies.text);
                    replies.count += 1;
                }
            }
        }
        self.late_on_socket(on_socket);
    }

    fn late_on_socket(&mut self, replies: Option<OnSocket>) {
        let Some(OnSocket { socket: key, session, text, count }) = replies else { return };
        if let Some(socket) = self.socket_mut(key) {
            socket.unkept -= count;
        }
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            // Nothing goes out on it any more. A session that has ended, too, has lost its client.
            return self.late_to_session(session, &text);
        };
        let last_words = if socket.unkept == 0 { std::mem::take(&mut socket.last_words) } else { Vec::new() };
        self.reply_on_socket(key, None, &text);
        if !last_words.is_empty() {
            self.reply_on_socket(key, None, &last_words);
        }
    }

    /// Replies that come by whatever carries a session now, or will.
    fn late_to_session(&mut self, session: SessionKey, replies: &[u8]) {
        let frames = self.own.frame(Opcode::Text, replies.len() + 2, |out| {
            [b"[", replies, b"]"].into_iter().for_each(|part| out.extend_from_slice(part));
        });
        self.deliver_to(session, &frames, None);
    }

    fn late_reply(&mut self, key: LateKey, index: usize, text: Vec<u8>) {
        let Some(late) = self.unkept.late.get_mut(key.0) else { return };
        late.missing -= 1;
        let is_last = late.missing == 0;
        match &late.fate {
            Fate::Answered(session) => {
                let session = *session;
                if is_last {
                    self.unkept.late.remove(key.0);
                }
                if let Some(session) = session {
                    self.late_to_session(session, &text);
                }
            }
            _ => {
                late.replies[index].text = text;
                self.finish_late(key);
            }
        }
    }

    /// Answers a request that was held back, if nothing is missing any more.
    fn finish_late(&mut self, key: LateKey) {
        let is_ready = |late: &&mut Late| late.missing == 0 && matches!(late.fate, Fate::HeldBack(_));
        if self.unkept.late.get_mut(key.0).as_ref().is_none_or(|late| !is_ready(late)) {
            return;
        }
        let late = self.unkept.late.remove(key.0);
        let Fate::HeldBack(held_back) = late.fate else { return };
        let (mut batch, exchange, transport) = *held_back;
        batch.replies = merge(&batch.replies, &late.replies);
        self.finish(batch, exchange, &transport);
    }
}

/// Puts late replies where they belong among the others, which have commas between.
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

#[cfg(test)]
mod tests;
