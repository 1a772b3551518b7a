//! Holds replies to publications back until the publications are persisted. `batch` leads here for a publication on a
//! durable channel, and [`ShardMessage::Persisted`] when the history store has reported the result.

use bayeux::{BayeuxError, ChannelName, Message, Reply};

use crate::application::EndReason;
use crate::connections::pending_replies::{Fate, Late, LateReply, OnSocket, To, Waiting, merge};
use crate::connections::socket::Phase;
use crate::events::{Effect, ExchangeId, HttpTransport, Persisted, PublishToken, SessionKey, ShardMessage};
use crate::protocol::batch::{Batch, LateKey, Outcome, Via};
use crate::shard::Parts;

impl Parts {
    /// Answers a request whose batch has been processed.
    pub(super) fn finish(&mut self, batch: Batch, exchange: ExchangeId, transport: &HttpTransport) {
        // Callback-polling delivers with connects only. Long-polling delivers with every response, unless the settings
        // say otherwise. A session that acknowledges or replays gets messages with connects only: messages on two
        // connections at once may overtake each other, and numbered ones must not.
        let anytime = *transport == HttpTransport::LongPolling && !self.settings.given().connect_deliver_only;
        let session = batch.session.and_then(|key| self.sessions.get(key));
        let numbered = session.is_some_and(|session| session.unacked().is_some() || session.replay.is_some());
        let deliver = batch.is_connected() || (anytime && !batch.handshake && !numbered);
        self.respond_with(exchange, transport, batch.session, deliver, &batch.replies, batch.set_browser);
        if batch.is(Outcome::EndsSession)
            && let Some(key) = batch.session
        {
            self.remove_session(key, EndReason::Kicked);
        }
    }

    /// A token for the replies to publications on a channel. None if the channel has no history, or histories do not
    /// survive the process.
    pub(super) fn token(&mut self, channel: ChannelName<'_>) -> Option<PublishToken> {
        if !self.shared.is_durable {
            return None;
        }
        let rule = self.settings.rule_of(channel);
        self.settings.history(channel, rule)?;
        Some(PublishToken { shard: self.index as u16, number: self.connections.pending_replies.new_token() })
    }

    /// Lets the reply to a publication wait for its token.
    pub(super) fn accept_later(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        token: PublishToken,
    ) {
        let to = match batch.via {
            Via::Socket(socket) => {
                if let Some(socket) = self.socket_mut(socket) {
                    socket.pending_replies += 1;
                }
                To::Socket(socket, session)
            }
            Via::Http { .. } => {
                let late = &mut self.connections.pending_replies.late;
                let open = || Late { replies: Vec::new(), missing: 0, fate: Fate::Open };
                let LateKey(index) = *batch.late.get_or_insert_with(|| LateKey(late.insert(open())));
                let late = &mut late[index];
                late.replies.push(LateReply { at: batch.replies.len(), text: Vec::new() });
                late.missing += 1;
                To::Request(LateKey(index), late.replies.len() - 1)
            }
        };
        self.connections.pending_replies.add(token.number, message, to);
        self.metrics.replies_waiting.set(self.connections.pending_replies.len());
    }

    /// Answers a request whose batch has been processed: now, or when all its publications are persisted.
    pub(super) fn finish_when_persisted(&mut self, mut batch: Batch, exchange: ExchangeId, transport: HttpTransport) {
        let Some(key) = batch.late else { return self.finish(batch, exchange, &transport) };
        let Some(late) = self.connections.pending_replies.late.get_mut(key.0) else { return };
        if batch.is_connected() && late.missing > 0 {
            // A client that waits for its connect must not wait for a disk.
            late.fate = Fate::Answered(batch.session);
            batch.replies = merge(&batch.replies, &late.replies);
            self.finish(batch, exchange, &transport);
        } else {
            late.fate = Fate::HeldBack(Box::new((batch, exchange, transport)));
            self.finish_late(key);
        }
    }

    /// Reports the result to the shard of a token, which may be this one.
    pub(super) fn settle_token(&mut self, token: Option<PublishToken>, is_persisted: bool) {
        let Some(token) = token else { return };
        let stored = Persisted { number: token.number, is_persisted };
        if usize::from(token.shard) == self.index {
            self.stored(stored);
        } else {
            self.effects.push(Effect::SendToShard(usize::from(token.shard), ShardMessage::Persisted(vec![stored])));
        }
    }

    /// Settles a token: the replies that wait for it leave.
    pub(super) fn stored(&mut self, stored: Persisted) {
        let waiting = self.connections.pending_replies.take(stored.number);
        let Some(Waiting { channel, replies }) = waiting else { return };
        self.metrics.replies_waiting.set(self.connections.pending_replies.len());
        if !stored.is_persisted {
            self.metrics.errors.add(replies.len());
            tracing::debug!(channel, messages = replies.len(), "publications were delivered but not stored");
        }
        let timestamp = self.timestamp();
        let error = BayeuxError::not_stored(&channel);
        let mut on_socket: Option<OnSocket> = None;
        for (id, to) in replies {
            let reply = Reply {
                id: id.as_ref(),
                successful: Some(stored.is_persisted),
                error: (!stored.is_persisted).then_some(&error),
                timestamp: timestamp.as_deref().filter(|_| stored.is_persisted),
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
            socket.pending_replies -= count;
        }
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            // This socket sends nothing more. If the session has ended, too, nobody gets the reply.
            return self.late_to_session(session, &text);
        };
        let own = socket.own.as_mut().filter(|_| socket.pending_replies == 0);
        let final_replies = own.map(|own| std::mem::take(&mut own.final_replies)).unwrap_or_default();
        self.reply_on_socket(key, None, &text);
        if !final_replies.is_empty() {
            self.reply_on_socket(key, None, &final_replies);
        }
    }

    /// Queues replies for the session's current or next connection.
    pub(super) fn late_to_session(&mut self, session: SessionKey, replies: &[u8]) {
        let frames = self.fanout.encoder.replies(replies);
        self.deliver_to(session, &frames, None);
    }

    fn late_reply(&mut self, key: LateKey, index: usize, text: Vec<u8>) {
        let Some(late) = self.connections.pending_replies.late.get_mut(key.0) else { return };
        late.missing -= 1;
        let is_last = late.missing == 0;
        match &late.fate {
            Fate::Answered(session) => {
                let session = *session;
                if is_last {
                    self.connections.pending_replies.late.remove(key.0);
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

    /// Answers a request that was held back, if no late reply is missing any more.
    fn finish_late(&mut self, key: LateKey) {
        let is_ready = |late: &&mut Late| late.missing == 0 && matches!(late.fate, Fate::HeldBack(_));
        if self.connections.pending_replies.late.get_mut(key.0).as_ref().is_none_or(|late| !is_ready(late)) {
            return;
        }
        let late = self.connections.pending_replies.late.remove(key.0);
        let Fate::HeldBack(held_back) = late.fate else { return };
        let (mut batch, exchange, transport) = *held_back;
        batch.replies = merge(&batch.replies, &late.replies);
        self.finish(batch, exchange, &transport);
    }
}
