//! Replies that wait: to publications until these are persisted or other nodes have them, to subscribes until other nodes know of them; and the
//! responses that wait for such replies.

use bayeux::{BayeuxError, ChannelName};

use crate::application::EndReason;
use crate::events::{Effect, HttpTransport, Persisted, PublishToken, SessionKey, ShardMessage};
use crate::protocol::batch::Outcome;
use crate::requests::{Answer, Due, OnSocket, Settled};
use crate::shard::Machines;

impl Machines {
    /// Answers a request whose batch has been processed.
    fn finish(&mut self, answer: Answer) {
        let Answer { batch, exchange, transport } = answer;
        // Callback-polling delivers with connects only. Long-polling delivers with every response, unless the settings
        // say otherwise. A session that acknowledges or replays gets messages with connects only: messages on two
        // connections at once may overtake each other, and numbered ones must not.
        let anytime = transport == HttpTransport::LongPolling && !self.env.settings.given().connect_deliver_only;
        let session = batch.session.and_then(|key| self.delivery.session(key));
        let numbered = session.is_some_and(|session| session.acknowledges() || session.replays());
        let deliver = batch.is_connected() || (anytime && !batch.handshake && !numbered);
        self.delivery.respond_with(exchange, &transport, batch.session, deliver, &batch.replies, batch.set_browser);
        if batch.is(Outcome::EndsSession)
            && let Some(key) = batch.session
        {
            self.end_session(key, EndReason::Kicked);
        }
    }

    /// A token for the replies to publications of a session on a channel. None if the channel has no history, or the replies need
    /// not wait: histories do not survive the process, no other nodes have them, and the session wants no positions, as it does
    /// not replay.
    pub(super) fn token(&mut self, channel: ChannelName<'_>, from: SessionKey) -> Option<PublishToken> {
        let waits = self.env.shared.is_durable || self.env.shared.is_clustered();
        if !waits && !self.delivery.aside().replays(from) {
            return None;
        }
        let rule = self.env.settings.rule_of(channel);
        self.env.settings.history(channel, rule)?;
        Some(PublishToken { shard: self.env.index as u16, number: self.requests.owed.new_token() })
    }

    /// Answers a request whose batch has been processed: now, or when all its publications are persisted.
    pub(super) fn finish_when_persisted(&mut self, answer: Answer) {
        if let Some(answer) = self.requests.owed.answer(answer) {
            self.finish(answer);
        }
    }

    /// Reports the result to the shard of a token, which may be this one.
    pub(super) fn settle_token(&mut self, token: Option<PublishToken>, is_persisted: bool) {
        let Some(token) = token else { return };
        let stored = Persisted { number: token.number, is_persisted };
        if usize::from(token.shard) == self.env.index {
            self.stored(stored);
        } else {
            self.emit(Effect::SendToShard(usize::from(token.shard), ShardMessage::Persisted(vec![stored])));
        }
    }

    /// Settles a token: the replies that wait for it leave.
    pub(super) fn stored(&mut self, stored: Persisted) {
        let timestamp = self.env.timestamp();
        let refusal =
            if self.env.shared.is_clustered() { BayeuxError::not_replicated } else { BayeuxError::not_stored };
        let Some(settled) = self.requests.owed.settle(stored, timestamp.as_deref(), refusal) else { return };
        let Settled { channel, publications, due, withheld } = settled;
        self.env.metrics.replies_waiting.set(self.requests.pending().replies);
        if !stored.is_persisted {
            self.env.metrics.errors.add(publications);
            tracing::debug!(channel, messages = publications, "publications were not stored");
        }
        for due in due {
            match due {
                Due::Socket(replies) => self.late_on_socket(replies, withheld),
                Due::Session(session, text) => self.late_to_session(session, &text, withheld),
                Due::Response(answer) => self.finish(*answer),
            }
        }
        withheld.into_iter().for_each(|session| self.delivery.release_withheld(session));
    }

    /// Settles the tokens of subscribes: their replies leave.
    pub(super) fn interest_known(&mut self, numbers: &[u64]) {
        for number in numbers {
            if !self.restored_is_known(*number) {
                self.stored(Persisted { number: *number, is_persisted: true });
            }
        }
    }

    /// `withheld`: the session that gets nothing before these replies.
    fn late_on_socket(&mut self, replies: OnSocket, withheld: Option<SessionKey>) {
        let OnSocket { socket: key, session, text, count } = replies;
        let Some(final_replies) = self.delivery.pay_replies(key, count) else {
            // This socket sends nothing more. If the session has ended, too, nobody gets the reply.
            return self.late_to_session(session, &text, withheld);
        };
        for replies in [text, final_replies].iter().filter(|replies| !replies.is_empty()) {
            let replied = match withheld {
                Some(_) => self.delivery.reply_first(key, replies),
                None => self.delivery.reply_on_socket(key, None, replies),
            };
            self.end_given_up(replied);
        }
    }

    /// Queues replies for the session's current or next connection, before its messages if these have waited for the replies.
    pub(super) fn late_to_session(&mut self, session: SessionKey, replies: &[u8], withheld: Option<SessionKey>) {
        let frames = self.delivery.encoder().replies(replies);
        if withheld == Some(session) && self.delivery.deliver_first(session, &frames) {
            return;
        }
        self.deliver_frames_to(session, &frames);
    }
}
