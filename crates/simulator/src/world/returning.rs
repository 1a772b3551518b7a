//! The return of a client that replays after a break, with a new session, or with its old one, in which it
//! resubscribes at its positions; and its change to another transport.
//!
//! In its old session only positions tell the server what such a client has: the responses and connections that it
//! left may still take messages along, or fail and return them.

use encke_core::{Envelope, ShardMessage};

use crate::checker::Subscription;
use crate::client::{Outgoing, Route, What};
use crate::exchange::State;
use crate::follower::Footing;
use crate::network::Up;
use crate::script::Transport;
use crate::transit::InTransit;
use crate::world::World;

impl World {
    /// A client that cannot know which messages its connection had abandons it, and mostly its session: it comes back
    /// with the positions it knows.
    pub(super) fn walk_away(&mut self, client: usize, session: Option<usize>) -> bool {
        let Some(session) = session.filter(|session| self.clients[client].session() == Some(*session)) else {
            return false;
        };
        let state = &self.checker.sessions[session];
        let asked = |footing: &Footing| matches!(footing, Footing::Requested(..));
        let follower = self.clients[client].follower.as_ref();
        // A late subscribe would restart the replay at positions that are out of date.
        let asks = follower.is_some_and(|follower| follower.footing.values().any(asked));
        if !state.follows || (state.acknowledges && !asks) {
            return false;
        }
        let stays = !asks && !state.acknowledges && self.rng.chance(600) && self.may_go_on(client, session);
        self.note(|_| format!("client {client} returns with its positions to session {session}: {stays}"));
        self.lose_sight(client);
        if stays {
            self.cut_off(client);
            let next_ms = self.now.ms;
            let state = &mut self.clients[client];
            (state.connect, state.next_ms) = (None, next_ms);
            state.follower.iter_mut().for_each(|follower| follower.names_positions = true);
        } else {
            self.abandon(client, session);
        }
        true
    }

    /// True if no earlier request of the client can still reach the server, and all its subscriptions are certain.
    fn may_go_on(&self, client: usize, session: usize) -> bool {
        let changes = |what: &What| matches!(what, What::Subscribe(_) | What::Unsubscribe(_));
        let state = &self.clients[client];
        let Some(follower) = &state.follower else { return false };
        let is_asking = state.awaited.values().any(|awaited| changes(&awaited.what));
        let exchanges = &self.network.exchanges;
        let is_sent = exchanges.iter().any(|x| x.client == client && matches!(x.state, State::Sent(_)));
        let mut conns = self.network.conns.iter().filter(|conn| conn.client == client);
        let is_said =
            conns.any(|conn| conn.moving || conn.up.iter().any(|up| matches!(up, Up::Text(..) | Up::Stream(_))));
        let is_shard_message = self.in_transit.iter().flatten().flatten().any(|item| {
            matches!(item, InTransit::ShardMessage(Envelope { message: ShardMessage::Request(request), .. })
                if exchanges[request.exchange.number as usize].client == client)
        });
        let is_waiting = self.waiting.iter().any(|(_, exchange)| exchanges[*exchange].client == client);
        let subscriptions = &self.checker.sessions[session].subscriptions;
        let is_granted = |name: &String| matches!(subscriptions.get(name), Some(Subscription::Granted(_)));
        !is_asking && !is_sent && !is_said && !is_shard_message && !is_waiting && follower.wanted.iter().all(is_granted)
    }

    /// A client that continues its session resubscribes at its positions and connects, in one batch. Otherwise
    /// messages that an abandoned connect takes along would be missing.
    pub(super) fn name_positions(&mut self, client: usize, session: usize) {
        let stream = self.clients[client].conn.filter(|conn| self.network.conns[*conn].stream.is_some());
        stream.into_iter().for_each(|conn| self.drop_conn(client, conn));
        let Some(follower) = &mut self.clients[client].follower else { return };
        let mut members = Vec::new();
        for (channel, footing) in &mut follower.footing {
            let Some((epoch, id)) = follower.last.get(channel) else { continue };
            *footing = Footing::Requested(Some(*id), None);
            members.push(format!("\"{channel}\":{{\"id\":{id},\"epoch\":\"{epoch}\"}}"));
        }
        follower.names_positions = false;
        let names: Vec<String> = follower.wanted.iter().cloned().collect();
        let mut messages = Vec::new();
        if !members.is_empty() && !names.is_empty() {
            let raw = names.join("\",\"");
            let fields = format!(",\"subscription\":[\"{raw}\"],\"ext\":{{\"replay\":{{{}}}}}", members.join(","));
            messages.push(Outgoing { channel: "/meta/subscribe".into(), fields, what: What::Subscribe(names) });
        }
        self.note(|_| format!("client {client} goes on with session {session}"));
        // Not that of a stream: the session leaves an older one, on which messages behind these positions may come.
        let fields = ",\"connectionType\":\"x\"".to_string();
        messages.push(Outgoing { channel: "/meta/connect".into(), fields, what: What::Connect });
        if self.send(client, messages) {
            let now_ms = self.now.ms;
            let state = &mut self.clients[client];
            let sent = state.awaited.last_key_value().map(|(id, awaited)| (*id, awaited.route));
            state.connect = sent.map(|(id, _)| (id, now_ms));
            // Other requests wait: one that overtakes is undone, or has its messages sent over the old connection.
            if let Some((_, Route::Exchange(number))) = sent {
                state.busy = Some(number);
            }
            self.checker.tally.returns += 1;
        }
    }

    /// The client continues over another transport, or over another connection of the same kind.
    pub(super) fn switch(&mut self, client: usize) {
        self.checker.tally.switches += 1;
        self.walk_away(client, self.clients[client].session());
        let to = self.rng.pick(&[
            Transport::WebSocket,
            Transport::WebSocket,
            Transport::LongPolling,
            Transport::LongPolling,
            Transport::CallbackPolling,
            Transport::Events,
            Transport::Lines,
        ]);
        // A client that has acknowledged a batch must not read on where later ones may arrive.
        let careful = self.clients[client].acknowledged.is_none() && self.rng.chance(600);
        self.note(|_| format!("client {client} switches to {to:?}, carefully: {careful}"));
        self.lose_sight(client);
        let state = &mut self.clients[client];
        state.transport = to;
        state.connect = None;
        state.next_ms = self.now.ms;
        if let Some(conn) = state.conn.take() {
            state.old_conns.push(conn);
            if !careful {
                self.drop_old_conns(client);
            }
        }
    }
}
