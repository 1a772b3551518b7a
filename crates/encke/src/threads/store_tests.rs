//! Tests of the store of a node and of its upkeep, with a store in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bytes::Bytes;
use encke_cluster::{Command, Expected, KeyAnswer, KeyFailure};
use encke_core::{NodeTag, Settings};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::store::{NodeStore, StoreEvent, TASKS_MAX};
use super::upkeep::{Upkeep, UpkeepEvent};
use crate::cluster::link::StoreTask;
use crate::cluster::store::{
    MemoryStore, SessionStore, SessionStoreSettings, SessionWrite, StoreFuture, StoredSession,
};
use crate::cluster::store_numbers::StoreNumbers;

/// A store in memory that notes its batches, and fails on demand.
#[derive(Clone, Default)]
struct Watched {
    memory: MemoryStore,
    /// The number of sessions of each batch that was written.
    written: Arc<Mutex<Vec<usize>>>,
    /// The number of keys of each batch that was read.
    read: Arc<Mutex<Vec<usize>>>,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
}

impl Watched {
    fn check(&self) -> Result<(), KeyFailure> {
        assert!(!self.panics.load(SeqCst), "a panic of the store");
        if self.fails.load(SeqCst) { Err(KeyFailure::Failed("no answer".into())) } else { Ok(()) }
    }
}

impl SessionStore for Watched {
    fn name(&self) -> String {
        "test".into()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.check() })
    }

    fn read<'a>(&'a self, keys: &'a [String]) -> StoreFuture<'a, Vec<Option<(u64, Bytes)>>> {
        self.read.lock().push(keys.len());
        Box::pin(async { self.check().and(self.memory.read(keys).await) })
    }

    fn write<'a>(&'a self, writes: &'a [SessionWrite]) -> StoreFuture<'a, Vec<Result<u64, KeyFailure>>> {
        self.written.lock().push(writes.len());
        Box::pin(async {
            self.check()?;
            self.memory.write(writes).await
        })
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<String>> {
        self.memory.nodes()
    }

    fn end_sessions<'a>(&'a self, node: &'a str, idle_ms: u64, ended: &'a Bytes) -> StoreFuture<'a, u64> {
        self.memory.end_sessions(node, idle_ms, ended)
    }

    fn purge(&self, invalid_age_ms: u64, valid_age_ms: Option<u64>) -> StoreFuture<'_, u64> {
        self.memory.purge(invalid_age_ms, valid_age_ms)
    }

    fn count(&self) -> StoreFuture<'_, (u64, u64)> {
        self.memory.count()
    }
}

fn tag(text: &str) -> NodeTag {
    NodeTag::parse(text).expect("a tag")
}

fn started(store: &Watched) -> NodeStore {
    let mut store = unstarted(store);
    store.start();
    store
}

fn unstarted(store: &Watched) -> NodeStore {
    let settings = SessionStoreSettings { scavenge_period_ms: 0, purge: false, ..SessionStoreSettings::default() };
    let numbers = Arc::new(StoreNumbers::new("test".into()));
    NodeStore::new(Arc::new(store.clone()), settings, (Arc::default(), tag("aaaa")), numbers)
}

fn put(number: u64, expected: Expected, bytes: usize) -> Command {
    let (bucket, key) = ("sessions".into(), format!("key-{number}"));
    Command::Put { number, bucket, key, value: vec![0; bytes].into(), expected, ttl_ms: None }
}

/// The next answers, so many of them, by their numbers.
async fn answers(store: &mut NodeStore, count: usize) -> Vec<(u64, Result<KeyAnswer, KeyFailure>)> {
    let mut all = Vec::new();
    while all.len() < count {
        if let StoreEvent::Answer(number, answer) = store.next().await.expect("it runs") {
            all.push((number, answer));
        }
    }
    all.sort_by_key(|(number, _)| *number);
    all
}

#[tokio::test]
async fn commands_go_in_batches_and_each_has_its_answer() {
    let watched = Watched::default();
    let mut store = started(&watched);
    (0..250).for_each(|number| assert_eq!(store.command(put(number, Expected::Absent, 10)), None));
    let written = answers(&mut store, 250).await;
    assert!(
        written
            .iter()
            .enumerate()
            .all(|(at, (number, answer))| { (at as u64, &Ok(KeyAnswer::Written(1))) == (*number, answer) })
    );
    assert_eq!(*watched.written.lock(), [100, 100, 50]);
    // One of them is overtaken.
    store.command(put(7, Expected::Revision(1), 20));
    assert_eq!(answers(&mut store, 1).await, [(7, Ok(KeyAnswer::Written(2)))]);
    store.command(put(7, Expected::Revision(1), 30));
    store.command(put(8, Expected::Revision(1), 30));
    let conflict = [(7, Err(KeyFailure::Conflict)), (8, Ok(KeyAnswer::Written(2)))];
    assert_eq!(answers(&mut store, 2).await, conflict);
    for number in 0..40 {
        store.command(Command::Get { number, bucket: "sessions".into(), key: format!("key-{number}") });
    }
    let found = answers(&mut store, 40).await;
    assert_eq!(found[7].1, Ok(KeyAnswer::Found(Some((2, vec![0; 20].into())))));
    assert_eq!(*watched.read.lock(), [32, 8]);
    let confirm = Command::Confirm(1);
    assert_eq!(store.command(confirm), Some(Command::Confirm(1)), "the engine's");
}

#[tokio::test]
async fn a_batch_has_a_bound_in_bytes() {
    let watched = Watched::default();
    let mut store = started(&watched);
    let bytes = 1024 * 1024;
    (0..10).for_each(|number| assert_eq!(store.command(put(number, Expected::Absent, bytes)), None));
    store.command(put(10, Expected::Absent, 5 * bytes));
    assert_eq!(answers(&mut store, 11).await.len(), 11);
    assert_eq!(*watched.written.lock(), [4, 4, 2, 1], "a large one goes alone");
}

#[tokio::test]
async fn a_store_that_is_away_and_back_is_reported_once_each() {
    let watched = Watched::default();
    let mut store = started(&watched);
    let event = |event: Option<StoreEvent>| match event.expect("it runs") {
        StoreEvent::There => "there".to_owned(),
        StoreEvent::Away(text) => text,
        StoreEvent::Answer(number, Ok(_)) => format!("{number} written"),
        StoreEvent::Answer(number, Err(error)) => format!("{number} {error}"),
        StoreEvent::Upkeep(event) => format!("{event:?}"),
    };
    assert_eq!(event(store.next().await), "there", "the first ping");
    watched.fails.store(true, SeqCst);
    store.command(put(1, Expected::Absent, 10));
    assert_eq!([event(store.next().await), event(store.next().await)], ["1 no answer", "no answer"]);
    store.command(put(2, Expected::Absent, 10));
    assert_eq!(event(store.next().await), "2 no answer");
    watched.fails.store(false, SeqCst);
    store.command(put(3, Expected::Absent, 10));
    let mut last = [event(store.next().await), event(store.next().await)];
    // A ping may come first.
    last.sort();
    assert_eq!(last, ["3 written", "there"]);
}

#[tokio::test]
async fn a_panic_of_the_store_leaves_no_command_without_an_answer() {
    let watched = Watched::default();
    let mut store = started(&watched);
    store.command(put(1, Expected::Absent, 10));
    answers(&mut store, 1).await;
    watched.panics.store(true, SeqCst);
    (2..9).for_each(|number| assert_eq!(store.command(put(number, Expected::Absent, 10)), None));
    assert!(answers(&mut store, 7).await.iter().all(|(_, answer)| matches!(answer, Err(KeyFailure::Failed(_)))));
    watched.panics.store(false, SeqCst);
    store.command(put(9, Expected::Absent, 10));
    assert_eq!(answers(&mut store, 1).await, [(9, Ok(KeyAnswer::Written(1)))]);
}

/// An upkeep whose node finds these nodes gone.
fn upkeep(store: &Watched, gone: &Arc<Mutex<BTreeSet<NodeTag>>>) -> Upkeep {
    let gone = gone.clone();
    let report = move |event| {
        if let UpkeepEvent::Probe(nodes, done) = event {
            assert!(!nodes.contains(&tag("aaaa")), "it does not ask itself");
            let gone = gone.lock();
            done.send(nodes.into_iter().filter(|node| gone.contains(node)).collect()).expect("it waits");
        }
    };
    let (_, tasks) = mpsc::channel(1);
    let settings = SessionStoreSettings { purge_invalid_age_ms: 0, ..SessionStoreSettings::default() };
    let numbers = Arc::new(StoreNumbers::new("test".into()));
    Upkeep::new((Arc::new(store.clone()), settings), tag("aaaa"), numbers, tasks, Box::new(report))
}

#[tokio::test]
async fn a_scavenge_ends_the_sessions_of_nodes_that_are_gone_for_long_enough() {
    let (watched, gone) = (Watched::default(), Arc::<Mutex<BTreeSet<NodeTag>>>::default());
    let write = |key: &str, node: &str, idle_max_ms| {
        let session = StoredSession { is_valid: true, node: node.into(), idle_max_ms, ..StoredSession::default() };
        SessionWrite { key: key.into(), expected: None, session }
    };
    let all =
        [write("own", "aaaa", 0), write("there", "bbbb", 0), write("gone", "cccc", 0), write("long", "cccc", u64::MAX)];
    watched.write(&all).await.expect("written");
    let mut upkeep = upkeep(&watched, &gone);
    assert_eq!(upkeep.scavenge().await, Ok(0), "all nodes are there");
    gone.lock().insert(tag("cccc"));
    assert_eq!(upkeep.scavenge().await, Ok(1));
    assert_eq!(watched.count().await, Ok((3, 1)));
    let since = upkeep.gone_since(tag("cccc")).expect("it is gone");
    assert_eq!((upkeep.scavenge().await, upkeep.gone_since(tag("cccc"))), (Ok(0), Some(since)));
    // A node that comes back begins a new time.
    gone.lock().clear();
    assert_eq!((upkeep.scavenge().await, upkeep.gone_since(tag("cccc"))), (Ok(0), None));
    assert_eq!(upkeep.purge().await, Ok(1));
    assert_eq!(watched.count().await, Ok((3, 0)));
}

#[tokio::test]
async fn requests_for_the_store_wait_in_a_bounded_number_and_those_that_nobody_waits_for_are_skipped() {
    let mut store = unstarted(&Watched::default());
    let ask = |store: &NodeStore| {
        let (done, outcome) = oneshot::channel();
        store.task(StoreTask::Count(done));
        outcome
    };
    let mut waiting: Vec<_> = (0..TASKS_MAX).map(|_| ask(&store)).collect();
    let refused = ask(&store).await.expect("an answer").expect_err("no room");
    assert!(refused.to_string().contains("too many requests"), "{refused}");
    let last = waiting.pop().expect("the last one");
    drop(waiting);
    store.start();
    assert!(last.await.expect("an answer").is_ok());
}

#[test]
fn a_store_needs_a_cluster() {
    let store = crate::Server::builder().session_store(SessionStoreSettings::default(), MemoryStore::default());
    let error = store.settings(Settings::default()).check().expect_err("no cluster").to_string();
    assert!(error.contains("session_store = memory: none without a cluster"), "{error}");
}
