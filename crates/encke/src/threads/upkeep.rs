//! The upkeep of a store of sessions: scavenges and purges, each after the other, by time and by request.
//!
//! Each node does it: all of it may be done twice. A scavenge ends the sessions of nodes that are gone. It reads no clock of another
//! node, and no time in the store: this node measures for how long the engine has known of nobody with that name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use encke_cluster::{KeyFailure, RecordView};
use encke_core::NodeTag;
use foldhash::fast::RandomState;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use crate::cluster::link::{StoreReport, StoreTask};
use crate::cluster::store::{SessionStore, SessionStoreSettings};
use crate::cluster::store_numbers::StoreNumbers;

/// The task.
pub(super) struct Upkeep {
    store: Arc<dyn SessionStore>,
    settings: SessionStoreSettings,
    own: NodeTag,
    numbers: Arc<StoreNumbers>,
    tasks: mpsc::Receiver<StoreTask>,
    report: Box<dyn Fn(UpkeepEvent) + Send + Sync>,
    /// The times since when nodes are gone.
    gone: HashMap<NodeTag, Instant, RandomState>,
}

/// An event for the thread of the cluster.
#[derive(Debug)]
pub(super) enum UpkeepEvent {
    /// Which of these nodes are gone?
    Probe(Vec<NodeTag>, oneshot::Sender<Vec<NodeTag>>),
    /// A scavenge or a purge by time has failed.
    Failed(String),
}

impl Upkeep {
    pub(super) fn new(
        (store, settings): (Arc<dyn SessionStore>, SessionStoreSettings),
        own: NodeTag,
        numbers: Arc<StoreNumbers>,
        tasks: mpsc::Receiver<StoreTask>,
        report: Box<dyn Fn(UpkeepEvent) + Send + Sync>,
    ) -> Upkeep {
        Upkeep { store, settings, own, numbers, tasks, report, gone: HashMap::default() }
    }

    /// Runs until the server has stopped.
    pub(super) async fn run(mut self) {
        let after = |delay_ms: u64| Instant::now() + Duration::from_millis(delay_ms);
        let SessionStoreSettings { scavenge_delay_ms, scavenge_period_ms, purge, purge_delay_ms, .. } = self.settings;
        let (mut scavenge, mut next_purge) = (after(scavenge_delay_ms), after(purge_delay_ms));
        loop {
            let failed = tokio::select! {
                task = self.tasks.recv() => match task {
                    Some(task) => { self.run_task(task).await; None }
                    None => return,
                },
                () = sleep_until(scavenge), if scavenge_period_ms > 0 => {
                    let failed = self.scavenge().await.err();
                    scavenge = after(scavenge_period_ms);
                    failed
                }
                () = sleep_until(next_purge), if purge => {
                    let failed = self.purge().await.err();
                    next_purge = after(purge_delay_ms);
                    failed
                }
            };
            failed.into_iter().for_each(|error| (self.report)(UpkeepEvent::Failed(error.to_string())));
        }
    }

    async fn run_task(&mut self, task: StoreTask) {
        // Nobody waits for it any more.
        if task.is_abandoned() {
            return;
        }
        // The request may end meanwhile.
        match task {
            StoreTask::Scavenge(done) => _ = done.send(self.scavenge().await),
            StoreTask::Purge(done) => _ = done.send(self.purge().await),
            StoreTask::Count(done) => {
                let counted = self.store.count().await;
                _ = done.send(counted.map(|(valid, invalid)| StoreReport { valid, invalid }));
            }
        }
    }

    /// Ends the sessions whose node has been gone for longer than their clients may stay away.
    pub(super) async fn scavenge(&mut self) -> Result<u64, KeyFailure> {
        let others = self.store.nodes().await?.into_iter().filter_map(|node| NodeTag::parse(&node));
        let others: Vec<NodeTag> = others.filter(|node| *node != self.own).take(NODES_MAX).collect();
        let (done, answer) = oneshot::channel();
        (self.report)(UpkeepEvent::Probe(others, done));
        // Without an answer no node counts as gone.
        let gone = timeout(PROBE_MAX, answer).await.ok().and_then(Result::ok).unwrap_or_default();
        let now = Instant::now();
        self.gone.retain(|node, _| gone.contains(node));
        let (mut count, ended) = (0, RecordView::ended());
        for node in gone {
            let since = *self.gone.entry(node).or_insert(now);
            let idle_ms = now.saturating_duration_since(since).as_millis() as u64;
            let ended = self.store.end_sessions(node.as_str(), idle_ms, &ended).await?;
            self.numbers.scavenged.fetch_add(ended, Relaxed);
            count += ended;
        }
        self.numbers.scavenges.fetch_add(1, Relaxed);
        Ok(count)
    }

    /// Deletes what is old.
    pub(super) async fn purge(&self) -> Result<u64, KeyFailure> {
        let SessionStoreSettings { purge_invalid_age_ms, purge_valid_age_ms, .. } = self.settings;
        let valid_age_ms = (purge_valid_age_ms > 0).then_some(purge_valid_age_ms);
        let count = self.store.purge(purge_invalid_age_ms, valid_age_ms).await?;
        self.numbers.purged.fetch_add(count, Relaxed);
        Ok(count)
    }

    /// The time since when a node is gone.
    #[cfg(test)]
    pub(super) fn gone_since(&self, node: NodeTag) -> Option<Instant> {
        self.gone.get(&node).copied()
    }
}

/// Nodes that one scavenge asks for.
const NODES_MAX: usize = 1_024;
/// The longest wait for the answer which nodes are gone.
const PROBE_MAX: Duration = Duration::from_secs(5);
