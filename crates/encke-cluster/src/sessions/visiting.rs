//! Sessions that stay on their node while a client comes to another one: that node serves its WebSocket or stream. A stream is asked for
//! first, as its client gets a status.
//!
//! ```text
//!   Release ─▶ Stays ── a WebSocket ──▶ relay
//!                  └─── a stream ─────▶ Visit ─▶ Done ──▶ relay
//! ```

use encke_core::{FromNodes, Id, NodeTag, Searcher, StreamOpening};

use super::asking::{BUSY_PAUSE_MS, RELEASE_MS};
use super::message::{Question, Reply};
use super::record::Key;
use super::relays::{RelayOutput, Visitor};
use super::searches::State;
use super::{Output, Sent, Sessions};
use crate::command::RequestFailure;

/// The outcome of a search for a client that wants a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visited {
    /// All that may have the session were asked. It is on this node, or on none.
    Searched,
    /// It stays on this node, which takes the stream.
    Stays(NodeTag),
    /// It stays on another node, and the browser of the client holds as many streams as it may.
    TooMany,
    /// The client has to come back later.
    Later,
}

impl Sessions {
    /// The session of a WebSocket or a stream stays on its node.
    pub(super) fn stays(&mut self, now_ms: u64, number: u64, home: NodeTag) {
        let Some(search) = self.searches.get(number) else { return };
        let Searcher::Visitor(_, opener, peer) = search.waiting else {
            return self.leave_at(now_ms, number, Visited::Stays(home));
        };
        let session = search.session;
        if self.has_no_room_for_relay() {
            self.counts.refused += 1;
            return self.leave_at(now_ms, number, Visited::Later);
        }
        let visitor = Visitor { session, opener, address: peer.address, is_multiplexed: peer.is_multiplexed };
        self.wait_for(now_ms, home);
        let command = self.ask(Sent::Search(number), home, &Question::Visit(visitor), RELEASE_MS);
        if let Some(search) = self.searches.get(number) {
            (search.state, search.command) = (State::Visits(home), command);
        }
    }

    /// The node of a session has said if it takes a stream, or has not answered.
    pub(super) fn visit_answered(
        &mut self,
        now_ms: u64,
        number: u64,
        home: NodeTag,
        answer: Result<Option<Reply>, RequestFailure>,
    ) {
        match answer {
            Ok(Some(Reply::Done)) => self.leave_at(now_ms, number, Visited::Stays(home)),
            Ok(Some(Reply::TooMany)) => self.leave_at(now_ms, number, Visited::TooMany),
            // Since it was asked to give the session up, the session has left, or the node.
            Ok(Some(Reply::Unknown | Reply::Elsewhere(_) | Reply::Busy)) | Err(RequestFailure::NoResponders) => {
                self.searches.pause(number, now_ms + BUSY_PAUSE_MS);
            }
            // A node that takes no more, or of an older build, which does not know the question.
            Ok(_) | Err(RequestFailure::TimedOut | RequestFailure::Away) => self.give_up(now_ms, number),
        }
    }

    /// Ends a search: another node serves the party that waits, or that has to come back later.
    fn leave_at(&mut self, now_ms: u64, number: u64, visited: Visited) {
        let Some(search) = self.searches.remove(number) else { return };
        let session = search.session;
        let followers = self.searches.step_down(number, &search.key);
        match (self.searches.give_back(search), visited) {
            (Searcher::Visitor(visitor, ..), visited) => self.outputs.push(Output::Visitor(visitor, visited)),
            (Searcher::Socket(socket, _), Visited::Stays(home)) => {
                self.tell_shard(&session, FromNodes::Relay(socket, home));
            }
            // Only visitors have another outcome, and requests are served.
            (Searcher::Socket(..) | Searcher::Request { .. }, _) => {}
        }
        for follower in followers {
            self.go_on(now_ms, follower);
        }
    }

    /// Another node asks if a client may have a stream of a session that stays here.
    pub(super) fn look(&mut self, reply_to: String, visitor: Visitor) {
        if self.has_no_room_for_relay() {
            self.counts.refused += 1;
            return self.reply(reply_to, &Reply::Full);
        }
        self.relay_output(RelayOutput::Look(visitor, reply_to));
    }

    /// The shard of a session would take a stream for another node, or has this reason against it.
    pub fn looked(&mut self, session: &Id, reply_to: String, refusal: Option<StreamOpening>) {
        let reply = match refusal {
            None => Reply::Done,
            Some(StreamOpening::TooMany) => Reply::TooMany,
            Some(StreamOpening::Draining) => Reply::Full,
            Some(StreamOpening::Unknown | StreamOpening::Elsewhere(_) | StreamOpening::Here(_)) => {
                self.not_here(&Key::of(session))
            }
        };
        self.reply(reply_to, &reply);
    }
}
