//! Answers to the questions of other nodes.

use bytes::Bytes;
use encke_core::{
    ExchangeId, FromNodes, Given, NOT_HERE, NodeTag, Peer, Release, Request, Response, Searched, ShardMessage,
};

use super::message::{Fate, MULTIPLEXED, Question, Reply, Serve};
use super::record::Key;
use super::serving::{NotServed, Served};
use super::{Leaving, Output, Sessions};
use crate::command::Command;

impl Sessions {
    pub(super) fn answer_question(&mut self, now_ms: u64, reply_to: String, question: Question) {
        match question {
            Question::Ping => self.reply(reply_to, &Reply::Done),
            Question::Serve(Serve { session, .. }) | Question::Release { session, .. } if self.is_loading(&session) => {
                self.reply(reply_to, &Reply::Busy);
            }
            Question::Serve(serve) => self.serve(reply_to, serve),
            Question::Settled(node, number, fate) => {
                self.reply(reply_to, &Reply::Done);
                self.settled(node, number, fate);
            }
            Question::Release { session, node, bytes_max, is_urgent, opener } => {
                let key = Key::of(&session);
                if self.records.is_busy(&key) {
                    return self.reply(reply_to, &Reply::Busy);
                }
                let bytes_max = (bytes_max as usize).min(self.body_bytes_max);
                self.last += 1;
                let number = self.last;
                let leaving = Leaving { session, reply_to, to: node, bytes_max };
                self.releasing.insert(number, leaving);
                let bytes_max = bytes_max.saturating_sub(STATE_BYTES);
                let release = Release { number, bytes_max, is_urgent, opener };
                self.tell_shard(&session, FromNodes::Release(session, release));
            }
            Question::Open(relay, request) => self.relay_opened(now_ms, reply_to, relay, request),
            Question::Carry(relay, bytes) => self.relay_bytes(reply_to, relay, bytes),
            Question::Close(relay) => {
                self.reply(reply_to, &Reply::Done);
                self.relay_closed(relay);
            }
            Question::Taken(key, node, revision) => {
                self.reply(reply_to, &Reply::Done);
                self.homes.note(key, node);
                self.records.may_be_taken(key, revision);
            }
        }
    }

    /// Passes a request of another node to the shard of its session.
    fn serve(&mut self, reply_to: String, serve: Serve) {
        let Serve { session, node, number, address, browser, transport, body } = serve;
        if body.len() > self.settings.message_bytes_max {
            self.counts.rejected += 1;
            return self.reply(reply_to, &Reply::of(&Response::with_status(413)));
        }
        let exchange = match self.serving.add((node, number), session, reply_to, (address, body.len())) {
            Ok(exchange) => exchange,
            // A second copy gets no answer: the first one does.
            Err((NotServed::Known, _)) => return,
            Err((NotServed::Full, reply_to)) => {
                self.counts.refused += 1;
                return self.reply(reply_to, &Reply::Full);
            }
        };
        self.counts.served += 1;
        let peer = Peer { address, is_multiplexed: number & MULTIPLEXED != 0, ..Peer::default() };
        let request = Request { exchange, transport, browser, peer, head: None, body, searched: Searched::ByNode };
        self.outputs.push(Output::Shard(self.shard_of(&session), ShardMessage::Request(Box::new(request))));
    }

    /// A shard has answered a request of another node.
    pub(super) fn respond(&mut self, now_ms: u64, exchange: &ExchangeId, response: &Response) {
        let Some(served) = self.serving.get(exchange) else {
            // Its client is gone, and nobody has learned of the response. Its shard waits for the fate.
            let lost = |shard: u16| Output::Shard(shard.into(), ShardMessage::Delivered(*exchange, false));
            return self.outputs.extend(response.confirm.map(lost));
        };
        let (session, reply_to) = (served.session, served.reply_to.take());
        let Some(reply_to) = reply_to else { return };
        let mut reply = Reply::of(response);
        if response.status == NOT_HERE {
            reply = self.not_here(&Key::of(&session));
        }
        let mut bytes = reply.write();
        let mut is_confirmed = response.confirm.is_some();
        if bytes.len() > self.body_bytes_max {
            // Its messages wait until their client comes here itself.
            bytes = Reply::of(&Response::with_status(503)).write();
            if is_confirmed {
                self.tell_fate(&session, *exchange, false);
            }
            is_confirmed = false;
        }
        if is_confirmed {
            self.serving.await_fate(exchange, now_ms + FATE_MS);
        } else {
            self.serving.remove(exchange);
        }
        // It counts until the engine has sent it.
        let body = self.settings.memory.counted_part(bytes.into());
        self.outputs.push(Output::Engine(Command::Answer { reply_to, body }));
    }

    /// The answer to a question about a session that is not here.
    fn not_here(&self, key: &Key) -> Reply {
        if self.searches.is_under_way(key) {
            // It is about to be here.
            return Reply::Busy;
        }
        let elsewhere = self.homes.of(key).filter(|node| *node != self.settings.node);
        elsewhere.map_or(Reply::Unknown, Reply::Elsewhere)
    }

    /// Another node tells the fate of a request or of its response.
    fn settled(&mut self, node: NodeTag, number: u64, fate: Fate) {
        let Some((exchange, served)) = self.serving.settle((node, number)) else { return };
        self.let_go(exchange, &served, fate == Fate::Taken);
    }

    fn let_go(&mut self, exchange: ExchangeId, served: &Served, is_taken: bool) {
        if served.reply_to.is_some() {
            let message = ShardMessage::Abandoned(exchange);
            self.outputs.push(Output::Shard(self.shard_of(&served.session), message));
        } else {
            self.tell_fate(&served.session, exchange, is_taken);
        }
    }

    /// Nobody will tell the fate of a response: what it carries comes at most once, or its client begins again.
    pub(super) fn lose_fate(&mut self, exchange: ExchangeId, served: &Served) {
        self.tell_shard(&served.session, FromNodes::Unsettled(served.session));
        self.tell_fate(&served.session, exchange, true);
    }

    /// The engine is away: no answer reaches another node, and no fate comes from there.
    pub(super) fn leave_served(&mut self) {
        for (exchange, served) in self.serving.clear() {
            match served.reply_to {
                Some(_) => self.let_go(exchange, &served, true),
                None => self.lose_fate(exchange, &served),
            }
        }
    }

    /// A shard has given up a session, or not.
    pub(super) fn released(&mut self, number: u64, given: Given) {
        let Some(leaving) = self.releasing.remove(&number) else { return };
        let key = Key::of(&leaving.session);
        let reply = match given {
            Given::Session(saved) => {
                let state = (self.settings.encode)(&saved, self.past_of(&key, &saved)).into();
                self.homes.note(key, leaving.to);
                if self.records.is_busy(&key) {
                    self.leaving.insert(key, (leaving, state));
                } else {
                    self.give(leaving, state);
                }
                return;
            }
            Given::Unknown => self.not_here(&key),
            Given::Busy => Reply::Busy,
            Given::TooLarge => Reply::TooLarge,
            Given::Refused => Reply::Refused,
            Given::Stays => Reply::Stays,
        };
        self.reply(leaving.reply_to, &reply);
    }

    /// Gives a session, of whose record no write is on its way, to another node.
    pub(super) fn give(&mut self, leaving: Leaving, state: Bytes) {
        let key = Key::of(&leaving.session);
        let revision = self.records.forget(&key);
        self.confirming.written(&key);
        let reply = Reply::Given(revision, state);
        let fits = reply.write().len() <= leaving.bytes_max;
        self.reply(leaving.reply_to, if fits { &reply } else { &Reply::TooLarge });
    }
}

/// The time for which the fate of a response is awaited, in milliseconds.
const FATE_MS: u64 = 10_000;
/// The bytes of a session that moves beside its messages.
const STATE_BYTES: usize = 128 * 1024;
