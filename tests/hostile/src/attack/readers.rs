//! Healthy readers: they read everything at once, and the server must not end them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Arena, Peer, Session};

/// Readers of the same channels, on this thread.
pub struct Readers {
    tasks: Vec<JoinHandle<()>>,
    /// Their progress, so that publishers do not run ahead of them.
    pub progress: Progress,
}

/// The bytes that each reader has read.
#[derive(Clone)]
pub struct Progress(Arc<[AtomicU64]>);

impl Readers {
    /// Opens `count` readers, on a certain shard or on any.
    pub async fn open(arena: Arena, count: usize, shard: Option<usize>, channels: &str) -> io::Result<Readers> {
        let progress = Progress((0..count).map(|_| AtomicU64::new(0)).collect());
        let mut tasks = Vec::new();
        for nth in 0..count {
            let mut session = match shard {
                Some(shard) => Session::open_on(arena, shard, wide()).await?,
                None => Session::open(arena, wide(), "").await?,
            };
            session.subscribe(channels, "").await?;
            let progress = progress.clone();
            tasks.push(tokio::task::spawn_local(async move {
                while let Ok(bytes) = session.socket.skim().await {
                    progress.0[nth].fetch_add(bytes as u64, Ordering::Relaxed);
                }
                // Publishers must not wait for a reader that was ended.
                progress.0[nth].store(u64::MAX, Ordering::Relaxed);
            }));
        }
        Ok(Readers { tasks, progress })
    }

    /// The number of readers ended, and of all; none if none was.
    pub fn ended(&self) -> Option<String> {
        let ended = self.tasks.iter().filter(|task| task.is_finished()).count();
        (ended > 0).then(|| format!("{ended} of {} healthy readers were ended", self.tasks.len()))
    }
}

impl Progress {
    /// Waits until every reader has read `bytes`, or the attack is over.
    pub async fn reach(&self, arena: Arena, bytes: u64) {
        while !arena.is_over() && self.0.iter().any(|read| read.load(Ordering::Relaxed) < bytes) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A reader with the largest receive buffer the system allows, so that a machine that halts the reader does not make
/// it slow.
fn wide() -> Peer {
    Peer { receive_bytes: Some(4 << 20), ..Peer::default() }
}

const LOOK_EVERY: Duration = Duration::from_millis(1);
