//! The work of the real server's threads around a shard: reading, writing, answering, moving sockets, advancing time.

use encke_core::{
    Closing, ENVELOPE_BYTES, Effect, Envelope, ExchangeId, Id, PublishToken, Received, Response, ShardMessage,
    SocketKey, StreamOpener, StreamOpening, Taken,
};
use websocket::Compression;

use crate::checker::Invariant;
use crate::exchange::State;
use crate::network::{Item, Kernel, Up};
use crate::offers::accepted;
use crate::sabotage::Sabotage;
use crate::texts::json_of;
use crate::transit::{InTransit, MovingSocket, Report};
use crate::world::World;

impl World {
    /// The server reads one input from a WebSocket. False if there is none.
    pub(super) fn upload(&mut self, conn: usize) -> bool {
        let state = &mut self.network.conns[conn];
        if state.moving || (state.suspended && !state.shut) {
            return false;
        }
        let Some(up) = state.up.pop_front() else { return false };
        let (shard, key, shut) = (state.shard, state.key, state.shut);
        if matches!(up, Up::Text(..)) && key.is_some() && !self.is_admitted(shard) {
            let state = &mut self.network.conns[conn];
            state.up.push_front(up);
            state.waits = true;
            return false;
        }
        self.network.conns[conn].waits = false;
        self.note(|_| format!("shard {shard} reads from connection {conn}: {up:?}"));
        let before = self.ends(shard);
        let now = self.now;
        let taken = self.shards[shard].metrics().messages.get();
        match (up, key) {
            (Up::Stream(id), None) => self.stream_is_requested(conn, id),
            (Up::Ping(_) | Up::Pong | Up::Violation, Some(_)) if self.network.conns[conn].stream.is_some() => {}
            (Up::Open(browser), None) => {
                let key = self.shards[shard].socket_opened(now, browser);
                self.network.register(conn, shard, key);
                self.agree_on_compression(conn, shard, key);
            }
            (Up::Gone, Some(key)) => {
                if self.sabotage != Sabotage::ForgottenSocket || !self.healing {
                    self.shards[shard].socket_closed(now, key);
                }
                self.network.conns[conn].key = None;
                self.network.conns[conn].up.clear();
            }
            (Up::Text(text, session), Some(key)) if !shut => match self.shards[shard].socket_text(now, key, &text) {
                // A socket that is about to be closed takes no messages.
                outcome @ (Received::Here | Received::Handshake | Received::Waits | Received::Searches) => {
                    self.note_suspended(conn, outcome);
                    let received = self.shards[shard].metrics().messages.get() > taken;
                    self.received(session.filter(|_| received));
                    self.overtaken_on(conn, &text);
                }
                Received::Elsewhere(home) => {
                    self.checker.tally.moves += 1;
                    self.note(|_| format!("connection {conn} moves to shard {home}"));
                    let Some(origin) = self.shards[shard].socket_origin(key) else {
                        let detail = format!("connection {conn} is to move, and shard {shard} does not have it");
                        self.checker.fail(Invariant::NumbersAgree, detail);
                        return false;
                    };
                    self.shards[shard].socket_closed(now, key);
                    self.network.conns[conn].key = None;
                    self.network.conns[conn].moving = true;
                    let charge = self.shared.mailbox.charge(ENVELOPE_BYTES + text.len());
                    let socket = Box::new(MovingSocket { conn, origin, text, session, _charge: charge });
                    self.in_transit[home][shard].push_back(InTransit::Socket(socket));
                }
            },
            (Up::Ping(payload), Some(key)) => self.shards[shard].socket_ping(now, key, &payload),
            (Up::Pong, Some(key)) => self.shards[shard].socket_pong(now, key),
            (Up::Violation, Some(key)) => {
                let closing = Closing { code: 1002, reason: "reserved bit set" };
                self.shards[shard].socket_close(now, key, closing);
            }
            _ => {}
        }
        self.after(shard, before, false);
        true
    }

    /// The answer to the upgrade request of a WebSocket. Some clients offer compression; a server without rules that compress
    /// declines it.
    fn agree_on_compression(&mut self, conn: usize, shard: usize, key: SocketKey) {
        let offer = self.network.conns[conn].offer.filter(|_| self.shards[shard].settings().compresses());
        if offer.is_some() {
            self.network.accept(conn);
            self.checker.tally.compressing += 1;
        }
        let is_unasked = self.sabotage == Sabotage::UnaskedCompression && offer.is_none();
        let unasked = if is_unasked { accepted(Compression::OFFER) } else { None };
        if let Some(agreed) = offer.or(unasked) {
            self.shards[shard].socket_compresses(key, agreed);
        }
    }

    /// A request for a stream arrives.
    fn stream_is_requested(&mut self, conn: usize, id: Id) {
        let state = &self.network.conns[conn];
        let (client, session, shard, Some(format)) = (state.client, state.session, state.shard, state.stream) else {
            return;
        };
        let peer = encke_core::Peer::default();
        let opener = StreamOpener { browser: state.browser, is_of_page: false, peer };
        match self.shards[shard].open_stream(self.now, id.as_str(), &opener, format, None) {
            StreamOpening::Here(key) => {
                self.network.register(conn, shard, key);
                self.checker.tally.streams += 1;
                self.received(session);
                if self.clients[client].conn != Some(conn) {
                    // Its client has moved on, but the session has not.
                    self.lose_sight(client);
                }
            }
            StreamOpening::Elsewhere(_) | StreamOpening::Unknown | StreamOpening::TooMany | StreamOpening::Draining => {
                self.network.shut(conn)
            }
        }
    }

    /// An exchange progresses: its request arrives, or the server learns that its client has gone.
    pub(super) fn progress(&mut self, exchange: usize) -> bool {
        let id = self.network.id_of(exchange);
        let state = &mut self.network.exchanges[exchange];
        if !state.may_progress() {
            return false;
        }
        let shard = state.shard;
        if matches!(state.state, State::Sent(_)) && state.client_waits && !self.is_admitted(shard) {
            return false;
        }
        let before = self.ends(shard);
        let state = &mut self.network.exchanges[exchange];
        match std::mem::replace(&mut state.state, State::Open) {
            State::Sent(request) if state.client_waits || self.network.rng.chance(500) => {
                let session = state.session.filter(|_| state.sign_of_life);
                self.note(|_| format!("shard {shard} gets request {exchange}: {request:?}"));
                if self.shards[shard].request(self.now, *request) == Taken::Here {
                    self.received(session);
                    self.overtaken(exchange);
                }
            }
            State::Sent(_) => self.network.exchanges[exchange].state = State::Lost,
            _ => {
                self.note(|_| format!("shard {shard}: nobody waits for request {exchange}"));
                self.network.exchanges[exchange].state = State::Abandoned;
                self.shards[shard].abandoned(self.now, id);
            }
        }
        self.after(shard, before, false);
        true
    }

    /// A shard receives one message. False if there is none.
    pub(super) fn deliver_shard_messages(&mut self, to: usize, from: usize) -> bool {
        let Some(item) = self.in_transit[to][from].pop_front() else { return false };
        self.note(|_| format!("shard {to} gets a message from {from}: {item:?}"));
        if to == self.shards.len() {
            if let InTransit::ShardMessage(envelope) = &item {
                self.dispatch(envelope);
            }
            return true;
        }
        if matches!(&item, InTransit::ShardMessage(Envelope { message: ShardMessage::ClearHistory(..), .. })) {
            // Publications that wait for their fan-out are older.
            self.settle(to);
        }
        let before = self.ends(to);
        match item {
            InTransit::ShardMessage(envelope) => {
                self.costs[to].note(&envelope.message);
                if let ShardMessage::Request(request) = &envelope.message {
                    self.waiting.push((to, request.exchange.number as usize));
                }
                let cleared = match &envelope.message {
                    ShardMessage::ClearHistory(channel, _) => Some(channel.clone()),
                    _ => None,
                };
                if self.changes_rights(to, &envelope.message) || self.is_forgotten(&envelope.message) {
                    return true;
                }
                if self.frozen {
                    self.shards[to].message(self.now, envelope.message);
                } else {
                    self.shards[to].receive(self.now, envelope);
                }
                cleared.iter().for_each(|channel| self.check_cleared(channel));
            }
            InTransit::Socket(socket) => {
                let MovingSocket { conn, origin, text, session, _charge } = *socket;
                let key = self.shards[to].socket_moved_here(self.now, origin);
                self.network.register(conn, to, key);
                self.network.conns[conn].moving = false;
                let outcome = self.shards[to].socket_text(self.now, key, &text);
                self.note_suspended(conn, outcome);
                if let Received::Elsewhere(shard) = outcome {
                    let detail = format!("connection {conn} moved to shard {to} and is sent on to {shard}");
                    self.checker.fail(Invariant::LivesOn, detail);
                }
                self.received(session);
                self.overtaken_on(conn, &text);
            }
        }
        self.after(to, before, false);
        true
    }

    /// A shard learns the result of a response. False if there is no result to report.
    pub(super) fn report(&mut self) -> bool {
        if self.reports.is_empty() {
            return false;
        }
        let which = self.rng.below(self.reports.len());
        let Some(Report { exchange, home, taken }) = self.reports.remove(which) else { return false };
        self.note(|_| format!("the response to {exchange:?} was taken: {taken}"));
        let from = usize::from(exchange.shard);
        if from == home {
            let before = self.ends(home);
            self.shards[home].delivered(self.now, exchange, taken);
            self.after(home, before, false);
        } else {
            self.send_to_shard(home, from, ShardMessage::Delivered(exchange, taken));
        }
        true
    }

    /// A shard writes, and its effects are run. False if there was nothing to do.
    pub(super) fn turn(&mut self, shard: usize) -> bool {
        if self.shards[shard].is_settled() {
            return false;
        }
        let before = self.ends(shard);
        self.is_turn = true;
        if self.rng.chance(300) {
            self.run_effects(shard);
        }
        let mut budget = self.rng.below(4);
        let mut kernel = Kernel { network: &mut self.network, shard, lost: Vec::new() };
        let mut out_of_time = || {
            budget = budget.saturating_sub(1);
            budget == 0
        };
        self.shards[shard].flush(self.now, &mut kernel, &mut out_of_time);
        for (client, text) in kernel.lost {
            self.checker.lost(client, &text);
        }
        self.run_effects(shard);
        if let Some(breach) = self.network.breaches.pop() {
            self.checker.fail(Invariant::CleanFrames, breach);
        }
        self.after(shard, before, false);
        self.is_turn = false;
        true
    }

    /// The kernel has room for bytes of a connection again.
    pub(super) fn writable(&mut self, conn: usize) -> bool {
        let (true, Some(key)) = (self.network.is_writable(conn), self.network.conns[conn].key) else { return false };
        self.network.conns[conn].blocked = false;
        let shard = self.network.conns[conn].shard;
        self.shards[shard].socket_writable(self.now, key);
        true
    }

    /// Processes everything that a shard has received and that waits for writing.
    pub(super) fn settle_all(&mut self, shard: usize) {
        let before = self.ends(shard);
        self.is_turn = true;
        self.shards[shard].take_all_arrivals(self.now);
        self.run_effects(shard);
        self.after(shard, before, false);
        self.is_turn = false;
    }

    /// Runs the effects of a shard, without writing.
    pub(super) fn settle(&mut self, shard: usize) {
        let before = self.ends(shard);
        self.run_effects(shard);
        self.after(shard, before, false);
    }

    /// Advances time for all shards.
    pub(super) fn pass(&mut self, ms: u64) {
        // A thread runs the effects of an event before it waits: a response is read from the time at which it was made.
        for shard in 0..self.shards.len() {
            self.settle(shard);
        }
        self.now.ms += ms;
        // The wall clock is set now and then, backwards, too.
        // Not where credentials end at a time of day: it must be known when they do.
        let jump_ms = if self.scenario.users.is_empty() && self.rng.chance(20) {
            self.rng.between(0, 10_000_000)
        } else {
            5_000_000
        };
        self.now.wall_ms = (self.now.wall_ms + ms + jump_ms).saturating_sub(5_000_000);
        self.wall_max_ms = self.wall_max_ms.max(self.now.wall_ms);
        let wall_ms = self.now.wall_ms;
        self.recorder.with(|recording| recording.wall_ms = wall_ms);
        for shard in 0..self.shards.len() {
            let before = self.ends(shard);
            self.waiting_is_no_silence(shard);
            if self.sabotage != Sabotage::StoppedClock {
                self.shards[shard].advance(self.now);
            }
            self.run_effects(shard);
            self.after(shard, before, true);
        }
        self.check_counts();
        self.check_presence();
    }

    fn run_effects(&mut self, shard: usize) {
        for effect in self.shards[shard].take_effects() {
            self.note(|_| format!("shard {shard} wants {effect:?}"));
            match effect {
                Effect::Respond(exchange, response) => self.respond(shard, exchange, response),
                Effect::Close(key) => {
                    if let Some(conn) = self.network.find(shard, key) {
                        self.network.shut(conn);
                    }
                }
                Effect::Reset(key) => {
                    if let Some(conn) = self.network.find(shard, key) {
                        let client = self.network.conns[conn].client;
                        for text in self.network.reset(conn) {
                            self.checker.lost(client, &text);
                        }
                    }
                }
                Effect::SendToShard(to, message) if to == usize::from(PublishToken::HANDLES) => self.reported(&message),
                Effect::SendToShard(to, message) if to == shard || to > self.shards.len() => {
                    self.checker.fail(Invariant::NumbersAgree, format!("shard {shard} sends to {to}: {message:?}"));
                }
                Effect::Await(key, awaited) => self.wait_for(shard, key, awaited),
                Effect::Cancel(key) => self.cancel(shard, key),
                Effect::Continue(key) => {
                    if let Some(conn) = self.network.find(shard, key) {
                        self.network.conns[conn].suspended = false;
                    }
                }
                Effect::SendToShard(to, message) => self.send_to_shard(to, shard, message),
                Effect::Presence(event) => self.presence_changes(shard, *event),
                Effect::SendToNodes(_) | Effect::AwaitInterest(..) | Effect::Relay(..) => {
                    self.checker.fail(Invariant::NumbersAgree, format!("shard {shard} is on no node of a cluster"));
                }
                Effect::Persist(request) => match &mut self.log {
                    Some(log) => log.inboxes[shard].push_back(request),
                    None => self
                        .checker
                        .fail(Invariant::NumbersAgree, format!("shard {shard} wants {request:?} to be stored")),
                },
            }
        }
    }

    fn respond(&mut self, shard: usize, id: ExchangeId, response: Response) {
        if self.sabotage_once(Sabotage::LostResponse) {
            return;
        }
        let number = id.number as usize;
        let Some(exchange) = self.network.exchanges.get_mut(number).filter(|x| x.shard == shard) else {
            return self
                .checker
                .fail(Invariant::OneResponse, format!("shard {shard} answers {id:?}, which nobody sent"));
        };
        if !matches!(exchange.state, State::Open | State::Abandoned) {
            return self
                .checker
                .fail(Invariant::OneResponse, format!("request {number} is answered again: {response:?}"));
        }
        let abandoned = matches!(exchange.state, State::Abandoned);
        exchange.state = State::Answered;
        if self.frozen {
            // Nobody writes it any more.
            let client = exchange.client;
            if exchange.client_waits {
                self.network.inboxes[client].push_back(Item::Failed(number));
            }
            return;
        }
        let (client, waits, transport) = (exchange.client, exchange.client_waits, exchange.transport);
        let session = exchange.session.filter(|_| response.confirm.map(usize::from) == Some(shard));
        let breaks = !self.healing && self.network.rng.chance(self.scenario.faults);
        // Nobody reads a response whose request has been given up, or whose connection breaks.
        let is_read = waits && !abandoned && !breaks;
        let read_ms = self.reading_time(client, session.filter(|_| is_read), response.body.len());
        self.network.exchanges[number].read_ms = self.now.ms + read_ms;
        let lied_to = self.sabotage == Sabotage::FalseReceipt && response.confirm.is_some();
        // A client that left silently: the kernel takes bytes that nobody will read.
        let void = !abandoned && !waits && self.network.rng.chance(300);
        let taken = lied_to || void || is_read;
        if let Some(home) = response.confirm {
            self.checker.tally.refused_responses += u64::from(!taken);
            self.reports.push_back(Report { exchange: id, home: usize::from(home), taken });
        }
        if void {
            let text = json_of(transport, &response.body);
            self.checker.lost(client, &text);
        } else if waits && !abandoned {
            let item = if breaks { Item::Failed(number) } else { Item::Response(number, response) };
            self.network.inboxes[client].push_back(item);
        }
    }

    /// The time that a client takes to read a response. A client that reads at least 4 bytes in a millisecond is not silent
    /// meanwhile.
    fn reading_time(&mut self, client: usize, session: Option<usize>, bytes: usize) -> u64 {
        if bytes < READ_AT_ONCE_BYTES {
            return 0;
        }
        let busy_ms = bytes as u64 / READ_BYTES_PER_MS;
        if let Some(session) = session.and_then(|session| self.checker.sessions.get_mut(session)) {
            session.last_received_ms = session.last_received_ms.max(self.now.ms + busy_ms);
        }
        let is_slow = self.scenario.sip_bytes > 0 && client.is_multiple_of(2);
        if is_slow { self.rng.between(0, busy_ms) } else { 0 }
    }
}

/// Responses of fewer bytes are read at once.
const READ_AT_ONCE_BYTES: usize = 16 * 1024;
/// A client that reads more slowly is silent.
const READ_BYTES_PER_MS: u64 = 4;
