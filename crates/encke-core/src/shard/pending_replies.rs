//! Holds replies to publications back until the publications are persisted. `batch` leads here for a publication on a
//! durable channel, and [`ShardMessage::Persisted`] when the history store has reported the result.

use bayeux::{ChannelName, Message};

use crate::application::EndReason;
use crate::connections::socket::Phase;
use crate::events::{Effect, HttpTransport, Persisted, PublishToken, SessionKey, ShardMessage};
use crate::protocol::batch::{Batch, Outcome, Via};
use crate::requests::{Answer, Due, OnSocket, Settled};
use crate::shard::Parts;

impl Parts {
    /// Answers a request whose batch has been processed.
    fn finish(&mut self, answer: Answer) {
        let Answer { batch, exchange, transport } = answer;
        // Callback-polling delivers with connects only. Long-polling delivers with every response, unless the settings
        // say otherwise. A session that acknowledges or replays gets messages with connects only: messages on two
        // connections at once may overtake each other, and numbered ones must not.
        let anytime = transport == HttpTransport::LongPolling && !self.settings.given().connect_deliver_only;
        let session = batch.session.and_then(|key| self.sessions.get(key));
        let numbered = session.is_some_and(|session| session.unacked().is_some() || session.replay.is_some());
        let deliver = batch.is_connected() || (anytime && !batch.handshake && !numbered);
        self.respond_with(exchange, &transport, batch.session, deliver, &batch.replies, batch.set_browser);
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
        Some(PublishToken { shard: self.index as u16, number: self.requests.new_token() })
    }

    /// Lets the reply to a publication wait for its token.
    pub(super) fn accept_later(
        &mut self,
        batch: &mut Batch,
        message: &Message<'_>,
        session: SessionKey,
        token: PublishToken,
    ) {
        if let Via::Socket(socket) = batch.via
            && let Some(socket) = self.socket_mut(socket)
        {
            socket.pending_replies += 1;
        }
        self.requests.owe(token.number, batch, message, session);
        self.metrics.replies_waiting.set(self.requests.pending().replies);
    }

    /// Answers a request whose batch has been processed: now, or when all its publications are persisted.
    pub(super) fn finish_when_persisted(&mut self, answer: Answer) {
        if let Some(answer) = self.requests.answer(answer) {
            self.finish(answer);
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
        let timestamp = self.timestamp();
        let Some(settled) = self.requests.settle(stored, timestamp.as_deref()) else { return };
        let Settled { channel, publications, due } = settled;
        self.metrics.replies_waiting.set(self.requests.pending().replies);
        if !stored.is_persisted {
            self.metrics.errors.add(publications);
            tracing::debug!(channel, messages = publications, "publications were delivered but not stored");
        }
        for due in due {
            match due {
                Due::Socket(replies) => self.late_on_socket(replies),
                Due::Session(session, text) => self.late_to_session(session, &text),
                Due::Response(answer) => self.finish(*answer),
            }
        }
    }

    fn late_on_socket(&mut self, replies: OnSocket) {
        let OnSocket { socket: key, session, text, count } = replies;
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
}
