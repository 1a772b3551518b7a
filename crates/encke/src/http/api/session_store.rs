//! The store of a cluster's sessions: its operations and their responses.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use encke_cluster::KeyFailure;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::link::{Link, StoreReport, StoreTask};
use crate::cluster::store_numbers::StoreNumbers;

use super::call::{Answer, Call, going_away};
use super::problem::{Kind, Problem};

/// The store of a cluster's sessions.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionStoreInfo<'a> {
    /// The store with its address.
    pub(super) store: &'a str,
    /// The number of sessions that nodes have, or had when they ended without notice.
    pub(super) valid: u64,
    /// The number of sessions that have ended and are not deleted yet.
    pub(super) invalid: u64,
    /// Sessions that this node has written since its start.
    pub(super) written: u64,
    /// Writes of this node that were refused, because another write came first.
    pub(super) conflicts: u64,
    /// Reads and writes of this node that have failed. They are tried again.
    pub(super) failed: u64,
    /// Scavenges of this node.
    pub(super) scavenges: u64,
    /// Sessions that they have ended.
    pub(super) scavenged: u64,
    /// Sessions that this node has deleted.
    pub(super) purged: u64,
}

/// The outcome of a scavenge or a purge.
#[derive(Serialize, JsonSchema)]
pub(super) struct Upkeep {
    /// The number of sessions that were ended, or deleted.
    pub(super) sessions: u64,
}

pub(super) async fn info(call: &Call<'_>) -> Result<Answer, Problem> {
    let (link, numbers) = store_of(call)?;
    let StoreReport { valid, invalid } = done(link.ask_store(StoreTask::Count).await)?;
    Ok(Answer::new(&SessionStoreInfo {
        store: &numbers.name,
        valid,
        invalid,
        written: numbers.written.load(Relaxed),
        conflicts: numbers.conflicts.load(Relaxed),
        failed: numbers.failed.load(Relaxed),
        scavenges: numbers.scavenges.load(Relaxed),
        scavenged: numbers.scavenged.load(Relaxed),
        purged: numbers.purged.load(Relaxed),
    }))
}

pub(super) async fn scavenge(call: &Call<'_>) -> Result<Answer, Problem> {
    let (link, _) = store_of(call)?;
    Ok(Answer::new(&Upkeep { sessions: done(link.ask_store(StoreTask::Scavenge).await)? }))
}

pub(super) async fn purge(call: &Call<'_>) -> Result<Answer, Problem> {
    let (link, _) = store_of(call)?;
    Ok(Answer::new(&Upkeep { sessions: done(link.ask_store(StoreTask::Purge).await)? }))
}

fn store_of<'a>(call: &'a Call<'_>) -> Result<(&'a Link, &'a StoreNumbers), Problem> {
    let link = call.connection.node.server().cluster.as_deref();
    let store = link.and_then(|link| Some((link, link.store().map(Arc::as_ref)?)));
    let none = "there is no store of sessions: those of a cluster are keys of its engine, which expire by themselves after \
                session_record_ttl_ms";
    store.ok_or_else(|| Problem::new(Kind::NOT_FOUND, none))
}

fn done<T>(outcome: Option<Result<T, KeyFailure>>) -> Result<T, Problem> {
    let failed = |error: KeyFailure| Problem::new(Kind::BUSY, format!("the store of sessions: {error}"));
    outcome.ok_or_else(going_away)?.map_err(failed)
}
