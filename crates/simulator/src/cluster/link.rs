//! The connections between nodes and the engine: commands, events, breaks.

use bytes::Bytes;
use encke_cluster::{Command, Event, Expected, KeyAnswer, KeyFailure, RequestFailure};

use super::engine::Conn;
use super::sabotage::ClusterSabotage;
use super::{Cluster, What};

impl Cluster {
    /// A node gives the engine a command.
    pub(super) fn command(&mut self, node: usize, command: Command) {
        let link = &mut self.nodes[node].link;
        match &command {
            Command::Subscribe { key, subject } | Command::Listen { key, subject } => {
                link.subscriptions.insert(*key, subject.clone());
            }
            Command::Unsubscribe { key } => _ = link.subscriptions.remove(key),
            Command::Watch { bucket, prefix } => link.watches.push((bucket.clone(), prefix.clone())),
            Command::Request { number, .. } => _ = link.requests.insert(*number),
            Command::Get { number, .. }
            | Command::Put { number, .. }
            | Command::Delete { number, .. }
            | Command::Append { number, .. }
            | Command::ReadJournal { number, .. } => {
                link.keys.insert(*number);
            }
            _ => {}
        }
        if !link.is_connected {
            return self.fail(node, &command);
        }
        let conn = link.conn;
        if let Command::Request { number, timeout_ms, .. } = &command {
            let (number, at_ms) = (*number, self.now_ms + timeout_ms);
            let failed = Event::Answered { number, answer: Err(RequestFailure::TimedOut) };
            self.at(at_ms, What::Event(conn, failed));
        }
        let delay_ms = self.delay_ms();
        let link = &mut self.nodes[node].link;
        link.up_ms = link.up_ms.max(self.now_ms + delay_ms);
        let at_ms = link.up_ms;
        self.at(at_ms, What::Command(conn, command));
    }

    /// A command fails, because there is no connection.
    fn fail(&mut self, node: usize, command: &Command) {
        let event = match command {
            Command::Request { number, .. } => Event::Answered { number: *number, answer: Err(RequestFailure::Away) },
            Command::Get { number, .. }
            | Command::Put { number, .. }
            | Command::Delete { number, .. }
            | Command::Append { number, .. }
            | Command::ReadJournal { number, .. } => {
                Event::KeyAnswer { number: *number, answer: Err(KeyFailure::Failed("away".into())) }
            }
            Command::Publish { envelope, .. } => Event::Sent(envelope.len()),
            _ => return,
        };
        self.arrive(node, event);
    }

    /// The time that something takes between a node and the engine, in milliseconds.
    fn delay_ms(&mut self) -> u64 {
        let most_ms = if self.rng.chance(self.faults().delays) { 400 } else { 4 };
        self.rng.between(0, most_ms)
    }

    /// The engine gets a command of a connection.
    pub(super) fn run_command(&mut self, conn: Conn, command: Command) {
        self.note_command(conn, &command);
        match command {
            // The subscriptions of a connection end with it.
            Command::Subscribe { .. } | Command::Listen { .. } if self.node_of(conn).is_none() => {}
            Command::Subscribe { key, subject } | Command::Listen { key, subject } => {
                self.engine.subscribe(conn, key, subject);
            }
            Command::Unsubscribe { key } => self.engine.unsubscribe(conn, key),
            Command::Confirm(number) => self.report(conn, Event::Confirmed(number)),
            Command::Publish { subject, envelope } => self.publish(conn, &subject, envelope.into()),
            Command::Request { number, subject, body, .. } => self.request(conn, number, &subject, body.into()),
            Command::Send { subject, body } => self.send(conn, &subject, body.into()),
            Command::Answer { reply_to, body } => self.answer(&reply_to, body),
            Command::Get { number, bucket, key } => {
                let is_old = self.rng.chance(self.faults().reads_old);
                self.tally.old_reads += u64::from(is_old);
                let answer = self.engine.get(self.now_ms, &bucket, &key, is_old);
                self.answer_key(conn, number, Ok(answer));
            }
            Command::Put { number, bucket, key, value, expected, ttl_ms } => {
                let written = self.put(&bucket, &key, Some(value), expected);
                if let (Ok(KeyAnswer::Written(revision)), Some(ttl_ms)) = (&written, ttl_ms) {
                    let at_ms = self.now_ms + ttl_ms;
                    self.at(at_ms, What::Expire(bucket, key, *revision));
                }
                self.answer_key(conn, number, written);
            }
            Command::Delete { number, bucket, key, expected } => {
                let written = self.put(&bucket, &key, None, expected);
                self.answer_key(conn, number, written);
            }
            Command::Append { number, journal, value, after } => {
                let written = self.engine.append(self.now_ms, &journal, value, after);
                self.answer_key(conn, number, written);
            }
            Command::ReadJournal { number, journal, from } => {
                let answer = self.engine.read_journal(self.now_ms, &journal, from);
                self.tally.journal_values_read +=
                    u64::from(matches!(&answer, KeyAnswer::Values { values, .. } if !values.is_empty()));
                self.answer_key(conn, number, Ok(answer));
            }
            Command::Watch { bucket, prefix } => self.begin_watch(conn, bucket, prefix),
        }
    }

    fn note_command(&mut self, conn: Conn, command: &Command) {
        self.note(|_| match command {
            Command::Subscribe { key, subject } | Command::Listen { key, subject } => {
                format!("connection {conn} subscribes to {subject} as {key}")
            }
            Command::Unsubscribe { key } => format!("connection {conn} ends its subscription {key}"),
            Command::Publish { subject, .. } => format!("connection {conn} publishes on {subject}"),
            Command::Request { number, subject, .. } => format!("connection {conn} asks {subject} as {number:x}"),
            Command::Put { key, expected, .. } => format!("connection {conn} writes {key} at {expected:?}"),
            Command::Append { journal, after, .. } => {
                format!("connection {conn} adds to journal {journal} after {after}")
            }
            Command::ReadJournal { journal, from, .. } => {
                format!("connection {conn} reads journal {journal} from {from}")
            }
            Command::Get { key, .. } => format!("connection {conn} reads {key}"),
            Command::Answer { reply_to, .. } => format!("connection {conn} answers {reply_to}"),
            _ => format!("connection {conn} sends another command"),
        });
    }

    fn publish(&mut self, conn: Conn, subject: &str, envelope: Bytes) {
        self.report(conn, Event::Sent(envelope.len()));
        let mut last = None;
        for (to, _) in self.engine.matching(conn, subject) {
            let mut bytes = envelope.clone();
            if last == Some(to) && self.is_sabotaged(ClusterSabotage::SecondCopy) {
                let mut changed = bytes.to_vec();
                changed[ENVELOPE_NUMBER + 6] ^= 1;
                bytes = changed.into();
            }
            last = Some(to);
            self.report(to, Event::Received(bytes));
        }
    }

    fn request(&mut self, conn: Conn, number: u64, subject: &str, body: Bytes) {
        let Some((to, key)) = self.engine.matching(conn, subject).first().copied() else {
            return self.report(conn, Event::Answered { number, answer: Err(RequestFailure::NoResponders) });
        };
        // Questions if a node is there are small, and have their own row.
        let row = format!("{}{subject}", if body.len() < SMALL_BYTES { "small " } else { "" });
        if self.rng.chance(self.faults().loses_requests) {
            return self.lose_request(conn, &row);
        }
        self.report(to, Event::Asked { key, reply_to: format!("{conn}:{number}:{row}"), body });
    }

    fn answer(&mut self, reply_to: &str, answer: Bytes) {
        let mut parts = reply_to.splitn(3, ':');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (Some(conn), Some(number), Some(row)) = (number(), number(), parts.next()) else { return };
        if self.rng.chance(self.faults().loses_requests) {
            return self.lose_request(conn, row);
        }
        self.lost_in_row.remove(&(conn, row.to_owned()));
        self.report(conn, Event::Answered { number, answer: Ok(answer) });
    }

    /// A request, or its answer, is lost. After some in a row a node rightly takes another one for gone.
    fn lose_request(&mut self, conn: Conn, row: &str) {
        self.tally.messages_lost += 1;
        let lost = self.lost_in_row.entry((conn, row.to_owned())).or_default();
        *lost += 1;
        if *lost >= LOST_IN_ROW {
            self.is_disturbed();
        }
    }

    fn send(&mut self, conn: Conn, subject: &str, body: Bytes) {
        for (to, key) in self.engine.matching(conn, subject) {
            if self.rng.chance(self.faults().loses) {
                self.tally.messages_lost += 1;
                continue;
            }
            if self.rng.chance(self.faults().doubles) {
                self.tally.messages_doubled += 1;
                let at_ms = self.now_ms + self.rng.between(0, 3_000);
                self.at(at_ms, What::Event(to, Event::Notified { key, body: body.clone() }));
            }
            self.report(to, Event::Notified { key, body: body.clone() });
        }
    }

    fn answer_key(&mut self, conn: Conn, number: u64, answer: Result<KeyAnswer, KeyFailure>) {
        self.tally.conflicts += u64::from(answer == Err(KeyFailure::Conflict));
        if self.rng.chance(self.faults().forgets_answer) {
            let at_ms = self.now_ms + 2_000;
            let answer = Err(KeyFailure::Failed("no answer".into()));
            return self.at(at_ms, What::Event(conn, Event::KeyAnswer { number, answer }));
        }
        // Answers about keys come in any order.
        let at_ms = self.now_ms + self.delay_ms();
        self.at(at_ms, What::Event(conn, Event::KeyAnswer { number, answer }));
    }

    fn put(
        &mut self,
        bucket: &str,
        key: &str,
        value: Option<Bytes>,
        expected: Expected,
    ) -> Result<KeyAnswer, KeyFailure> {
        let written = self.engine.put(self.now_ms, (bucket, key), value.clone(), expected);
        if let Ok(KeyAnswer::Written(revision)) = written {
            self.changed(bucket, key, revision, value);
        }
        written
    }

    fn changed(&mut self, bucket: &str, key: &str, revision: u64, value: Option<Bytes>) {
        for (conn, _) in self.engine.watching(bucket, key) {
            let (bucket, key, value) = (bucket.to_owned(), key.to_owned(), value.clone());
            self.report_watch(conn, Event::KeyChanged { bucket, key, revision, value });
        }
    }

    /// The time of a key is over.
    pub(super) fn expire(&mut self, bucket: &str, key: &str, revision: u64) {
        if self.engine.expire(bucket, key, revision) {
            self.changed(bucket, key, revision + 1, None);
        }
    }

    fn begin_watch(&mut self, conn: Conn, bucket: String, prefix: String) {
        self.engine.watch(conn, &bucket, &prefix);
        self.report_watch(conn, Event::WatchBegins { bucket: bucket.clone(), prefix: prefix.clone() });
        let mut late = Vec::new();
        for (now, before) in self.engine.keys_of(&bucket, &prefix) {
            let is_old = self.rng.chance(self.faults().reads_old);
            let first = before.filter(|before| is_old && before.2.is_some());
            if first.is_some() {
                self.tally.old_reads += 1;
                late.push(now.clone());
            }
            let (key, revision, value) = first.unwrap_or(now);
            self.report_watch(conn, Event::KeyChanged { bucket: bucket.clone(), key, revision, value });
        }
        self.report_watch(conn, Event::WatchComplete { bucket: bucket.clone(), prefix });
        for (key, revision, value) in late {
            self.report_watch(conn, Event::KeyChanged { bucket: bucket.clone(), key, revision, value });
        }
    }

    /// Reports an event of the data connection, behind those before it.
    fn report(&mut self, conn: Conn, event: Event) {
        let delay_ms = self.delay_ms();
        let Some(node) = self.node_of(conn) else { return };
        let link = &mut self.nodes[node].link;
        link.down_ms = link.down_ms.max(self.now_ms + delay_ms);
        let at_ms = link.down_ms;
        self.at(at_ms, What::Event(conn, event));
    }

    /// Reports an event of a watch, behind those before it.
    fn report_watch(&mut self, conn: Conn, event: Event) {
        let is_late = self.rng.chance(self.faults().reports_late);
        let late_ms = if is_late { self.rng.between(0, 2_000) } else { 0 };
        let delay_ms = self.delay_ms() + late_ms;
        let Some(node) = self.node_of(conn) else { return };
        let link = &mut self.nodes[node].link;
        link.watch_ms = link.watch_ms.max(self.now_ms + delay_ms);
        let at_ms = link.watch_ms;
        self.at(at_ms, What::Event(conn, event));
    }

    /// The node that has a connection now.
    pub(super) fn node_of(&self, conn: Conn) -> Option<usize> {
        let has = |node: &super::node::Node| node.link.is_connected && node.link.conn == conn;
        self.nodes.iter().position(has)
    }

    /// An event of a connection reaches its node, unless the connection is gone.
    pub(super) fn event(&mut self, conn: Conn, event: Event) {
        let Some(node) = self.node_of(conn) else { return };
        let link = &mut self.nodes[node].link;
        let is_awaited = match &event {
            Event::Answered { number, .. } => link.requests.remove(number),
            Event::KeyAnswer { number, .. } => link.keys.remove(number),
            _ => true,
        };
        if is_awaited {
            self.arrive(node, event);
        }
    }

    /// An event waits for the thread of the cluster.
    pub(super) fn arrive(&mut self, node: usize, event: Event) {
        if let Some(machine) = &mut self.nodes[node].machine {
            machine.events.push(event);
            let thread = machine.cluster_thread();
            self.wake(node, thread);
        }
    }

    /// A node connects to the engine, if it can.
    pub(super) fn connect(&mut self, node: usize) {
        let link = &mut self.nodes[node].link;
        if link.is_connected || link.is_cut || !self.engine_is_up || self.nodes[node].machine.is_none() {
            return;
        }
        self.last_conn += 1;
        let link = &mut self.nodes[node].link;
        (link.conn, link.is_connected) = (self.last_conn, true);
        (link.up_ms, link.down_ms, link.watch_ms) = (self.now_ms, self.now_ms, self.now_ms);
        let conn = link.conn;
        for (key, subject) in link.subscriptions.clone() {
            self.engine.subscribe(conn, key, subject);
        }
        self.note(|_| format!("node {node} connects as {conn}"));
        self.arrive(node, Event::Connected { envelope_bytes_max: 1 << 20 });
        for (bucket, prefix) in self.nodes[node].link.watches.clone() {
            self.begin_watch(conn, bucket, prefix);
        }
        let state = &mut self.nodes[node];
        (state.steady_ms, state.link.made_ms) = (self.now_ms, self.now_ms.max(state.paused_ms));
    }

    /// The connection of a node to the engine ends. Of the commands on their way some still run.
    pub(super) fn disconnect(&mut self, node: usize) {
        let link = &mut self.nodes[node].link;
        if !std::mem::replace(&mut link.is_connected, false) {
            return;
        }
        link.no_longer_writes(self.now_ms);
        let conn = link.conn;
        let (requests, keys) = (std::mem::take(&mut link.requests), std::mem::take(&mut link.keys));
        self.engine.end(conn);
        let most_ms = self.rng.pick(&[0, 2, 500]);
        self.lost.insert(conn, self.now_ms + self.rng.between(0, most_ms));
        self.note(|_| format!("node {node} loses connection {conn}"));
        self.arrive(node, Event::Disconnected);
        for number in requests {
            self.arrive(node, Event::Answered { number, answer: Err(RequestFailure::Away) });
        }
        for number in keys {
            let answer = Err(KeyFailure::Failed("away".into()));
            self.arrive(node, Event::KeyAnswer { number, answer });
        }
    }
}

/// The position of the number in an envelope: behind the version and the origin.
const ENVELOPE_NUMBER: usize = 9;
/// So many lost requests in a row are a break.
const LOST_IN_ROW: usize = 2;
/// Requests with fewer bytes are small.
const SMALL_BYTES: usize = 8;
