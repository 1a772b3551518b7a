//! The steps of a search: see [`super::searches`].

use std::collections::BTreeSet;

use bytes::Bytes;
use encke_core::{ExchangeId, FromNodes, Id, NodeTag, OTHER_NODES, Response, Restored, Searcher, ShardMessage};

use super::message::{Fate, Question, Reply};
use super::notices::Notice;
use super::own::{KeyCommand, Own};
use super::record::{Content, Key, Record};
use super::searches::Absence;
use super::servers::{ABSENT_PAUSE_MS, RELEASE_MS};
use super::{Output, Past, Sent, Sessions, SessionsSettings, State, Visited};
use crate::command::{Expected, KeyAnswer, KeyFailure, KeyReply, RequestFailure};

impl Sessions {
    /// A client names a session that is not here.
    pub(super) fn search(&mut self, now_ms: u64, session: Id, origins: [u64; 2], waiting: Searcher) {
        match self.searches.add(now_ms, session, origins, waiting) {
            Ok(number) => self.go_on(now_ms, number),
            Err(waiting) => {
                self.counts.refused += 1;
                self.send_back(&session, waiting);
            }
        }
    }

    /// Asks the node that has the session, or reads its record.
    pub(super) fn go_on(&mut self, now_ms: u64, number: u64) {
        let Some(search) = self.searches.get(number) else { return };
        search.steps += 1;
        let (key, session, has_without) = (search.key, search.session, !search.without.is_empty());
        let is_over = search.steps > STEPS_MAX || now_ms > search.began_ms + SEARCH_MS;
        if !self.is_connected || (is_over && !has_without) {
            return self.give_up(now_ms, number);
        }
        if is_over {
            // Its node is gone, and its record cannot be read: the client begins again.
            return self.end_search(now_ms, number);
        }
        if self.searches.is_led(number, &key) {
            _ = self.searches.lead(number, key);
            return;
        }
        if self.records.id(&key).is_some() {
            return self.end_search(now_ms, number);
        }
        let home = self.homes.of(&key).unwrap_or(session.node());
        let is_absent = self.searches.get(number).is_some_and(|search| search.absence(home).is_some());
        if home == self.settings.node || is_absent {
            self.read_record(number);
        } else {
            self.ask_node(now_ms, number, home);
        }
    }

    fn ask_node(&mut self, now_ms: u64, number: u64, home: NodeTag) {
        let (node, bytes_max, hold_ms) = (self.settings.node, self.body_bytes_max, self.settings.hold_ms);
        let Some(search) = self.searches.get(number) else { return };
        let key = search.key;
        let question = search.question(number, node, bytes_max, now_ms > search.began_ms + URGENT_MS);
        let (state, timeout_ms) = match &question {
            Question::Serve(_) => (State::Serves(home), hold_ms + ANSWER_MS),
            _ => (State::Releases(home), RELEASE_MS),
        };
        search.state = state.clone();
        if let State::Releases(_) = state
            && !self.searches.lead(number, key)
        {
            self.searches.get(number).into_iter().for_each(|search| search.state = State::Waits);
            return;
        }
        self.wait_for(now_ms, home);
        let command = self.ask(Sent::Search(number), home, &question, timeout_ms);
        self.searches.get(number).into_iter().for_each(|search| search.command = command);
    }

    /// Reads the record of the session, or waits for another search that does.
    fn read_record(&mut self, number: u64) {
        let Some(search) = self.searches.get(number) else { return };
        let key = search.key;
        search.state = State::Waits;
        let owner = search.owner;
        if !self.searches.lead(number, key) {
            return;
        }
        if !self.reads.begin(owner, number) {
            // It goes on at its turn.
            return;
        }
        let command = self.number(Sent::Read(number));
        if let Some(search) = self.searches.get(number) {
            (search.state, search.command) = (State::Reads, command);
        }
        self.send_key_command(command, KeyCommand::Read(key));
    }

    /// Lets searches go on whose records may be read now.
    pub(super) fn read_next(&mut self, now_ms: u64) {
        while let Some(number) = self.reads.next(self.is_connected) {
            self.go_on(now_ms, number);
        }
    }

    /// The node that was asked has answered, or has not.
    pub(super) fn search_answered(
        &mut self,
        now_ms: u64,
        (number, command): (u64, u64),
        answer: Result<Option<Reply>, RequestFailure>,
    ) {
        let Some(search) = self.searches.get(number).filter(|search| search.command == command) else { return };
        let (home, is_release) = match search.state {
            State::Serves(home) => (home, false),
            State::Releases(home) => (home, true),
            _ => return,
        };
        let (key, began_ms, last_absent) = (search.key, search.began_ms, search.last_absent.take());
        let (node, without) = (self.settings.node, search.without.clone());
        let is_absent = |of| of == node || without.iter().any(|absence| absence.node == of);
        let is_request = matches!(search.waiting, Searcher::Request { .. });
        if answer.is_ok() {
            // It is there, whatever has become of the questions about that.
            self.is_there(home);
        }
        self.no_longer_waits(home);
        match answer {
            Ok(Some(Reply::Served { status, set_browser, is_confirmed, compresses, body })) if !is_release => {
                let confirm = is_confirmed.then_some(OTHER_NODES);
                self.served(now_ms, number, home, Response { status, body, set_browser, confirm, compresses });
            }
            Ok(Some(Reply::Given(revision, state))) if is_release => {
                self.given(now_ms, (number, home), revision, &state)
            }
            Ok(Some(Reply::Unknown)) => self.go_on_without(number, home, false),
            Ok(Some(Reply::Elsewhere(node))) if is_absent(node) => self.go_on_without(number, home, false),
            Ok(Some(Reply::Elsewhere(node))) => {
                self.homes.note(key, node);
                self.step_aside(now_ms, number);
                self.go_on(now_ms, number);
            }
            Ok(Some(Reply::Busy)) => self.searches.pause(number, now_ms + BUSY_PAUSE_MS),
            // It may have come to that node within this second. A request is too large to be served there, and tries once more.
            Ok(Some(Reply::Stays)) if is_request && now_ms < began_ms + STAYS_PAUSE_MS => {
                self.step_aside(now_ms, number);
                self.searches.pause(number, began_ms + STAYS_PAUSE_MS);
            }
            // A request may reach the node itself. Any other client is served by that node.
            Ok(Some(Reply::TooLarge | Reply::Stays)) if is_request => self.give_up(now_ms, number),
            Ok(Some(Reply::TooLarge | Reply::Stays)) => self.stays(now_ms, number, home),
            Ok(Some(Reply::Refused)) => self.end_search(now_ms, number),
            Ok(_) => self.give_up(now_ms, number),
            Err(RequestFailure::NoResponders) if now_ms < self.connected_ms + self.settings.return_delay_ms => {
                self.searches.pause(number, now_ms + RETURN_PAUSE_MS);
            }
            // NATS servers learn of a node one after another, and it may be on its way to another one: once may be too early.
            Err(RequestFailure::NoResponders) if last_absent != Some(home) => {
                self.searches.get(number).into_iter().for_each(|search| search.last_absent = Some(home));
                self.searches.pause(number, now_ms + ABSENT_PAUSE_MS);
            }
            Err(RequestFailure::NoResponders) => self.go_on_without(number, home, true),
            Err(RequestFailure::TimedOut) if is_release => self.go_on_without(number, home, true),
            Err(RequestFailure::TimedOut | RequestFailure::Away) => self.give_up(now_ms, number),
        }
    }

    /// Reads the record: this node is gone, or does not have the session.
    pub(super) fn go_on_without(&mut self, number: u64, home: NodeTag, is_gone: bool) {
        let Some(search) = self.searches.get(number) else { return };
        search.without.retain(|absence| absence.node != home);
        search.without.push(Absence { node: home, is_gone });
        let key = search.key;
        self.homes.forget(&key, home);
        self.read_record(number);
    }

    fn served(&mut self, now_ms: u64, number: u64, home: NodeTag, response: Response) {
        self.counts.forwarded += 1;
        let SessionsSettings { memory, responses_bytes_max, .. } = &self.settings;
        let has_room = memory.body_bytes() + response.body.len() <= *responses_bytes_max;
        let response = match response.confirm {
            Some(_) if !has_room && memory.body_bytes() > 0 => {
                // Its messages come again.
                self.tell_home(home, number, Fate::Lost);
                Response::with_status(503)
            }
            _ => Response { body: memory.counted_part(response.body), ..response },
        };
        let Some(search) = self.searches.get(number) else { return };
        let is_confirmed = response.confirm.is_some();
        if !search.is_abandoned {
            search.state = State::Answered(home);
            let (session, exchange) = match &search.waiting {
                Searcher::Request { request, .. } => (search.session, request.exchange),
                Searcher::Socket(..) | Searcher::Visitor(..) => return,
            };
            let message = ShardMessage::Response(exchange, response);
            self.outputs.push(Output::Shard(self.shard_of(&session), message));
        } else if is_confirmed {
            self.tell_home(home, number, Fate::Lost);
        }
        let is_abandoned = self.searches.get(number).is_some_and(|search| search.is_abandoned);
        if is_abandoned || !is_confirmed {
            self.drop_search(now_ms, number);
        }
    }

    /// The session has come from its node.
    fn given(&mut self, now_ms: u64, (number, home): (u64, NodeTag), revision: u64, state: &[u8]) {
        self.counts.moved += 1;
        let state = Bytes::copy_from_slice(state);
        self.restore(now_ms, (number, Some(home)), revision, Content { mark: None, state });
    }

    /// A command about the record has its result.
    pub(super) fn record_answered(&mut self, now_ms: u64, (number, command): (u64, u64), answer: KeyReply) {
        let Some(search) = self.searches.get(number).filter(|search| search.command == command) else { return };
        let (key, state) = (search.key, search.state.clone());
        match (state, answer) {
            (State::Reads, Ok(KeyAnswer::Found(found))) => {
                let record = found.as_ref().map(|(revision, value)| (*revision, Record::read(value)));
                match record {
                    Some((revision, Some(Record::Live { node, content }))) => {
                        self.found(now_ms, number, (revision, node, content));
                    }
                    Some((_, Some(Record::Ended))) | None => self.end_all(number),
                    Some((_, None)) => {
                        self.counts.rejected += 1;
                        self.end_search(now_ms, number);
                    }
                }
            }
            (State::Takes(content), Ok(KeyAnswer::Written(revision))) => {
                self.counts.taken_over += 1;
                let without = self.searches.get(number).map(|search| search.without.clone()).unwrap_or_default();
                for absence in without.into_iter().filter(|absence| absence.is_gone) {
                    // It may only have been slow.
                    self.tell_taken(Notice::new(key, absence.node, revision));
                }
                self.restore(now_ms, (number, None), revision, content);
            }
            (State::Takes(_), Err(KeyFailure::Conflict)) => self.searches.pause(number, now_ms + CONFLICT_PAUSE_MS),
            (State::Takes(_), Err(KeyFailure::TooLarge)) => self.end_search(now_ms, number),
            // The engine keeps no keys now, or never.
            (State::Reads | State::Takes(_), _) if self.is_connected && self.records.fails => {
                self.end_search(now_ms, number);
            }
            (State::Reads | State::Takes(_), _) => self.searches.pause(number, now_ms + RETURN_PAUSE_MS),
            _ => {}
        }
    }

    /// A record names a node. This one replaces it if that node is gone, or does not have the session and has said so after the
    /// record was read: before that, the session may have been on its way to it.
    fn found(&mut self, now_ms: u64, number: u64, (revision, node, content): (u64, NodeTag, Content)) {
        let own = self.settings.node;
        let Some(search) = self.searches.get(number) else { return };
        let (key, absence) = (search.key, search.absence(node));
        let was_asked = search.asked_revision == revision;
        if node == own && self.records.id(&key).is_some() {
            self.end_search(now_ms, number);
        } else if node == own || absence.is_some_and(|absence| absence.is_gone || was_asked) {
            if self.confirming.is_unrecorded(node, &key) {
                return self.end_search(now_ms, number);
            }
            let mark = self.mark_for(node, &content);
            let state = self.taken_over(content.state);
            self.take(number, revision, Content { mark, state });
        } else {
            if let Some(search) = self.searches.get(number) {
                search.asked_revision = revision;
                search.without.retain(|absence| absence.node != node);
            }
            self.homes.note(key, node);
            self.step_aside(now_ms, number);
            self.go_on(now_ms, number);
        }
    }

    /// The state of a session that this node takes over.
    fn taken_over(&self, state: Bytes) -> Bytes {
        match (self.settings.decode)(&state) {
            Some((saved, past)) => {
                let past = Past { take_overs: past.take_overs.saturating_add(1), ..past };
                (self.settings.encode)(&saved, past).into()
            }
            None => state,
        }
    }

    /// Writes itself into the record, if that is still the one that was read.
    fn take(&mut self, number: u64, revision: u64, content: Content) {
        let (command, node) = (self.number(Sent::Search(number)), self.settings.node);
        let Some(search) = self.searches.get(number) else { return };
        (search.state, search.command) = (State::Takes(content.clone()), command);
        let write = KeyCommand::Write(search.key, Record::Live { node, content }, Expected::Revision(revision));
        self.send_key_command(command, write);
    }

    /// Passes a session to its shard. `given_by`: the node that has given it, whole.
    fn restore(&mut self, now_ms: u64, (number, given_by): (u64, Option<NodeTag>), revision: u64, content: Content) {
        let Some(search) = self.searches.get(number) else { return };
        search.state = State::Restores;
        let (session, origins, has_ended) = (search.session, [0, search.owner], search.has_ended);
        let Content { mark, state } = content;
        let has_mark = mark.as_ref().is_some_and(|mark| !mark.is_empty());
        let found = (self.settings.decode)(&state).filter(|(saved, _)| saved.is_whole());
        let has_ended = has_ended || found.as_ref().is_some_and(|(saved, past)| self.user_marks.end(saved, *past));
        let past = found.as_ref().map(|(_, past)| *past).unwrap_or_default();
        self.records.taken(Own { past, given_by, ..Own::of(session, revision, mark) });
        match found {
            Some((saved, _)) if !has_ended => {
                let restored = Box::new(Restored { saved, is_whole: given_by.is_some(), has_mark, origins });
                self.tell_shard(&session, FromNodes::Restore(session, restored));
            }
            found => {
                self.counts.rejected += u64::from(found.is_none());
                _ = self.records.ended(&session, has_ended);
                self.end_search(now_ms, number);
            }
        }
    }

    /// A shard has restored a session, or has refused to.
    pub(super) fn restored(&mut self, now_ms: u64, id: &Id) {
        if let Some(number) = self.searches.that_restores(&Key::of(id)) {
            self.end_search(now_ms, number);
        }
    }

    /// All that may have the session have been asked: its shard goes on, with the session or without.
    pub(super) fn end_search(&mut self, now_ms: u64, number: u64) {
        let followers = self.finish(number);
        for follower in followers {
            self.go_on(now_ms, follower);
        }
    }

    /// There is no such session: this holds for those that have waited for the search, too, whoever they are.
    fn end_all(&mut self, number: u64) {
        for follower in self.finish(number) {
            self.finish(follower);
        }
    }

    /// Ends a search, and returns those that have waited for it.
    fn finish(&mut self, number: u64) -> BTreeSet<u64> {
        let Some(search) = self.searches.remove(number) else { return BTreeSet::new() };
        let (session, is_abandoned) = (search.session, search.is_abandoned);
        let followers = self.searches.step_down(number, &search.key);
        match self.searches.give_back(search) {
            Searcher::Request { .. } if is_abandoned => {}
            Searcher::Request { request, .. } => {
                let message = ShardMessage::Request(Box::new(request.searched()));
                self.outputs.push(Output::Shard(self.shard_of(&session), message));
            }
            Searcher::Socket(socket, _) => self.tell_shard(&session, FromNodes::Searched(socket)),
            Searcher::Visitor(visitor, _) => self.outputs.push(Output::Visitor(visitor, Visited::Searched)),
        }
        followers
    }

    /// Sends a client away for now: the node of its session, or the record, cannot be asked.
    pub(super) fn give_up(&mut self, now_ms: u64, number: u64) {
        let Some(search) = self.searches.remove(number) else { return };
        self.counts.unanswered += 1;
        let (session, is_abandoned) = (search.session, search.is_abandoned);
        if let State::Serves(home) = search.state {
            // It may still hold the request: what would answer it is for the next one.
            self.tell_home(home, number, Fate::Abandoned);
        }
        let followers = self.searches.step_down(number, &search.key);
        let waiting = self.searches.give_back(search);
        if !is_abandoned {
            self.send_back(&session, waiting);
        }
        for follower in followers {
            self.go_on(now_ms, follower);
        }
    }

    fn send_back(&mut self, session: &Id, waiting: Searcher) {
        match waiting {
            Searcher::Request { request, .. } => {
                let message = ShardMessage::Response(request.exchange, Response::with_status(503));
                self.outputs.push(Output::Shard(self.shard_of(session), message));
            }
            Searcher::Socket(socket, _) => self.tell_shard(session, FromNodes::Unsearched(socket)),
            Searcher::Visitor(visitor, _) => self.outputs.push(Output::Visitor(visitor, Visited::Later)),
        }
    }

    /// Drops a search whose client needs nothing more.
    fn drop_search(&mut self, now_ms: u64, number: u64) {
        self.step_aside(now_ms, number);
        if let Some(search) = self.searches.remove(number) {
            self.searches.give_back(search);
        }
    }

    /// Lets the searches go on that have waited for this one.
    fn step_aside(&mut self, now_ms: u64, number: u64) {
        let Some(key) = self.searches.get(number).map(|search| search.key) else { return };
        for follower in self.searches.step_down(number, &key) {
            self.go_on(now_ms, follower);
        }
    }

    /// The client of a request is gone.
    pub(super) fn abandoned(&mut self, exchange: &ExchangeId) {
        let Some(number) = self.searches.of_exchange(exchange) else { return };
        let Some(search) = self.searches.get(number) else { return };
        search.is_abandoned = true;
        if let State::Serves(home) = search.state {
            self.tell_home(home, number, Fate::Abandoned);
        }
    }

    /// The fate of a response of another node.
    pub(super) fn delivered(&mut self, now_ms: u64, exchange: &ExchangeId, is_taken: bool) {
        let Some(number) = self.searches.of_exchange(exchange) else { return };
        if let Some(State::Answered(home)) = self.searches.get(number).map(|search| search.state.clone()) {
            self.tell_home(home, number, if is_taken { Fate::Taken } else { Fate::Lost });
            self.drop_search(now_ms, number);
        }
    }

    fn tell_home(&mut self, home: NodeTag, number: u64, fate: Fate) {
        if self.is_connected {
            let question = Question::Settled(self.settings.node, number, fate);
            self.ask(Sent::Notice, home, &question, RELEASE_MS);
        }
    }
}

/// The longest search, beside the time in which another node serves a request, in milliseconds.
const SEARCH_MS: u64 = 3_000;
/// Nodes and records asked in one search.
const STEPS_MAX: u32 = 64;
/// The time after which a session is asked for although a response is on its way, in milliseconds.
const URGENT_MS: u64 = 1_000;
/// The time for the answer to a request beside that for which it may be held, in milliseconds.
const ANSWER_MS: u64 = 15_000;
/// The pause while a response is on its way, in milliseconds.
const BUSY_PAUSE_MS: u64 = 50;
/// The time after which a request that moves its session asks for it again, in milliseconds: a session stays for a second where it has come.
const STAYS_PAUSE_MS: u64 = 1_100;
/// The pause after another node was first, in milliseconds.
const CONFLICT_PAUSE_MS: u64 = 20;
/// The pause while a node may come back, or after a failure, in milliseconds.
const RETURN_PAUSE_MS: u64 = 100;
