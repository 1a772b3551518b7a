//! Witnesses: healthy sessions that must not notice an attack, and the healthy publishers they subscribe to.
//!
//! Every shard has one of each kind: WebSocket and long-polling, with and without `ack`, a WebSocket over HTTP/2, and one over TLS; all
//! over TLS if the attackers speak it. Each has its own channel, on which a publisher (one on WebSocket, one on long-polling) publishes at planned times, however late the previous
//! message left. So latency counts from the planned departure of a message.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use encke_client::{Client, Error, LostReason, PendingPublish, Subscription, Transport};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use crate::attack::{Arena, Session, connect, http2};
use crate::program::Program;
use crate::report::Trip;

/// All witnesses and publishers of one server, on their own thread.
pub struct Witnesses {
    said: watch::Sender<Phase>,
    notes: Arc<Mutex<Notes>>,
    thread: Option<JoinHandle<()>>,
    /// The folder of that thread in `/proc`.
    pub task: PathBuf,
}

/// The task of the publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Publish,
    /// Stop, and wait until all replies have arrived.
    Rest,
    /// Publish once more on each channel, for the n-th time.
    Once(u32),
    End,
}

/// Records of published and received messages.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// One for each witness.
    pub received: Vec<Received>,
    /// Faults: sessions that ended, publications refused, messages lost, doubled or out of order.
    pub faults: Vec<String>,
    /// The number of rests of publishers, over all phases.
    rested: usize,
    is_open: bool,
}

/// The messages one witness has received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its kind and shard.
    pub name: String,
    /// Messages published on its channel.
    pub published: u64,
    /// The messages that arrived.
    pub trips: Vec<Trip>,
    next: u64,
}

impl Witnesses {
    /// Opens all sessions and begins to publish. Times count from `zero`.
    ///
    /// # Errors
    /// A session could not be opened.
    pub fn start(program: &Program, shards: usize, zero: Instant) -> io::Result<Witnesses> {
        let (said, phase) = watch::channel(Phase::Publish);
        let notes = Arc::new(Mutex::new(Notes::default()));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (address, url, tls_url) = (program.address, program.url.clone(), program.tls_url.clone());
        let party = Party { address, url, tls_url, zero, notes: notes.clone(), phase };
        let thread = std::thread::Builder::new().name("witnesses".into()).spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero();
            // The receiver may have given up.
            let _ = ready.send(PathBuf::from(format!("/proc/self/task/{id}")));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => LocalSet::new().block_on(&runtime, party.meet(shards)),
                Err(error) => lock(&party.notes).faults.push(error.to_string()),
            }
        })?;
        let task = is_ready.recv().map_err(io::Error::other)?;
        let witnesses = Witnesses { said, notes, thread: Some(thread), task };
        let opened = crate::program::wait_until(ARRIVAL_LIMIT, || {
            let notes = lock(&witnesses.notes);
            notes.is_open || !notes.faults.is_empty()
        });
        match (opened, witnesses.notes().faults.first()) {
            (Some(_), None) => Ok(witnesses),
            (_, fault) => Err(io::Error::other(format!("no witnesses: {}", fault.map_or("no answer", String::as_str)))),
        }
    }

    /// The records so far.
    pub fn notes(&self) -> Notes {
        lock(&self.notes).clone()
    }

    /// Stops publishing, and waits a bounded time until all publications have arrived.
    pub fn rest(&self) {
        self.say(Phase::Rest, 1);
    }

    /// Publishes once more on each channel, for the `n`th time.
    pub fn live(&self, nth: u32) {
        self.say(Phase::Once(nth), 1 + nth as usize);
    }

    /// Sets the phase, and waits for `rests` of each publisher and for all messages.
    fn say(&self, phase: Phase, rests: usize) {
        self.said.send_replace(phase);
        let all_came = || {
            let notes = lock(&self.notes);
            notes.rested >= rests * PUBLISHERS.len()
                && notes.received.iter().all(|received| received.trips.len() as u64 >= received.published)
        };
        let came = crate::program::wait_until(ARRIVAL_LIMIT, || all_came() || !lock(&self.notes).faults.is_empty());
        let mut notes = lock(&self.notes);
        if came.is_none() {
            notes.note_missing(phase);
        }
    }
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        self.said.send_replace(Phase::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Notes {
    /// The messages that arrived at all witnesses.
    pub fn trips(&self) -> impl Iterator<Item = Trip> {
        self.received.iter().flat_map(|received| received.trips.iter().copied())
    }

    fn note_missing(&mut self, phase: Phase) {
        let missing = |received: &Received| received.published - (received.trips.len() as u64).min(received.published);
        let late: Vec<String> = self
            .received
            .iter()
            .filter(|received| missing(received) > 0)
            .map(|received| format!("{} of {} misses {}", received.name, received.published, missing(received)))
            .collect();
        let what = if late.is_empty() { "a publisher has no answer".into() } else { late.join(", ") };
        self.faults.push(format!("{what} after {} s ({phase:?})", ARRIVAL_LIMIT.as_secs()));
    }

    /// Records a message for a witness.
    fn note(&mut self, index: usize, data: &Value, now: Duration) {
        let Some(received) = self.received.get_mut(index) else { return };
        let (number, planned) = (data["n"].as_u64().unwrap_or(u64::MAX), data["t"].as_u64().unwrap_or_default());
        if number != received.next {
            self.faults.push(format!("{} got message {number} in place of {}", received.name, received.next));
        }
        received.next = number.wrapping_add(1);
        received.trips.push(Trip { left: Duration::from_micros(planned), came: now });
    }
}

/// The state shared by all tasks of the thread.
#[derive(Clone)]
struct Party {
    address: SocketAddr,
    url: String,
    tls_url: String,
    zero: Instant,
    notes: Arc<Mutex<Notes>>,
    phase: watch::Receiver<Phase>,
}

impl Party {
    async fn meet(self, shards: usize) {
        if let Err(error) = self.clone().open(shards).await {
            lock(&self.notes).faults.push(format!("a session could not be opened: {error}"));
        }
    }

    async fn open(mut self, shards: usize) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        for shard in 0..shards {
            for (name, transport, acknowledge) in KINDS {
                let url = if name == OVER_TLS { &self.tls_url } else { &self.url };
                let client = self.client_on(shard, transport, acknowledge, url).await?;
                let index = self.enrol(name, shard);
                let subscription = client.subscribe(&channel(index)).await?;
                tasks.spawn_local(self.clone().witness(subscription, index));
            }
            let index = self.enrol("websocket over HTTP/2", shard);
            let session = self.on_http2(shard, index).await.map_err(|error| Error::ConnectionLost(error.into()))?;
            tasks.spawn_local(self.clone().witness_on_http2(session, index));
        }
        let begin = self.zero.elapsed();
        for (nth, transport) in PUBLISHERS.into_iter().enumerate() {
            let client = self.client(transport, false, &self.url).await?;
            tasks.spawn_local(self.clone().publisher(client, nth, begin));
        }
        lock(&self.notes).is_open = true;
        // Tasks still running when the end is set end with it.
        let _ = self.phase.wait_for(|phase| *phase == Phase::End).await;
        Ok(())
    }

    async fn client(&self, transport: Transport, acknowledge: bool, url: &str) -> Result<Client, Error> {
        // A witness has to report a session that the server ends, or a connection that it breaks.
        let builder =
            Client::builder().transport(transport).ack(acknowledge).reconnect(false).reply_timeout(ARRIVAL_LIMIT);
        builder.accept_any_certificate(true).connect(url).await
    }

    /// Opens a session on a certain shard; the beginning of its id names the shard.
    async fn client_on(
        &self,
        shard: usize,
        transport: Transport,
        acknowledge: bool,
        url: &str,
    ) -> Result<Client, Error> {
        for tries in 0..TRIES {
            let client = self.client(transport, acknowledge, url).await?;
            if client.connected().is_some_and(|session| crate::attack::shard_of(&session.client_id) == Some(shard)) {
                return Ok(client);
            }
            client.disconnect().await?;
            if tries % 2 == 1 {
                // Shards take connections in turn: one more connection, so that clients with two of them do not reach
                // the same shard each time.
                tokio::net::TcpStream::connect(self.address)
                    .await
                    .map_err(|error| Error::ConnectionLost(error.into()))?;
            }
        }
        Err(Error::ConnectionLost(LostReason::Other(format!("no session on shard {shard} in {TRIES} tries"))))
    }

    /// Begins the records of a witness. Returns its number.
    fn enrol(&self, name: &str, shard: usize) -> usize {
        let mut notes = lock(&self.notes);
        let name = format!("{name} on shard {shard}");
        notes.received.push(Received { name, published: 0, trips: Vec::new(), next: 0 });
        notes.received.len() - 1
    }

    /// A session on a WebSocket of HTTP/2, on a certain shard, that subscribes to its channel.
    async fn on_http2(&self, shard: usize, index: usize) -> io::Result<Session> {
        let (address, until) = (self.address, Instant::now() + ARRIVAL_LIMIT);
        let arena = Arena { address, unattacked: address, shards: 0, until };
        for _ in 0..TRIES {
            let socket = http2::websocket(arena, self.url.starts_with("https")).await?;
            let mut session = Session::on(socket, "").await?;
            if crate::attack::shard_of(&session.id) == Some(shard) {
                session.subscribe(&format!("{:?}", channel(index)), "").await?;
                return Ok(session);
            }
        }
        Err(io::Error::other(format!("no session over HTTP/2 on shard {shard} in {TRIES} tries")))
    }

    async fn witness_on_http2(self, mut session: Session, index: usize) {
        let fault = loop {
            let messages = match session.socket.receive().await {
                Ok(text) => serde_json::from_str::<Vec<Value>>(&text).unwrap_or_default(),
                Err(error) => break error,
            };
            let mut connects = false;
            for message in messages {
                connects |= message["channel"] == "/meta/connect";
                if !message["data"].is_null() {
                    lock(&self.notes).note(index, &message["data"], self.zero.elapsed());
                }
            }
            if connects && let Err(error) = session.socket.send(&connect("websocket", &session.id, 20_000)).await {
                break error;
            }
        };
        let mut notes = lock(&self.notes);
        let fault = format!("{} was ended: {fault}", notes.received[index].name);
        notes.faults.push(fault);
    }

    async fn witness(self, mut subscription: Subscription, index: usize) {
        loop {
            let next = subscription.next().await;
            let mut notes = lock(&self.notes);
            let fault = match next {
                Some(Ok(message)) => {
                    notes.note(index, &message.json().unwrap_or_default(), self.zero.elapsed());
                    continue;
                }
                Some(Err(gap)) => gap.to_string(),
                None => format!("was ended: {:?}", *subscription.client().state().borrow()),
            };
            let fault = format!("{} {fault}", notes.received[index].name);
            return notes.faults.push(fault);
        }
    }

    async fn publisher(mut self, client: Client, nth: usize, begin: Duration) {
        if let Err(error) = self.publish(&client, nth, begin).await {
            lock(&self.notes).faults.push(format!("the publisher over {:?} failed: {error}", PUBLISHERS[nth]));
        }
    }

    /// Publishes at planned times during its phase, then rests, then publishes on request.
    async fn publish(&mut self, client: &Client, nth: usize, begin: Duration) -> Result<(), Error> {
        let mut pending = VecDeque::new();
        let mine: Vec<usize> =
            (0..lock(&self.notes).received.len()).filter(|index| publisher_of(*index) == nth).collect();
        let mut planned = begin;
        let mut turn = mine.iter().cycle();
        while *self.phase.borrow() == Phase::Publish {
            planned += EVERY / mine.len() as u32;
            let due = tokio::time::Instant::from_std(self.zero + planned);
            meanwhile(&mut pending, due).await?;
            if let Some(index) = turn.next() {
                pending.push_back(self.say(client, *index, planned).await?);
            }
        }
        loop {
            for reply in pending.drain(..) {
                reply.await?;
            }
            lock(&self.notes).rested += 1;
            let now = *self.phase.borrow();
            let mut phase = self.phase.clone();
            let said = tokio::select! {
                said = phase.wait_for(|phase| *phase != now) => said.map(|phase| *phase),
                ended = client.closed() => return ended,
            };
            match said {
                Ok(Phase::Once(_)) => {
                    for index in &mine {
                        pending.push_back(self.say(client, *index, self.zero.elapsed()).await?);
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    async fn say(&self, client: &Client, index: usize, planned: Duration) -> Result<PendingPublish, Error> {
        let number = {
            let mut notes = lock(&self.notes);
            let received = &mut notes.received[index];
            received.published += 1;
            received.published - 1
        };
        let data = json!({"n": number, "t": planned.as_micros() as u64, "text": PADDING});
        client.start_publish(&channel(index), &data).await
    }
}

/// Takes replies until `due`.
async fn meanwhile(pending: &mut VecDeque<PendingPublish>, due: tokio::time::Instant) -> Result<(), Error> {
    while let Some(reply) = pending.front_mut() {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due) => return Ok(()),
            reply = reply => drop(reply?),
        }
        pending.pop_front();
    }
    tokio::time::sleep_until(due).await;
    Ok(())
}

fn channel(index: usize) -> String {
    format!("/witness/{index}")
}

/// The publisher of a witness's messages: one publisher on one shard, the other on the next.
fn publisher_of(index: usize) -> usize {
    (index + index / WITNESSES_A_SHARD) % PUBLISHERS.len()
}

/// The lists are consistent after every step.
fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

const KINDS: [(&str, Transport, bool); 5] = [
    ("websocket", Transport::WebSocket, false),
    ("websocket with ack", Transport::WebSocket, true),
    ("long-polling", Transport::LongPolling, false),
    ("long-polling with ack", Transport::LongPolling, true),
    (OVER_TLS, Transport::WebSocket, false),
];
/// The kind that speaks TLS in any case.
const OVER_TLS: &str = "websocket over TLS";
/// The kinds, and the one over HTTP/2.
const WITNESSES_A_SHARD: usize = KINDS.len() + 1;
const PUBLISHERS: [Transport; 2] = [Transport::WebSocket, Transport::LongPolling];
/// The interval between the messages of a witness.
const EVERY: Duration = Duration::from_millis(40);
/// A text as long as that of a small message.
const PADDING: &str = "the quick brown fox jumps over the lazy dog, and nobody minds";
/// The time after which a message counts as lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
/// The number of sessions opened in search of one on the requested shard.
const TRIES: usize = 64;
