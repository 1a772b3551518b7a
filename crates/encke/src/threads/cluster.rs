//! The thread of the cluster: it passes publications and interest of the shards to the node, commands of the node to the
//! engine, and publications of other nodes to the shards.
//!
//! ```text
//!   shards ── Link ──▶ this thread: Member ── commands ──▶ engine, on the same thread
//!     ▲                     │   ▲──────────── events ──────┘
//!     └──── mailboxes ──────┘
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use encke_cluster::{
    Counts, EnvelopeError, Histories, Member, MemberOutput, Order, Ordered, OwnName, UserEnd, Visited,
};
use encke_core::{Elsewhere, ForNodes, Owner, Searcher, SessionOwner, ShardMessage};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::engine::{ClusterEngine, EngineCommand, EngineCommands, EngineEvent, EngineEvents};
use crate::cluster::link::{Link, Status, ToCluster};
use crate::cluster::settings::random_mark;
use crate::net::server_shared::ServerShared;
use crate::threads::commands::NodeCommands;
use crate::threads::histories::Reading;
use crate::threads::leases::NodeLeases;
use crate::threads::relays::Relays;
use crate::threads::store::{NodeStore, StoreEvent};
use crate::threads::users::NodeUsers;

/// The machines of a node.
pub(crate) struct Parts {
    pub(crate) own_name: OwnName,
    pub(crate) member: Member,
    pub(crate) commands: NodeCommands,
    pub(crate) leases: NodeLeases,
    pub(crate) users: NodeUsers,
    /// The store of the sessions' records, if these are not among the engine's keys.
    pub(crate) store: Option<NodeStore>,
}

/// Starts the thread of a node. It ends some time after the server has stopped.
///
/// # Errors
/// The system's error, if it cannot start a thread.
pub(crate) fn start(
    server: Arc<ServerShared>,
    link: Arc<Link>,
    parts: Parts,
    engine: Box<dyn ClusterEngine>,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Parts { own_name, member, commands: node_commands, leases, users, store } = parts;
    let (commands, for_engine) = mpsc::unbounded_channel();
    let (to_node, events) = mpsc::channel(EVENTS_MAX);
    let (logged, visitors, ordering) = (Logged::default(), HashMap::new(), HashMap::new());
    let mut cluster = Cluster {
        server,
        link,
        engine: engine.name(),
        own_name,
        member,
        reading: Reading::default(),
        node_commands,
        leases,
        users,
        store,
        visitors,
        ordering,
        last_waiting: 0,
        relays: Relays::default(),
        commands,
        logged,
    };
    std::thread::Builder::new().name("cluster".into()).spawn(move || {
        runtime.block_on(async {
            cluster.store.iter_mut().for_each(NodeStore::start);
            let engine = tokio::spawn(engine.run(EngineCommands(for_engine), EngineEvents(to_node)));
            if cluster.run(events).await {
                // It sends what it has.
                _ = timeout(END_MAX, engine).await;
            }
        });
    })
}

/// The node with all around it.
struct Cluster {
    server: Arc<ServerShared>,
    link: Arc<Link>,
    /// The name of the engine, for the log.
    engine: String,
    own_name: OwnName,
    member: Member,
    reading: Reading,
    node_commands: NodeCommands,
    leases: NodeLeases,
    users: NodeUsers,
    store: Option<NodeStore>,
    /// Requests for streams that wait for a session.
    visitors: HashMap<u64, oneshot::Sender<Visited>>,
    /// Those who wait until the end of a session is recorded.
    ordering: HashMap<u64, oneshot::Sender<Ordered>>,
    /// The number of the last of both.
    last_waiting: u64,
    relays: Relays,
    commands: mpsc::UnboundedSender<EngineCommand>,
    logged: Logged,
}

/// The last log lines.
#[derive(Default)]
struct Logged {
    counts: Counts,
    /// The time from which on losses and rejections are logged again.
    from_ms: u64,
    /// The last reason why bytes were rejected.
    rejection: Option<EnvelopeError>,
    /// The last error of the engine, and the time from which on it is logged again.
    failure: (String, u64),
}

impl Cluster {
    /// Runs until the server has stopped. True: the engine may still have something to send.
    async fn run(mut self, mut events: mpsc::Receiver<EngineEvent>) -> bool {
        let mut received = Vec::new();
        loop {
            let now_ms = self.server.clock.now().ms;
            let of_member = [self.member.next_ms(now_ms), self.reading.next_ms(&self.member, now_ms)];
            let of_others = [
                self.node_commands.next_ms(now_ms),
                self.leases.next_ms(now_ms),
                Some(self.users.next_ms()),
                self.own_name.next_ms(),
            ];
            let due = of_member.into_iter().chain(of_others).flatten().min().map(|due_ms| {
                let wait_ms = due_ms.saturating_sub(self.server.clock.now().ms).min(WAIT_MAX_MS);
                Instant::now() + Duration::from_millis(wait_ms)
            });
            let is_timed = due.is_some();
            tokio::select! {
                () = self.link.woken() => {}
                count = events.recv_many(&mut received, EVENTS_AT_ONCE) => if count == 0 {
                    tracing::error!("{} has ended; the node goes on alone", self.engine);
                    self.member.disconnected(self.server.shared());
                    self.node_commands.disconnected();
                    self.leases.disconnected();
                    self.users.disconnected(&self.server);
                    self.turn(&mut Vec::new());
                    self.alone().await;
                    return false;
                },
                Some(event) = self.relays.next() => self.relays.take(event, &mut self.member.sessions),
                Some(event) = next_of(&mut self.store) => self.take_store(event),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if is_timed => {}
            }
            // Events that have come meanwhile cost no further turn.
            while received.len() < EVENTS_AT_ONCE
                && let Ok(event) = events.try_recv()
            {
                received.push(event);
            }
            if self.turn(&mut received) {
                _ = timeout(END_MAX, self.send_the_rest(events)).await;
                return self.member.node.is_connected();
            }
        }
    }

    /// Waits until the engine has sent what it has, and other nodes own the histories.
    async fn send_the_rest(&mut self, mut events: mpsc::Receiver<EngineEvent>) {
        while self.member.node.is_connected() && self.member.node.has_unsent() | !self.member.end() | !self.leases.end()
        {
            let event = timeout(END_PAUSE, events.recv()).await;
            if let Ok(None) = event {
                return;
            }
            self.turn(&mut event.into_iter().flatten().collect());
        }
        self.turn(&mut Vec::new());
    }

    /// Answers shards, without an engine.
    async fn alone(mut self) {
        while !self.turn(&mut Vec::new()) {
            self.link.woken().await;
        }
    }

    /// Processes all that has come. True: the server has stopped.
    fn turn(&mut self, events: &mut Vec<EngineEvent>) -> bool {
        let (messages, is_stopped) = self.link.take();
        let now = self.server.clock.now();
        let now_ms = now.ms;
        messages.into_iter().for_each(|message| self.take_message(now_ms, message));
        let was_taken = self.own_name.is_taken();
        for event in events.drain(..) {
            if let Some(event) = self.own_name.take(now_ms, event) {
                self.take(event, now_ms);
            }
        }
        self.log_name(was_taken);
        // An engine that has ended takes nothing.
        self.own_name.turn(now_ms).into_iter().for_each(|question| _ = self.commands.send(question));
        self.member.turn(now, &*self.server);
        let announced = self.member.node.take_announced();
        if !announced.is_empty() {
            self.server.presence.want(announced, self.link.others().as_deref(), now);
        }
        self.pass_on();
        self.node_commands.turn(now, (&self.server, &self.link), &self.commands);
        if !self.member.sessions.are_loading() {
            self.link.set_has_records();
        }
        self.leases.turn(now_ms, &self.commands);
        self.users.turn(now_ms, (&self.server, &self.link), &self.commands);
        // Frozen shards get nothing more.
        while !self.link.is_frozen() && self.member.deliver(&*self.server) {}
        self.log(now_ms);
        let (remote_calls, revocations) = self.node_commands.counts();
        let node = &self.member.node;
        self.link.set_status(Status {
            is_connected: node.is_connected(),
            name_is_taken: self.own_name.is_taken(),
            counts: node.counts(),
            subscriptions: node.subscriptions(),
            origins: node.origins(),
            waiting_bytes: node.waiting_bytes(),
            sessions: self.member.sessions.counts(),
            histories: self.member.histories().map(Histories::counts).unwrap_or_default(),
            reading: self.reading.progress(&self.member, now_ms),
            remote_calls,
            revocations,
            leases: self.leases.held(),
            users: self.users.counts(),
        });
        is_stopped
    }

    /// Takes a message for this thread.
    fn take_message(&mut self, now_ms: u64, message: ToCluster) {
        match message {
            ToCluster::Publications(publications) => self.member.node.publish(&publications),
            ToCluster::Ask(names, token) => self.member.node.ask(names, token),
            ToCluster::Message(envelope) => match envelope.message {
                ShardMessage::ForNodes(ForNodes::Elsewhere(action, owner)) => {
                    self.act(now_ms, action, owner);
                }
                message => self.member.from_shard(now_ms, message),
            },
            ToCluster::Command { callee, kind, content, done } => {
                self.node_commands.call(now_ms, callee, (kind, content), done);
            }
            // Without a store the answer fails.
            ToCluster::Store(task) => {
                if let Some(store) = &self.store {
                    store.task(task);
                }
            }
            ToCluster::Lease(name, waiting) => self.leases.want(now_ms, name, waiting),
            ToCluster::Act(action) => self.act(now_ms, action, None),
            ToCluster::OrderEnd(session, is_known, done) => {
                self.last_waiting += 1;
                self.ordering.insert(self.last_waiting, done);
                let order = Order { session, is_known, owner: None, waiter: Some(self.last_waiting) };
                self.member.sessions.order_end(now_ms, order);
            }
            ToCluster::EndUser(user, mark, done) => self.end_user(now_ms, (&user, mark), None, Some(done)),
            ToCluster::UserEnded(user, mark) => _ = self.member.sessions.mark_user(now_ms, &user, mark),
            ToCluster::MarkFound(user, mark) => self.mark_found(now_ms, user, mark),
            ToCluster::EndOlder(ids, mark) => {
                ids.iter().for_each(|session| self.member.sessions.end_older(session, mark));
            }
            ToCluster::EndIfItComes(session) => self.member.sessions.ends_if_it_comes(&session),
            ToCluster::Reply(number, reply) => self.node_commands.reply(number, &reply),
            ToCluster::Revoke(revoked) => self.node_commands.revoke(now_ms, revoked),
            ToCluster::Settings(settings) => {
                self.store.iter_mut().for_each(|store| store.set_settings(settings.clone()));
                self.users.set_settings(settings.clone());
                self.member.set_settings(settings);
            }
            ToCluster::Relay(relayed) => self.relays.begin(now_ms, *relayed, &mut self.member.sessions),
            ToCluster::Search { session, opener, origins, done } => {
                self.last_waiting += 1;
                self.visitors.insert(self.last_waiting, done);
                let waiting = Searcher::Visitor(self.last_waiting, opener);
                let search = ForNodes::Search { session, origins, waiting };
                self.member.sessions.from_shard(now_ms, ShardMessage::ForNodes(search));
            }
        }
    }

    /// Passes an action of the application, which this owner has caused, to the other nodes.
    fn act(&mut self, now_ms: u64, action: Elsewhere, owner: Option<SessionOwner>) {
        let mut mark = 0;
        match &action {
            Elsewhere::Disconnect(session) => {
                let order = Order { session: *session, is_known: false, owner, waiter: None };
                self.member.sessions.order_end(now_ms, order);
            }
            Elsewhere::DisconnectUser(user) => {
                mark = random_mark();
                self.end_user(now_ms, (user, mark), owner, None);
            }
            _ => {}
        }
        self.node_commands.act(now_ms, (action, mark), owner);
    }

    /// All sessions of a user are to end. Those of all nodes get the order beside that.
    fn end_user(
        &mut self,
        now_ms: u64,
        (user, mark): (&str, u64),
        owner: Option<SessionOwner>,
        done: Option<oneshot::Sender<bool>>,
    ) {
        let sessions = &mut self.member.sessions;
        _ = sessions.mark_user(now_ms, user, mark);
        let ended = UserEnd { user, mark, ttl_ms: sessions.order_ttl_ms(), owner, waiter: None };
        self.node_commands.mark_user(now_ms, ended, done);
    }

    /// The engine has the mark of a user. If no order has come to this node, because it was away, sessions from before that end here.
    fn mark_found(&mut self, now_ms: u64, user: Box<str>, mark: u64) {
        if self.member.sessions.mark_user(now_ms, &user, mark) {
            let (server, link) = (self.server.clone(), self.link.clone());
            self.server.application.spawn(async move {
                let ids = server.sessions_of(Owner::User(user)).await.unwrap_or_default();
                link.send(ToCluster::EndOlder(ids, mark));
            });
        }
    }

    /// Takes an event of the store of sessions, and all others that are there.
    fn take_store(&mut self, event: StoreEvent) {
        let now_ms = self.server.clock.now().ms;
        if let Some(store) = &mut self.store {
            store.take(now_ms, event, &mut self.member.sessions);
        }
    }

    fn take(&mut self, event: EngineEvent, now_ms: u64) {
        self.node_commands.take(&event, now_ms);
        self.leases.take(&event, now_ms);
        self.users.take(&event, now_ms, &self.server);
        match &event {
            EngineEvent::Connected { .. } => tracing::info!("connected to {}", self.engine),
            EngineEvent::Disconnected if self.member.node.is_connected() => {
                tracing::warn!("{} is away; the node goes on alone", self.engine);
            }
            EngineEvent::Failed(error) => {
                let (last, from_ms) = &mut self.logged.failure;
                if last != error || now_ms >= *from_ms {
                    tracing::warn!(error, "{} reports an error", self.engine);
                    (*last, *from_ms) = (error.clone(), now_ms + LOG_EVERY_MS);
                }
            }
            _ => {}
        }
        let rejection = self.member.take(event, now_ms, self.server.shared()).err();
        self.logged.rejection = rejection.or(self.logged.rejection);
    }

    /// Does what the machines leave to others.
    fn pass_on(&mut self) {
        for output in self.member.take_outputs() {
            match output {
                MemberOutput::Engine(command) => {
                    let command = match &self.store {
                        Some(store) => store.command(command),
                        None => Some(command),
                    };
                    // An engine that has ended takes nothing.
                    command.into_iter().for_each(|command| _ = self.commands.send(command));
                }
                MemberOutput::Relay(output) => {
                    let bytes_max = self.member.sessions.message_bytes_max();
                    self.relays.run(output, &self.server, bytes_max);
                }
                MemberOutput::Visitor(visitor, visited) => {
                    let done = self.visitors.remove(&visitor);
                    // A client that is gone needs no answer.
                    done.into_iter().for_each(|done| _ = done.send(visited));
                }
                MemberOutput::Ordered(waiter, outcome) => {
                    let done = self.ordering.remove(&waiter);
                    done.into_iter().for_each(|done| _ = done.send(outcome));
                }
                MemberOutput::Probed(node, is_gone) => {
                    self.store.iter_mut().for_each(|store| store.probed(node, is_gone));
                }
            }
        }
    }

    /// Logs that another node has the name of this one.
    fn log_name(&self, was_taken: bool) {
        if self.own_name.is_taken() && !was_taken {
            let name = self.own_name.name();
            tracing::error!(
                ?name,
                "another node of the cluster has the name of this one, which goes on alone until that has ended; is the folder `data` a copy of that node's? \
                 Then delete the file `node` in it, and start again"
            );
        }
    }

    /// Logs losses and rejections, seldom.
    fn log(&mut self, now_ms: u64) {
        let (counts, before) = (self.member.node.counts(), self.logged.counts);
        let lost = (counts.lost_out - before.lost_out, counts.lost_in - before.lost_in);
        let rejected = counts.rejected - before.rejected;
        let unconfirmed = counts.replies_unconfirmed - before.replies_unconfirmed;
        if now_ms < self.logged.from_ms || (lost, rejected, unconfirmed) == ((0, 0), 0, 0) {
            return;
        }
        if lost != (0, 0) {
            let (out, arrived) = lost;
            tracing::warn!(out, arrived, "messages between nodes are lost, because there is no room for them");
        }
        if let Some(reason) = self.logged.rejection.take() {
            tracing::warn!(rejected, %reason, "the cluster has what is no envelope of a node");
        }
        if unconfirmed > 0 {
            tracing::warn!(unconfirmed, "replies to subscribes did not wait longer for {}", self.engine);
        }
        (self.logged.counts, self.logged.from_ms) = (counts, now_ms + LOG_EVERY_MS);
    }
}

/// The next event of the store of sessions. It never comes if there is no store.
async fn next_of(store: &mut Option<NodeStore>) -> Option<StoreEvent> {
    match store {
        Some(store) => store.next().await,
        None => std::future::pending().await,
    }
}

/// Events of the engine that wait; then the engine waits.
const EVENTS_MAX: usize = 4_096;
/// Events of the engine in one turn.
const EVENTS_AT_ONCE: usize = 4_096;
/// The longest sleep.
const WAIT_MAX_MS: u64 = 60_000;
/// The time that the engine has to send what it has at the end.
const END_MAX: Duration = Duration::from_secs(2);
/// The time after which it is looked at again if the other nodes own the histories.
const END_PAUSE: Duration = Duration::from_millis(20);
/// The time between two log lines about losses, or about one error, in milliseconds.
const LOG_EVERY_MS: u64 = 10_000;
