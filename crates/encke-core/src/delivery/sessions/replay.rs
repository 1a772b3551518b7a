//! Replay: a session that asks for past messages gets them from the rings, in small steps.
//!
//! ```text
//!   ring of /a   │ gone │ 41 42 43 44 45 46 47 │ next
//!                              ▲ cursor ──▶    └─ end: from here on the fan-out delivers live messages
//! ```
//!
//! A session has a [`ReplayCursor`] for each channel that it replays. Until the cursor reaches the end of the ring, the
//! fan-out does not push live messages of the channel to the session: they are in the ring. The session's outbox gets a
//! step from the ring whenever it holds nothing urgent, and before each response. A step is queued behind older
//! messages of the same channel. So a replay of a million messages needs no more memory than the outbox, a busy channel
//! does not delay the replay, and live messages of other channels go first. A session that is too slow for live
//! messages falls back to its cursor in the same way.

use std::collections::BTreeSet;

use bayeux::ChannelName;
use bayeux::ext::PositionForm;

use crate::delivery::sessions::cursors::ReplayCursors;
use crate::delivery::sessions::loss::Loss;
use crate::delivery::sessions::patterns::PatternReplay;
use crate::delivery::sessions::withdrawn::Withdrawn;

/// The replay state of a session.
#[derive(Debug, Default)]
pub struct Replay {
    pub(crate) cursors: ReplayCursors,
    /// Patterns of which not all channels have begun.
    pub(crate) patterns: Vec<PatternReplay>,
    /// Losses of whole rings.
    pub(crate) losses: Vec<Loss>,
    /// True if there may be a loss that was not reported yet.
    pub(crate) has_news: bool,
    pub(crate) in_rings: InRings,
    /// The form of the positions in its messages.
    pub(crate) form: PositionForm,
    /// Queued messages to withdraw, until the outbox has been searched for them.
    pub(crate) withdrawn: Option<Box<Withdrawn>>,
    /// The number of batches that wait for a decision about a subscribe with positions.
    pub(crate) undecided: u32,
    /// The number of messages that remained after the last search.
    pub(crate) searched: usize,
    /// The index of the subscription that the next heartbeat begins with.
    pub(crate) beat: usize,
}

/// Records if queued messages may still be in rings. Avoids rescanning a full outbox that has nothing to spill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InRings {
    /// No queued message was ever in a ring.
    #[default]
    None,
    /// All of them have left their rings.
    Gone,
    /// Some may still be in their rings.
    Maybe,
}

impl Replay {
    /// The replay state of a session that was saved by an earlier process.
    pub(crate) fn restored(form: PositionForm, cursors: ReplayCursors, losses: Vec<Loss>) -> Replay {
        let has_news = !losses.is_empty() || cursors.iter().any(|(_, cursor)| cursor.lost.is_some());
        Replay { form, cursors, losses, has_news, in_rings: InRings::Maybe, ..Replay::default() }
    }

    /// True if the client of the session does not speak Bayeux.
    pub(crate) fn is_plain(&self) -> bool {
        self.form == PositionForm::Plain
    }

    /// True if the session receives every channel live.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.cursors.is_empty() && self.patterns.is_empty()
    }

    /// True if a ring may have something for the session.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.cursors.is_behind() || self.has_pages()
    }

    /// True if channels of a pattern are to begin.
    #[inline]
    pub(crate) fn has_pages(&self) -> bool {
        !self.patterns.is_empty() && self.some_pattern_has_pages()
    }

    /// Few sessions have such patterns: each delivery checks only that there are none.
    #[cold]
    #[inline(never)]
    fn some_pattern_has_pages(&self) -> bool {
        self.patterns.iter().any(|own| own.from.is_some())
    }

    /// True if the session gets the messages of this channel from the ring, in a later page of a pattern.
    pub(crate) fn withholds(&self, channel: ChannelName<'_>) -> bool {
        self.patterns.iter().any(|own| own.withholds(channel))
    }

    /// Returns the losses to report with a connect reply; `batch` is the reply's batch number if the session
    /// acknowledges. A loss names a position, so it waits (`waits`) while earlier messages of its channel are queued,
    /// and a later reply reports it. A reply holds one loss per channel, because its JSON keys are channel names. The
    /// next loss of the channel follows when this one has been reported, or confirmed if the session acknowledges.
    pub(crate) fn report_losses(&mut self, batch: Option<u64>, waits: impl Fn(&str) -> bool) -> Vec<Loss> {
        self.has_news = false;
        let mut reported: Vec<Loss> = Vec::new();
        let mut names: BTreeSet<Box<str>> = BTreeSet::new();
        for mut loss in std::mem::take(&mut self.losses) {
            let is_first = names.insert(loss.name.clone());
            if !is_first || waits(&loss.name) {
                self.has_news |= is_first || batch.is_none();
                self.losses.push(loss);
            } else if let Some(batch) = batch {
                loss.reported.get_or_insert(batch);
                reported.push(loss.clone());
                self.losses.push(loss);
            } else {
                reported.push(loss);
            }
        }
        let lost = self.cursors.iter().filter_map(|(name, cursor)| Some((name, cursor, cursor.lost?)));
        for (name, cursor, (from, to)) in lost {
            let is_first = !names.contains(name);
            if is_first && !waits(name) {
                reported.push(cursor.loss(name, from, Some(to)));
            } else {
                self.has_news |= is_first || batch.is_none();
            }
        }
        reported
    }

    /// True if there are losses to report.
    pub(crate) fn has_losses(&self) -> bool {
        !self.losses.is_empty() || self.cursors.iter().any(|(_, cursor)| cursor.lost.is_some())
    }

    /// Removes the losses that the client has confirmed: it has received this batch and all before it.
    pub(crate) fn confirm(&mut self, batch: i64) {
        let before = self.losses.len();
        self.losses.retain(|loss| {
            loss.reported.is_none_or(|reported| i64::try_from(reported).is_ok_and(|reported| reported > batch))
        });
        // The same channel may have another loss.
        self.has_news |= self.losses.len() < before && self.has_losses();
    }

    /// True if there may be a loss that was not reported yet.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }
}
