//! The data directory, whose contents survive a restart. It is opened once before the shards run, and held until they
//! have ended.
//!
//! `history/` in it is the log of the histories. Its lock covers the whole directory. `revoked/` is the journal of revoked
//! tokens. `sessions` exists between a clean stop and the next start. `node` has the name of the node in a cluster.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::{Directory, Disk, Opened, replace_file};

use crate::entropy::kernel_entropy;
use crate::error::StartError;
use crate::net::mailboxes::Mailboxes;
use crate::net::outcomes::Outcomes;
use crate::net::store_thread::{self, Inbox};
use crate::revocations::{self, Revocations};
use crate::sessions_file::{self, Found};
use encke_core::history::Room;
use encke_core::{Metrics, NodeTag, Now, Saved, Settings, Shared};
use encke_store::{HistoryStore, Recovered, Recovery, StoreError, StoreOptions};

/// An opened data directory, whose histories have been recovered. While this lives, no other process can open it.
pub(crate) struct Data {
    path: PathBuf,
    revocations: Arc<Revocations>,
    history_store: HistoryStore<Directory>,
}

/// A data directory in use: its store thread runs.
pub(crate) struct DataInUse {
    path: PathBuf,
    revocations: Arc<Revocations>,
    history_store: JoinHandle<HistoryStore<Directory>>,
}

impl Data {
    /// Opens or creates the directory that the settings name, and recovers the histories. None if they name none.
    ///
    /// # Errors
    /// When the directory cannot be used, another process has it, or its contents are damaged.
    pub(crate) fn open(settings: &Settings, shared: &mut Shared, now: Now) -> Result<Option<Data>, StartError> {
        if settings.data.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        let path = PathBuf::from(&settings.data);
        let directory = open_in(&path, HISTORY)?;
        wait_until_free(&directory);
        let mut salt = [0; 8];
        kernel_entropy()(&mut salt);
        let mut recovery = Recovery::new(settings, now);
        let terms = StoreOptions::new(settings);
        let (history_store, opened) = HistoryStore::open(directory, terms, u64::from_le_bytes(salt), &mut recovery)?;
        let recovered = recovery.restore(&shared.histories, Room::of(settings, shared.shards));
        shared.is_durable = true;
        report(&path, &opened, &recovered, began);
        let directory = open_in(&path, revocations::DIRECTORY)?;
        wait_until_free(&directory);
        let revocations = Arc::new(Revocations::open(directory, &shared.revoked, now.wall_ms)?);
        Ok(Some(Data { path, revocations, history_store }))
    }

    /// The journal of revoked tokens.
    pub(crate) fn revocations(&self) -> &Arc<Revocations> {
        &self.revocations
    }

    /// Checks for reasons why the directory could not be opened, as far as they show while another process has it.
    /// Creates the directory if it is missing.
    ///
    /// # Errors
    /// When it cannot be used, or a file of the histories has an unknown beginning.
    pub(crate) fn probe(settings: &Settings) -> Result<(), StartError> {
        if settings.data.is_empty() {
            return Ok(());
        }
        let path = Path::new(&settings.data);
        let history = open_in(path, HISTORY)?;
        journal::probe(&history).map_err(StoreError::Journal)?;
        let revoked = open_in(path, revocations::DIRECTORY)?;
        journal::probe(&revoked).map_err(|error| StartError::Revocations(error.into()))
    }

    /// The name of this node in a cluster, which is the same in each life: its sessions go on with it. The first life gets this new one.
    ///
    /// # Errors
    /// The disk's error.
    pub(crate) fn node_tag(&self, new: NodeTag) -> Result<NodeTag, StartError> {
        let path = self.path.join(NODE);
        let found = std::fs::read_to_string(&path).ok().and_then(|text| NodeTag::parse(text.trim()));
        if let Some(found) = found {
            return Ok(found);
        }
        let written = replace_file(&path, |file| writeln!(file, "{}", new.as_str()));
        written.map_err(|error| StartError::Sessions { path, source: error })?;
        Ok(new)
    }

    /// Saves sessions for the next start.
    pub(crate) fn save_sessions(&self, saved: Saved) {
        let sessions = saved.sessions.len();
        match sessions_file::write(&self.path, saved) {
            Ok(()) => tracing::info!(sessions, "sessions are saved for the next start"),
            Err(error) => {
                let data = self.path.display();
                tracing::error!(%data, %error, sessions, "sessions cannot be saved: their clients must handshake again");
            }
        }
    }

    /// Starts the store thread.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub(crate) fn start(
        self,
        shared: &Arc<Shared>,
        mailboxes: &Mailboxes,
        outcomes: &Arc<Outcomes>,
        metrics: &Arc<Metrics>,
    ) -> Result<(Inbox, DataInUse), StartError> {
        let (shared, mailboxes) = (shared.clone(), mailboxes.clone());
        let started = store_thread::start(self.history_store, shared, mailboxes, outcomes.clone(), metrics.clone());
        let (inbox, history_store) = started.map_err(StartError::Thread)?;
        Ok((inbox, DataInUse { path: self.path, revocations: self.revocations, history_store }))
    }
}

impl DataInUse {
    /// The sessions that the previous process saved, if it ended cleanly.
    ///
    /// # Errors
    /// The disk's error.
    pub(crate) fn sessions(&self, shards: usize, sessions_max: usize) -> Result<Saved, StartError> {
        let found = sessions_file::read(&self.path).map_err(|error| self.unreadable(error))?;
        let mut saved = match found {
            Found::Nothing => return Ok(Saved::default()),
            Found::Damaged(why) => {
                let file = sessions_file::path(&self.path);
                tracing::warn!(file = %file.display(), why, "the file is damaged and was renamed to sessions.damaged: clients must handshake again");
                return Ok(Saved::default());
            }
            Found::Sessions(saved) => saved,
        };
        let all = saved.sessions.len();
        saved.sessions.retain(|session| session.id.shard() < shards);
        saved.sessions.truncate(sessions_max);
        let sessions = saved.sessions.len();
        tracing::info!(sessions, "sessions restored");
        if sessions < all {
            let lost = all - sessions;
            tracing::warn!(
                lost,
                "fewer shards than before, or a lower sessions_max: these clients must handshake again"
            );
        }
        Ok(saved)
    }

    /// Removes the saved sessions: they are restored, so the file is out of date.
    ///
    /// # Errors
    /// The disk's error. The server must then accept no client.
    pub(crate) fn forget_sessions(&self) -> Result<(), StartError> {
        sessions_file::remove(&self.path).map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, source: io::Error) -> StartError {
        StartError::Sessions { path: sessions_file::path(&self.path), source }
    }

    /// Waits until everything is written; the shards have ended before. Dropping the returned value releases the
    /// directory.
    pub(crate) fn close(self) -> Option<Data> {
        self.revocations.close();
        match self.history_store.join() {
            Ok(history_store) => Some(Data { path: self.path, revocations: self.revocations, history_store }),
            Err(_) => {
                tracing::error!("the store thread ended with a panic");
                None
            }
        }
    }
}

/// A directory in the data directory, created if it is missing.
fn open_in(data: &Path, name: &str) -> Result<Directory, StartError> {
    let path = data.join(name);
    Directory::open(&path).map_err(|source| {
        // If the data directory itself is not usable, the error names it.
        let path = if data.is_dir() { path } else { data.into() };
        StartError::Data { path, source }
    })
}

/// Waits a moment for the lock. The kernel closes the files of a killed process one by one, and its sockets may close
/// before its lock is released.
fn wait_until_free(directory: &Directory) {
    let began = Instant::now();
    // Other errors are reported when the directory is opened.
    while matches!(directory.lock(), Ok(None)) && began.elapsed() < LOCK_TIMEOUT {
        std::thread::sleep(LOCK_PAUSE);
    }
}

fn report(path: &Path, opened: &Opened, recovered: &Recovered, began: Instant) {
    for cut in &opened.cut {
        tracing::warn!("{cut}");
    }
    for stranger in &opened.strangers {
        tracing::warn!(file = %stranger.display(), "not a file of the histories; left alone");
    }
    let Recovered { channels, messages, is_clean, left_out, .. } = recovered;
    if *left_out > 0 {
        tracing::warn!(
            left_out,
            "channels on disk have no history any more: no rule gives them one, or history_channels_max is too small"
        );
    }
    let took_ms = began.elapsed().as_millis() as u64;
    tracing::info!(data = %path.display(), channels, messages, is_clean, took_ms, "histories recovered");
}

/// The log of the histories in the data directory.
const HISTORY: &str = "history";
/// The file with the name of the node in a cluster.
const NODE: &str = "node";
/// The time to wait for a data directory that another process has.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which its lock is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
