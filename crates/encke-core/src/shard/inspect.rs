//! Reads a shard: its counters, its tables and queues, lists of sessions and channels.

use std::collections::HashSet;
use std::sync::Arc;

use bayeux::ChannelName;

use crate::attributes::Attributes;
use crate::clients::owners::Revoked;
use crate::delivery::{Session, Socket};
use crate::events::{SessionKey, SocketKey};
use crate::id::Id;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::shard::{Env, Machines, Shard, Shared};
use crate::views::{ChannelView, Owner, Page, SessionView};

impl Shard {
    /// The work done since the start, in bytes written for subscribers and other shards. The difference between two
    /// calls is the work that one connection caused.
    pub fn work(&self) -> u64 {
        self.machines.admission.work()
    }

    /// The steps of loops whose length clients decide, since the start. The difference between two calls is the cost of
    /// the events between them. A step takes 5 to 100 ns.
    ///
    /// A step is a subscriber of a publication, a message that is searched for, dropped or read from a history, a run that
    /// is packed or freed, a session, a subscription or a slot that is visited. Whatever outboxes hold, an event takes at
    /// most:
    ///
    /// - [`STEPS_PER_DELIVERY`](crate::STEPS_PER_DELIVERY) for each message to each of its subscribers, on average over the messages since the last
    ///   flush that returned false;
    /// - [`STEPS_PER_TURN`](crate::STEPS_PER_TURN) in a flush or a tick, and as many again for each time that `out_of_time` has returned false;
    /// - a search of one outbox, which holds at most twice `outbox_messages_max`: for withdrawn messages, or for those that
    ///   a history has;
    /// - the subscriptions of each session that ends;
    /// - those of all sessions, when settings change;
    /// - all channels, when the application changes.
    pub fn steps(&self) -> u64 {
        self.machines.steps()
    }

    /// True if the server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.machines.env.is_draining
    }

    /// The index of this shard.
    pub fn index(&self) -> usize {
        self.machines.env.index
    }

    /// The counters and gauges of this shard.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.machines.env.metrics
    }

    /// Bytes of publications recorded in durable histories since the start. The difference between two calls is what
    /// reading one socket caused.
    pub fn recorded_bytes(&self) -> u64 {
        self.machines.admission.recorded_bytes()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Arc<Settings> {
        self.machines.env.settings.given()
    }

    /// True if handshakes need the head of their HTTP request.
    pub fn reads_heads(&self) -> bool {
        self.machines.env.shared.application.reads_heads()
    }

    /// The tokens that open no session any more, of all shards.
    pub fn revoked(&self) -> &Revoked {
        &self.machines.env.shared.revoked
    }

    /// The number of sessions on this shard.
    pub fn sessions(&self) -> usize {
        self.machines.delivery.sizes().sessions
    }

    /// The queue of a session: messages, the bytes of their frames, and bytes of replies on its WebSocket. None if the
    /// session is unknown.
    pub fn waiting(&self, session: &Id) -> Option<(usize, usize, usize)> {
        Some(self.found(session)?.1.waiting())
    }

    /// True if the session has a held connect. None if the session is unknown.
    pub fn holds(&self, session: &Id) -> Option<bool> {
        Some(self.found(session)?.1.is_held())
    }

    /// The sizes of all tables and queues, by name. All are zero some time after the last client has left.
    pub fn holdings(&self) -> [(&'static str, usize); 17] {
        let Machines { env, delivery, channels, clients, requests, admission, .. } = &self.machines;
        let (queued, pending) = (delivery.sizes(), requests.pending());
        [
            ("sessions", queued.sessions),
            ("sockets", queued.sockets),
            ("channels", channels.len()),
            ("subscriptions", channels.subscriptions()),
            ("browsers", queued.browsers),
            ("exchanges", queued.exchanges),
            ("forwarded requests", pending.forwarded),
            ("pending publish replies", pending.replies),
            ("messages from other shards", admission.waiting()),
            ("timers", queued.timers + env.timers.len()),
            ("waiting writes and effects", queued.writes + queued.effects + env.effects.len()),
            ("connects that wait for response memory", queued.connects),
            ("sessions that wait for a search", queued.searches),
            ("sessions without a connect", clients.newcomers.len()),
            ("waits for the application", pending.waits),
            ("users and tokens with a session", clients.owners.len()),
            ("queues of ended sessions", queued.waste),
        ]
    }

    /// The bytes that the sessions and sockets of this shard hold: as counted by the account, and as found by a walk
    /// over everything. For tests.
    pub fn memory(&self) -> (usize, usize) {
        let mut seen = HashSet::new();
        let Machines { delivery, channels, conflation, clients, relief, .. } = &self.machines;
        let pending = self.burst.frames().map_or(0, |frames| frames.chunk.recount(&mut seen));
        let owners: usize = delivery.keys().into_iter().map(|key| clients.bytes_of(key)).sum();
        let queues = relief.recount(&mut seen) + delivery.recount(&mut seen);
        (delivery.bytes(), pending + queues + channels.bytes() + conflation.bytes() + owners)
    }

    /// Bytes that sessions and sockets hold, without the room reserved for the next message.
    pub fn held_bytes(&self) -> usize {
        self.machines.delivery.held_bytes()
    }

    /// True if there is room for a body of a response that has nothing to do with sessions.
    pub fn has_room_for(&self, body_bytes: usize) -> bool {
        self.machines.delivery.has_room_for(body_bytes)
    }

    /// True if little room is left for further responses. A client that does not take its own is then given up soon.
    pub fn is_short_of_responses(&self) -> bool {
        self.machines.delivery.is_short_of_responses()
    }

    /// True if the shard still has this WebSocket.
    pub fn has_socket(&self, key: SocketKey) -> bool {
        self.machines.delivery.socket(key).is_some()
    }

    /// True if the kernel took nothing at the last write. The task of the socket must then wait until it is writable,
    /// and call [`Shard::socket_writable`].
    pub fn is_blocked(&self, key: SocketKey) -> bool {
        self.machines.delivery.socket(key).is_some_and(Socket::is_blocked)
    }

    /// True if nothing waits for [`Shard::flush`] or [`Shard::take_effects`].
    pub fn is_settled(&self) -> bool {
        let Machines { env, delivery, admission, relief, .. } = &self.machines;
        let has_arrivals = admission.may_serve(env.settings.capacity());
        let has_input = !self.burst.is_empty() || !env.deferred_actions.is_empty() || has_arrivals;
        let has_output = !env.effects.is_empty() || !delivery.is_settled();
        !has_input && !has_output && admission.is_fresh() && !relief.is_acting() && !delivery.has_waste()
    }

    /// The state that all shards share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.machines.env.shared
    }

    /// The limits of channel names and JSON.
    pub fn limits(&self) -> &bayeux::Limits {
        self.machines.env.settings.limits()
    }

    /// True if a rule gives this channel a history.
    pub fn has_history(&self, channel: ChannelName<'_>) -> bool {
        self.machines.env.settings.seen_history(channel).is_some()
    }

    /// The sessions from this slot of the table on, at most `max`.
    pub fn sessions_from(&self, slot: usize, max: usize) -> Page<SessionView> {
        let Machines { env, delivery, .. } = &self.machines;
        Page::read(slot, delivery.session_slots(), max, |slot| {
            env.count_steps(1);
            delivery.in_slot(slot).map(|(key, session)| self.view(key, session))
        })
    }

    /// The ids of the sessions of an owner.
    pub fn sessions_of(&self, owner: &Owner) -> Vec<Id> {
        let keys = match owner {
            Owner::User(user) => self.machines.clients.owners.of_user(user),
            Owner::Token(token_id) => self.machines.clients.owners.of_token(token_id),
        };
        keys.into_iter().filter_map(|key| self.machines.delivery.id_of(Some(key))).collect()
    }

    /// A session, with the channels and patterns that it subscribes to. None if it is unknown.
    pub fn session(&self, id: &Id) -> Option<(SessionView, Vec<Box<str>>)> {
        let (key, session) = self.found(id)?;
        Some((self.view(key, session), self.machines.channels.names_of(key.index).map(Box::from).collect()))
    }

    /// The attributes of a session. None if it is unknown.
    pub fn attributes(&self, id: &Id) -> Option<Arc<Attributes>> {
        let (key, _) = self.found(id)?;
        Some(self.machines.clients.attributes(key).cloned().unwrap_or_default())
    }

    /// The channels and patterns with subscribers from this slot of the table on, at most `max` of those that are
    /// wanted.
    pub fn channels_from(&self, slot: usize, max: usize, is_wanted: impl Fn(&str) -> bool) -> Page<ChannelView> {
        let Machines { env, channels, .. } = &self.machines;
        Page::read(slot, channels.slots(), max, |slot| {
            env.count_steps(1);
            let (name, subscribers) = channels.in_slot(slot).filter(|(name, _)| is_wanted(name))?;
            Some(ChannelView { name: name.into(), subscribers })
        })
    }

    /// True if a channel has presence by its rule.
    pub fn has_presence(&mut self, name: &str) -> bool {
        self.machines.has_presence(name)
    }

    /// The number of subscribers of exactly this channel or pattern on this shard.
    pub fn subscribers_of(&self, name: &str) -> usize {
        self.machines.channels.subscribers_of(name)
    }

    fn found(&self, id: &Id) -> Option<(SessionKey, &Session)> {
        let key = self.machines.delivery.find(id)?;
        Some((key, self.machines.delivery.session(key)?))
    }

    fn view(&self, key: SessionKey, session: &Session) -> SessionView {
        let (waiting_messages, waiting_bytes) = session.queued();
        SessionView {
            id: *session.id(),
            user: self.machines.clients.identity(key).map(|identity| identity.user.clone()).unwrap_or_default(),
            is_connected: !session.is_away(),
            subscriptions: self.machines.channels.count_of(key.index),
            waiting_messages,
            waiting_bytes,
        }
    }
}

impl Machines {
    /// Updates the gauges where sessions or subscriptions may have come or gone. A publication changes none of these.
    pub(super) fn update_old_gauges(&mut self) {
        if self.env.gauges_are_old {
            self.update_gauges();
        }
    }

    pub(super) fn update_gauges(&mut self) {
        let Machines { env, delivery, channels, admission, .. } = self;
        env.gauges_are_old = false;
        let Env { metrics, shared, index, .. } = env;
        let sizes = delivery.sizes();
        metrics.sessions.set(sizes.sessions);
        metrics.sockets.set(sizes.sockets);
        metrics.channels.set(channels.len());
        metrics.subscriptions.set(channels.subscriptions());
        metrics.arrivals.set(admission.waiting());
        metrics.frame_bytes.set(delivery.frame_bytes());
        metrics.messages_compressed.set(delivery.encoder().compressor.messages() as usize);
        // Response bodies and revoked tokens belong to no shard, so the first shard counts them.
        let is_first = *index == 0;
        metrics.tokens_revoked.set(if is_first { shared.revoked.len() } else { 0 });
        let of_all = if is_first { shared.memory.body_bytes() + shared.memory.unsent_bytes() } else { 0 };
        metrics.memory_bytes.set(delivery.bytes() + of_all);
        if is_first {
            metrics.rates_forgotten.set(shared.limits.buckets.forgotten() as usize);
        }
    }
}
