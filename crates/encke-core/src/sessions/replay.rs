//! Catching up: a session that asked for messages of the past gets them out of the rings, a little at a time.
//!
//! ```text
//!   ring of /a   │ gone │ 41 42 43 44 45 46 47 │ next
//!                              ▲ cursor ──▶    └─ reached: from here on live messages come by the fan-out
//! ```
//!
//! For each channel that it is behind with a session has a [`ReplayCursor`]. While its cursor has not reached the end, live messages of
//! the channel are not pushed to it: they are in the ring. Its outbox gets a step out of the ring whenever nothing urgent waits in it,
//! and before each response, behind what waits: of this channel that has lower numbers. So a replay of a million messages takes no
//! more memory than its outbox does, a busy channel does not hold it up, and everybody else's live messages go first. A session
//! that is too slow for live messages falls back to its cursor in the same way.

use std::collections::BTreeSet;

use crate::sessions::cursors::ReplayCursors;
use crate::sessions::loss::Loss;
use crate::sessions::withdrawn::Withdrawn;

/// What a session has to catch up with.
#[derive(Debug, Default)]
pub struct Replay {
    pub(crate) cursors: ReplayCursors,
    /// What it has lost with a whole ring.
    pub(crate) losses: Vec<Loss>,
    /// Whether something may be lost of which nothing was told yet.
    pub(crate) has_news: bool,
    pub(crate) in_rings: InRings,
    /// Whether it is on the shard's list of those who catch up.
    pub(crate) listed: bool,
    /// What waits and must not come any more, until all that waits has been searched for it.
    pub(crate) withdrawn: Option<Box<Withdrawn>>,
    /// Messages that the last search left.
    pub(crate) searched: usize,
    /// Whether it is on one of the shard's lists of those who wait for a search.
    pub(crate) awaits_search: bool,
    /// The subscription that the next heartbeat begins with.
    pub(crate) beat: usize,
}

/// What is known of the messages in an outbox that were in rings once: so that a full one is not searched without result, again and
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InRings {
    /// There are none.
    #[default]
    None,
    /// They have left their rings.
    Gone,
    /// They may be there still.
    Maybe,
}

impl Replay {
    /// Of an earlier life of the server.
    pub(crate) fn restored(cursors: ReplayCursors, losses: Vec<Loss>) -> Replay {
        let has_news = !losses.is_empty() || cursors.iter().any(|(_, cursor)| cursor.lost.is_some());
        Replay { cursors, losses, has_news, in_rings: InRings::Maybe, ..Replay::default() }
    }

    /// What is lost with a whole ring and has to be told still.
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Whether everything comes live.
    pub fn is_live(&self) -> bool {
        self.cursors.is_empty()
    }

    /// The losses that go with a connect reply, in the batch of this number if the session acknowledges. A loss names a position, so one
    /// `waits` while earlier messages of its channel do: a later reply has it. A reply has one loss of each channel, as they stand under
    /// its name; the next one follows when this one was told, or confirmed if the session acknowledges.
    pub(crate) fn tell_losses(&mut self, batch: Option<u64>, waits: impl Fn(&str) -> bool) -> Vec<Loss> {
        self.has_news = false;
        let mut told: Vec<Loss> = Vec::new();
        let mut names: BTreeSet<Box<str>> = BTreeSet::new();
        for mut loss in std::mem::take(&mut self.losses) {
            let is_first = names.insert(loss.name.clone());
            if !is_first || waits(&loss.name) {
                self.has_news |= is_first || batch.is_none();
                self.losses.push(loss);
            } else if let Some(batch) = batch {
                loss.told.get_or_insert(batch);
                told.push(loss.clone());
                self.losses.push(loss);
            } else {
                told.push(loss);
            }
        }
        let lost = self.cursors.iter().filter_map(|(name, cursor)| Some((name, cursor, cursor.lost?)));
        for (name, cursor, (from, to)) in lost {
            let is_first = !names.contains(name);
            if is_first && !waits(name) {
                told.push(cursor.loss(name, from, Some(to)));
            } else {
                self.has_news |= is_first || batch.is_none();
            }
        }
        told
    }

    /// Whether there are losses to tell.
    pub(crate) fn has_losses(&self) -> bool {
        !self.losses.is_empty() || self.cursors.iter().any(|(_, cursor)| cursor.lost.is_some())
    }

    /// The client has received this batch and all before it.
    pub(crate) fn confirm(&mut self, batch: i64) {
        let before = self.losses.len();
        self.losses.retain(|loss| loss.told.is_none_or(|told| i64::try_from(told).is_ok_and(|told| told > batch)));
        // There may be another one of the same channel.
        self.has_news |= self.losses.len() < before && self.has_losses();
    }

    /// Whether something may be lost of which nothing was told yet.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }
}
