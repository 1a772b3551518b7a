//! The plan of a seed: the numbers of everything, the settings, the quality of the network.

use encke_core::{ChannelRule, Format, HistoryCommit, Settings, SlowConsumer};

use crate::channels::{CHANNELS, HISTORY_CHANNELS, PRESENT};
use crate::claims::Claims;
use crate::rng::Rng;

/// The preferred transport of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One WebSocket.
    WebSocket,
    /// POST requests.
    LongPolling,
    /// GET requests answered with scripts.
    CallbackPolling,
    /// POST requests beside a stream of events.
    Events,
    /// POST requests beside a stream of JSON lines.
    Lines,
}

impl Transport {
    /// The format of its stream, if it has one.
    pub fn format(self) -> Option<Format> {
        match self {
            Transport::Events => Some(Format::Events),
            Transport::Lines => Some(Format::Lines),
            Transport::WebSocket | Transport::LongPolling | Transport::CallbackPolling => None,
        }
    }

    /// The `connectionType` of its connects. Only that of a stream means anything.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Events => "eventsource",
            Transport::Lines => "json-stream",
            Transport::WebSocket | Transport::LongPolling | Transport::CallbackPolling => "x",
        }
    }
}

/// The kind of the end of a server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The server drains and saves its sessions.
    Clean,
    /// The process is killed: its writes remain.
    Killed,
    /// The machine stops: unsynced writes survive, tear or get lost at random.
    PowerLoss,
}

/// The plan of one run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Shards of the server.
    pub shards: usize,
    /// The settings it starts with, and those it may get later.
    pub settings: [Settings; 2],
    /// The transport with which each client starts, and the browser of which it is a window.
    pub clients: Vec<(Transport, usize)>,
    /// Steps before the faults are healed.
    pub steps: usize,
    /// The share of messages that count as heavy, per thousand.
    pub heavy: usize,
    /// Faults per thousand steps.
    pub faults: usize,
    /// Odd actions of clients per thousand actions.
    pub oddities: usize,
    /// Short writes per thousand.
    pub short_writes: usize,
    /// The share of WebSockets whose clients offer compression, per thousand; rules compress where it is not 0.
    pub offering: usize,
    /// Bytes the kernel buffers for each client that does not read.
    pub kernel_bytes: usize,
    /// True if the server is drained near the end.
    pub drained: bool,
    /// The longest padding of a publication, in bytes.
    pub padding_bytes: usize,
    /// The number of publications per thousand that have some kilobytes, so that a few exceed one batch.
    pub long: usize,
    /// Nearly all clients replay and acknowledge, and most publications are long and have a history: more is
    /// unacknowledged than one batch may hold, while connections break.
    pub laden: bool,
    /// The channels with `keep-latest` on which the server publishes.
    pub feeds: usize,
    /// The most bytes that a client that reads slowly takes at once; 0 if none does.
    pub sip_bytes: usize,
    /// The clients with held requests.
    pub chains: usize,
    /// More clients have requests than may be held; half of the clients have one address.
    pub rush: bool,
    /// Most subscriptions are to channels that may have presence.
    pub crowded: bool,
    /// The rights of each user; empty if no session has an identity.
    pub users: Vec<Claims>,
    /// The number of decisions of the application that come later, or never, of 1,000.
    pub lateness: usize,
    /// The longest jump of time in one step, in milliseconds.
    pub jump_ms: u64,
    /// True if histories are on disk, too.
    pub durable: bool,
    /// Actions of the store per thousand steps.
    pub keeping: usize,
    /// The length at which a segment of the log ends, in bytes.
    pub segment_bytes: u64,
    /// The steps at which the server ends, and how; only where histories are on disk.
    pub restarts: Vec<(usize, Stop)>,
}

impl Scenario {
    /// The plan of a seed.
    pub fn new(rng: &mut Rng) -> Scenario {
        // For later parts of the plan, so that they do not change the others.
        let mut apart = Rng::new(rng.clone().bits());
        let calm = rng.chance(250);
        let tight = rng.chance(200);
        let laden = !tight && rng.chance(300);
        let shards = rng.pick(&[1, 1, 2, 2, 3, 4]);
        let limited = !laden && rng.chance(300);
        let plan = |rng: &mut Rng| if limited { limits(rng) } else { Settings::default() };
        let mut first = settings(rng, shards, tight, plan);
        let mut second = settings(rng, shards, tight, plan);
        // Settings that the checkers rely on do not change.
        second.channels[PAST_RULE] = first.channels[PAST_RULE].clone();
        if laden {
            [&mut first, &mut second]
                .into_iter()
                .for_each(|s| s.channels.iter_mut().for_each(|r| r.slow_consumer_bytes = 0));
        }
        second.history_bytes_max = first.history_bytes_max;
        second.history_commit = first.history_commit;
        second.broadcast_to_publisher = first.broadcast_to_publisher;
        second.outbox_messages_max = first.outbox_messages_max;
        second.outbox_bytes_max = first.outbox_bytes_max;
        second.mailbox_bytes_max = first.mailbox_bytes_max;
        second.sessions_bytes_max = first.sessions_bytes_max;
        let mut clients = clients(rng, laden);
        // Some of those that poll have streams instead.
        for (transport, _) in clients.iter_mut().filter(|(transport, _)| *transport == Transport::LongPolling) {
            *transport = apart.pick(&[Transport::LongPolling, Transport::Events, Transport::Lines]);
        }
        Scenario {
            shards,
            jump_ms: if rng.chance(150) { first.max_interval_ms * 2 } else { first.max_interval_ms / 4 },
            settings: [first, second],
            clients,
            steps: 300 + rng.below(1_500),
            heavy: rng.pick(&[0, 500, 1_000]),
            faults: if laden {
                50
            } else if calm {
                0
            } else {
                rng.pick(&[3, 10, 30])
            },
            oddities: if calm { 0 } else { rng.pick(&[0, 20, 80]) },
            short_writes: rng.pick(&[0, 100, 500]),
            offering: 0,
            kernel_bytes: rng.pick(&[90, 300, 1_000, 8_000, 100_000]),
            // A client that reconnects for each batch cannot receive much in time.
            drained: rng.chance(80) && !laden,
            padding_bytes: rng.pick(&[0, 10, 200, 2_000]),
            long: match (laden, tight) {
                (true, _) => 800,
                // A message that a tight outbox can never take ends the session, whatever the policy is.
                (_, true) => rng.pick(&[0, 0, 0, 20]),
                _ => rng.pick(&[0, 0, 20, 200]),
            },
            laden,
            feeds: if laden { 0 } else { rng.pick(&[0, 0, 0, 0, 8, 60]) },
            sip_bytes: rng.pick(&[0, 0, 0, 60, 2_000]),
            chains: rng.pick(&[0, 0, 1, 2]),
            rush: false,
            crowded: rng.chance(150),
            users: users(rng, &mut apart, laden),
            lateness: rng.pick(&[0, 0, 50, 300]),
            durable: false,
            keeping: rng.pick(&[20, 100, 500]),
            segment_bytes: rng.pick(&[2_000, 20_000, 1 << 20]),
            restarts: Vec::new(),
        }
        .with_feeds()
        .with_restarts(rng)
        .with_rush(&mut apart)
        .with_compression(&mut apart)
    }

    /// In some runs clients have more requests than may be held.
    fn with_rush(mut self, rng: &mut Rng) -> Scenario {
        if !self.laden && rng.chance(150) {
            self.rush();
            for settings in &mut self.settings {
                settings.held_requests_max = rng.pick(&[1, 4, 16, 16]);
                settings.held_requests_per_address_max = rng.pick(&[1, 8, 20_000]);
            }
        }
        self
    }

    /// In some runs rules compress, and the clients of some WebSockets take that.
    fn with_compression(mut self, rng: &mut Rng) -> Scenario {
        self.offering = rng.pick(&[0, 0, 500, 1_000]);
        if self.offering > 0 {
            // Short messages get no shorter.
            self.padding_bytes = self.padding_bytes.max(rng.pick(&[200, 2_000]));
        }
        for settings in self.settings.iter_mut().filter(|_| self.offering > 0) {
            settings.compress_bytes_min = rng.pick(&[0, 100, 256]);
            settings.channels.iter_mut().for_each(|rule| rule.compress = rng.chance(700));
        }
        self
    }

    /// All rules compress what gets shorter by that, and the clients of half of the WebSockets take it, in whole frames.
    pub(crate) fn compress(&mut self) {
        (self.offering, self.padding_bytes) = (500, 2_000);
        (self.kernel_bytes, self.short_writes, self.sip_bytes) = (100_000, 0, 0);
        for settings in &mut self.settings {
            settings.compress_bytes_min = 0;
            settings.channels.iter_mut().for_each(|rule| rule.compress = true);
        }
    }

    /// Clients have more requests than may be held.
    pub(crate) fn rush(&mut self) {
        (self.rush, self.chains) = (true, RUSH);
        self.settings.iter_mut().for_each(|settings| settings.held_requests_max = RUSH * 4 / 5);
    }

    /// No other rule may drop the messages of feeds from the outbox that they share.
    pub(crate) fn with_feeds(mut self) -> Scenario {
        let rules = self.settings.iter_mut().flat_map(|settings| &mut settings.channels);
        for rule in rules.filter(|rule| self.feeds > 0 && rule.slow_consumer == SlowConsumer::DropOldest) {
            rule.slow_consumer = SlowConsumer::KeepLatest;
        }
        self
    }

    fn with_restarts(mut self, rng: &mut Rng) -> Scenario {
        self.durable = rng.chance(400);
        if self.durable {
            // The wall clock jumps by hours: messages younger than a day are certainly retained.
            let history_ms = rng.pick(&[500, 0, DAY_MS, DAY_MS, DAY_MS]);
            self.settings.iter_mut().for_each(|settings| settings.channels[PAST_RULE].history_ms = history_ms);
            let count = rng.below(4);
            let stops = [Stop::Clean, Stop::Clean, Stop::Killed, Stop::PowerLoss];
            // Not when the server is about to drain permanently.
            self.restarts = (0..count).map(|_| (rng.below(self.steps * 8 / 10), rng.pick(&stops))).collect();
            // A loss of power follows soon after a kill: only that shows which data of the system's cache the disk
            // does not have.
            for (at, stop) in self.restarts.clone() {
                if stop == Stop::Killed && rng.chance(500) {
                    self.restarts.push((at + 1 + rng.below(SOON_STEPS), Stop::PowerLoss));
                }
            }
        }
        self
    }

    /// Ends the server in these ways in the middle of the run, in quick succession.
    pub fn end(&mut self, stops: &[Stop]) {
        self.durable = true;
        self.restarts = (self.steps / 2..).step_by(SOON_STEPS).zip(stops.iter().copied()).collect();
        self.settings.iter_mut().for_each(|settings| settings.channels[PAST_RULE].history_ms = DAY_MS);
    }

    /// A channel to publish on.
    pub fn channel(&self, rng: &mut Rng) -> &'static str {
        self.preferred(rng).unwrap_or_else(|| rng.pick(&CHANNELS))
    }

    /// A name to subscribe to.
    pub fn subscription(&self, rng: &mut Rng) -> &'static str {
        if self.feeds > 0 && rng.chance(400) {
            return "/keep/*";
        }
        if self.crowded && rng.chance(500) {
            return rng.pick(&PRESENT);
        }
        self.preferred(rng).unwrap_or_else(|| rng.pick(&SUBSCRIPTIONS))
    }

    /// The main channel of the run, if it has one. In a tight outbox messages of other channels soon end a session.
    fn preferred(&self, rng: &mut Rng) -> Option<&'static str> {
        match (rng.below(1_000), self.outboxes_are_tight()) {
            (0..700, _) if self.laden => Some(rng.pick(&HISTORY_CHANNELS)),
            (0..700, true) => Some(rng.pick(&DROPPED)),
            (0..300, _) if self.durable => Some(rng.pick(&HISTORY_CHANNELS)),
            _ => None,
        }
    }

    /// The time for which a history retains a message, in milliseconds.
    pub fn history_age_max_ms(&self) -> u64 {
        self.settings[0].channels[PAST_RULE].history().map_or(0, |terms| terms.age_max_ms)
    }

    /// True if a channel has presence in this run.
    pub(crate) fn has_presence(&self) -> bool {
        self.settings.iter().any(|settings| settings.channels[TREE_RULE].presence)
    }

    /// True if an outbox has room for only a few messages.
    pub fn outboxes_are_tight(&self) -> bool {
        self.settings[0].outbox_bytes_max < 1 << 20
    }

    /// True if a response has room for only a message or two.
    pub fn responses_are_small(&self) -> bool {
        self.settings.iter().any(|settings| settings.response_bytes_max.min(settings.responses_bytes_max) < 1 << 16)
    }

    /// True if a session may end for holding too much.
    pub fn sessions_end_slow(&self) -> bool {
        self.outboxes_are_tight() || self.settings[0].sessions_bytes_max < 1 << 30
    }

    /// True if messages may leave histories for want of room.
    pub fn history_is_tight(&self) -> bool {
        self.settings[0].history_bytes_max < 1 << 28
    }
}

fn settings(rng: &mut Rng, shards: usize, tight: bool, plan: impl Fn(&mut Rng) -> Settings) -> Settings {
    let slow_consumer_bytes = rng.pick(&[0, 0, 1, 300, 3_000]);
    let rule = |pattern: &str, slow_consumer, lazy, lazy_timeout_ms| ChannelRule {
        pattern: pattern.into(),
        slow_consumer,
        slow_consumer_bytes,
        lazy,
        lazy_timeout_ms,
        ..ChannelRule::default()
    };
    let timeout_ms = rng.between(200, 2_000);
    let plan = plan(rng);
    Settings {
        shards,
        timeout_ms,
        interval_ms: if rng.chance(200) { rng.between(1, 100) } else { 0 },
        max_interval_ms: rng.between(600, 3_000),
        client_interval_max_ms: 5_000,
        lazy_timeout_max_ms: rng.between(50, 800),
        handshake_timeout_ms: rng.between(300, 2_000),
        stream_heartbeat_ms: timeout_ms / 3,
        stream_max_ms: if timeout_ms.is_multiple_of(3) { timeout_ms } else { 0 },
        websocket_idle_timeout_ms: if rng.chance(200) { rng.between(2_500, 6_000) } else { 0 },
        drain_spread_ms: rng.between(0, 500),
        broadcast_to_publisher: !rng.chance(200),
        connect_deliver_only: rng.chance(300),
        timestamps: rng.chance(200),
        activity_timeout_ms: if rng.chance(50) { rng.between(2_000, 5_000) } else { 0 },
        activity_counts_deliveries: rng.chance(500),
        response_bytes_max: rng.pick(&[256 * 1024, 256 * 1024, 2_000]),
        responses_bytes_max: rng.pick(&[256 * 1024 * 1024, 256 * 1024 * 1024, 20_000]),
        browser_sessions_max: rng.pick(&[-1, 1, 1, 2]),
        browser_surplus_interval_ms: rng.pick(&[0, 50, 200]),
        trust_client_session: rng.chance(200),
        channels: vec![
            rule("/drop/**", SlowConsumer::DropOldest, false, 0),
            rule("/keep/**", SlowConsumer::KeepLatest, false, 0),
            rule(
                "/lazy/**",
                rng.pick(&[SlowConsumer::Disconnect, SlowConsumer::DropOldest]),
                true,
                rng.pick(&[0, 20, 300]),
            ),
            past(rng, tight),
            ChannelRule {
                pattern: "/a/**".into(),
                presence: rng.chance(500),
                subscribers_max: plan.user_sessions_max / 2,
                messages_per_s_max: plan.session_messages_per_s_max * 2,
                ..ChannelRule::default()
            },
        ],
        in_process_messages_max: rng.pick(&[2, 20, 10_000]),
        in_process_bytes_max: rng.pick(&[2_000, 1 << 24, 1 << 24]),
        presence_grace_ms: rng.pick(&[0, 200, 1_500]),
        presence_interval_ms: rng.pick(&[0, 100, 500]),
        presence_members_max: rng.pick(&[2, 1_000, 1_000]),
        presence_bytes_max: rng.pick(&[600, 1 << 20, 1 << 20, 1 << 20]),
        auth_expiry_notice_ms: rng.pick(&[0, 100, 1_000]),
        history_commit: rng.pick(&[
            HistoryCommit::Always,
            HistoryCommit::Always,
            HistoryCommit::Interval,
            HistoryCommit::Os,
        ]),
        history_commit_interval_ms: rng.between(1, 500),
        history_bytes_max: rng.pick(&[shards * 1_000_000, 1 << 28]),
        subscriptions_max: rng.pick(&[4, 1_000]),
        decision_timeout_ms: rng.between(50, 1_500),
        call_timeout_ms: rng.between(50, 1_500),
        channels_max: rng.pick(&[4, 1_000, 1_000]),
        mailbox_bytes_max: rng.pick(&[1, 1_000, 8 << 20, 8 << 20]),
        outbox_messages_max: if tight { rng.between(2, 20) as usize } else { 100_000 },
        // With less than a gigabyte, waiting messages are packed now and then, and sessions end for holding much.
        sessions_bytes_max: if timeout_ms.is_multiple_of(8) {
            shards * 80_000
        } else {
            [1 << 30, 1 << 22][timeout_ms as usize % 2]
        },
        outbox_bytes_max: if tight { rng.pick(&[1_024, 4_000]) } else { 16 << 20 },
        ..plan
    }
}

/// The transport with which each client starts, and the browser of which it is a window.
fn clients(rng: &mut Rng, laden: bool) -> Vec<(Transport, usize)> {
    let count = 2 + rng.below(if laden { 2 } else { 5 });
    let client = |client| {
        let transport = match rng.below(10) {
            0..5 => Transport::WebSocket,
            5..9 => Transport::LongPolling,
            _ => Transport::CallbackPolling,
        };
        (transport, if rng.chance(150) { 0 } else { client })
    };
    (0..count).map(client).collect()
}

/// The users of a run.
fn users(rng: &mut Rng, apart: &mut Rng, laden: bool) -> Vec<Claims> {
    let count = if laden { 0 } else { rng.pick(&[0, 0, 1, 3]) };
    (0..count).map(|_| Claims::some(apart)).collect()
}

/// Limits on the sessions, subscriptions and messages of clients.
fn limits(rng: &mut Rng) -> Settings {
    Settings {
        user_sessions_max: rng.pick(&[0, 0, 2, 5]),
        user_subscriptions_max: rng.pick(&[0, 0, 6]),
        all_subscriptions_max: rng.pick(&[0, 0, 0, 12]),
        session_messages_per_s_max: rng.pick(&[0, 0, 0, 5]),
        user_bytes_per_s_max: rng.pick(&[0, 0, 0, 2_000]),
        user_handshakes_per_s_max: rng.pick(&[0, 0, 0, 2]),
        ..Settings::default()
    }
}

/// The rule for channels with a history. One event adds at most ten messages to a channel, so all of them are
/// visible.
fn past(rng: &mut Rng, tight: bool) -> ChannelRule {
    ChannelRule {
        pattern: "/past/**".into(),
        slow_consumer: rng.pick(&[SlowConsumer::Disconnect, SlowConsumer::DropOldest, SlowConsumer::KeepLatest]),
        slow_consumer_bytes: rng.pick(&[0, 0, 1, 500, 3_000]),
        lazy: rng.chance(100),
        // A tight outbox takes one message at a time: the backlog at the end must be small.
        history_messages: if tight { 12 } else { rng.pick(&[12, 40, 1_000]) },
        history_ms: rng.pick(&[0, 0, 500, 5_000]),
        ..ChannelRule::default()
    }
}

/// The lengths of long publications, in bytes: a WebSocket batch holds at most 60,000, a chunk of the arena 32,768.
pub const LONG_BYTES: [usize; 3] = [9_000, 20_000, 40_000];
/// The index of the rule for the channels with presence and limits.
pub const TREE_RULE: usize = 4;
/// Steps between two ends of the server in quick succession.
const SOON_STEPS: usize = 40;
/// Channels of which a full outbox drops messages, or leaves them to a history, instead of ending its session.
const DROPPED: [&str; 5] = ["/drop/x", "/keep/x", "/past/a", "/past/a", "/past/a"];
/// The names to which clients subscribe.
pub const SUBSCRIPTIONS: [&str; 16] = [
    "/a", "/a/b", "/a/b/c", "/lazy/x", "/drop/x", "/keep/x", "/a/*", "/a/**", "/**", "/*", "/lazy/*", "/past/a",
    "/past/a", "/past/b", "/past/*", "/past/**",
];
/// The clients of which not all may have a held request.
const RUSH: usize = 20;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// The index of that rule.
const PAST_RULE: usize = 3;
