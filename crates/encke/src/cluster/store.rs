//! Stores of the sessions of a cluster, beside the keys of the engine.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use encke_cluster::KeyFailure;
use encke_core::settings;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::SettingsError;

settings! {
    /// The settings of a store of sessions.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SessionStoreSettings;

    "The store of sessions" {
        /// Time between the start of a node and its first scavenge, in milliseconds. A scavenge ends the sessions whose node has been gone for longer
        /// than their clients may stay away.
        scavenge_delay_ms: u64 = 60_000;
        /// Time between the end of a scavenge and the next one, in milliseconds. 0: the node scavenges only by request of the HTTP API.
        scavenge_period_ms: u64 = 60_000;
        /// False: the node purges only by request of the HTTP API. A purge deletes old documents.
        purge: bool = true;
        /// Time between the start of a node and its first purge, and between the end of a purge and the next one, in milliseconds.
        purge_delay_ms: u64 = 60 * 60 * 1_000, positive();
        /// Time after the end of a session from which on a purge deletes it, in milliseconds. A node that was cut off for longer may write a session
        /// again that has ended meanwhile.
        purge_invalid_age_ms: u64 = 24 * 60 * 60 * 1_000;
        /// Time after the last write of a session that has not ended from which on a purge deletes it, in milliseconds: that of a node that is gone.
        /// A session that is in use is written again with its next change. 0: such sessions stay.
        purge_valid_age_ms: u64 = 7 * 24 * 60 * 60 * 1_000;
    }
}

impl SessionStoreSettings {
    /// Checks these settings.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), SettingsError> {
        use encke_core::Declared as _;
        match self.out_of_range().first().copied() {
            Some((setting, value, wanted)) => Err(SettingsError::new(setting.name, value.to_string(), wanted)),
            None => Ok(()),
        }
    }
}

/// A store of the sessions of a cluster in place of the engine's keys, such as MongoDB: all nodes use the same one. Without a store
/// sessions are among the engine's keys.
///
/// A session has an entry with a version, which grows with each write. A write names the version that it expects, so of two nodes
/// that write one session only one succeeds. The node asks again for what has failed, and holds at most one state of each session
/// that waits. Futures run on the thread of the cluster, several at once, and must not block.
///
/// ```
/// use encke::{MemoryStore, SessionStore, StoredSession, SessionWrite};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let store = MemoryStore::default();
/// let write = |expected| SessionWrite { key: "a".into(), expected, session: StoredSession::default() };
/// let first = store.write(&[write(None)]).await.unwrap()[0].clone().unwrap();
/// assert!(store.write(&[write(Some(first))]).await.unwrap()[0].is_ok());
/// assert!(store.write(&[write(Some(first))]).await.unwrap()[0].is_err(), "another write came first");
/// # });
/// ```
pub trait SessionStore: Send + Sync + 'static {
    /// The store with its address, as operators know it, for the log. It shows no secret.
    fn name(&self) -> String;

    /// Ready when the store answers.
    fn ping(&self) -> StoreFuture<'_, ()>;

    /// Reads the entries with these keys, in this order: the version and the record of each. None if there is no entry.
    fn read<'a>(&'a self, keys: &'a [String]) -> StoreFuture<'a, Vec<Option<(u64, Bytes)>>>;

    /// Writes entries, and returns for each, in this order, its new version, or the reason why it was not written. A write is
    /// confirmed when it survives the loss of a machine of the store. An entry that is gone counts as one with the expected version.
    fn write<'a>(&'a self, writes: &'a [SessionWrite]) -> StoreFuture<'a, Vec<Result<u64, KeyFailure>>>;

    /// The nodes that the entries of valid sessions name.
    fn nodes(&self) -> StoreFuture<'_, Vec<String>>;

    /// Ends the valid sessions of a node whose [`StoredSession::idle_max_ms`] is at most this. Each gets the record `ended` and its
    /// next version. Returns their number.
    fn end_sessions<'a>(&'a self, node: &'a str, idle_ms: u64, ended: &'a Bytes) -> StoreFuture<'a, u64>;

    /// Deletes the entries of sessions that ended at least so long ago, in milliseconds, and those of valid sessions whose last write
    /// is at least so old. Returns their number.
    fn purge(&self, invalid_age_ms: u64, valid_age_ms: Option<u64>) -> StoreFuture<'_, u64>;

    /// The numbers of valid sessions, and of those that have ended.
    fn count(&self) -> StoreFuture<'_, (u64, u64)>;
}

/// An answer of a store. A failure of the whole is [`KeyFailure::Failed`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, KeyFailure>> + Send + 'a>>;

/// A write of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWrite {
    /// The key: 32 hexadecimal digits, a hash of the session's id.
    pub key: String,
    /// The version that the entry must have. None: there must be no entry.
    pub expected: Option<u64>,
    /// The new content.
    pub session: StoredSession,
}

/// The content of an entry: the record from which nodes go on with a session, and fields of it that people can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSession {
    /// The record. Only nodes read it.
    pub record: Bytes,
    /// False: the session has ended, and the fields below are empty.
    pub is_valid: bool,
    /// The node that has the session, or had it last.
    pub node: String,
    /// Its user. Empty: anonymous.
    pub user: String,
    /// The attributes that the application has set, as a JSON object.
    pub attributes: String,
    /// The longest time for which its client may stay away, in milliseconds.
    pub idle_max_ms: u64,
}

/// A store in the memory of one process: for the tests of an application, and for several servers in one process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<BTreeMap<String, MemoryEntry>>>);

#[derive(Debug)]
struct MemoryEntry {
    version: u64,
    written: Instant,
    session: StoredSession,
}

impl MemoryStore {
    fn write_one(&self, write: &SessionWrite) -> Result<u64, KeyFailure> {
        let mut entries = self.0.lock();
        let version = match (entries.get(&write.key), write.expected) {
            (Some(entry), expected) if Some(entry.version) != expected => return Err(KeyFailure::Conflict),
            (_, expected) => expected.unwrap_or_default() + 1,
        };
        let entry = MemoryEntry { version, written: Instant::now(), session: write.session.clone() };
        entries.insert(write.key.clone(), entry);
        Ok(version)
    }
}

impl SessionStore for MemoryStore {
    fn name(&self) -> String {
        "memory".into()
    }

    fn ping(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn read<'a>(&'a self, keys: &'a [String]) -> StoreFuture<'a, Vec<Option<(u64, Bytes)>>> {
        let entries = self.0.lock();
        let found = keys.iter().map(|key| entries.get(key).map(|entry| (entry.version, entry.session.record.clone())));
        let found = found.collect();
        Box::pin(async { Ok(found) })
    }

    fn write<'a>(&'a self, writes: &'a [SessionWrite]) -> StoreFuture<'a, Vec<Result<u64, KeyFailure>>> {
        let written = writes.iter().map(|write| self.write_one(write)).collect();
        Box::pin(async { Ok(written) })
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<String>> {
        let entries = self.0.lock();
        let valid = entries.values().filter(|entry| entry.session.is_valid);
        let mut nodes: Vec<String> = valid.map(|entry| entry.session.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Box::pin(async { Ok(nodes) })
    }

    fn end_sessions<'a>(&'a self, node: &'a str, idle_ms: u64, ended: &'a Bytes) -> StoreFuture<'a, u64> {
        let mut count = 0;
        for MemoryEntry { version, written, session } in self.0.lock().values_mut() {
            if session.is_valid && session.node == node && session.idle_max_ms <= idle_ms {
                (*version, *written, count) = (*version + 1, Instant::now(), count + 1);
                *session = StoredSession { record: ended.clone(), ..StoredSession::default() };
            }
        }
        Box::pin(async move { Ok(count) })
    }

    fn purge(&self, invalid_age_ms: u64, valid_age_ms: Option<u64>) -> StoreFuture<'_, u64> {
        let mut entries = self.0.lock();
        let before = entries.len();
        entries.retain(|_, entry| {
            let age_ms = if entry.session.is_valid { valid_age_ms } else { Some(invalid_age_ms) };
            age_ms.is_none_or(|age_ms| entry.written.elapsed() < Duration::from_millis(age_ms))
        });
        let count = (before - entries.len()) as u64;
        Box::pin(async move { Ok(count) })
    }

    fn count(&self) -> StoreFuture<'_, (u64, u64)> {
        let entries = self.0.lock();
        let valid = entries.values().filter(|entry| entry.session.is_valid).count();
        let counts = (valid as u64, (entries.len() - valid) as u64);
        Box::pin(async move { Ok(counts) })
    }
}
