//! Requests of handles and of the HTTP API whose outcome comes later: publications that get a position in a history, and
//! removals from one. Each has a token. The shard that owns the history reports the outcome under this token, and the
//! history store reports when it is persisted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use encke_core::{Changed, Persisted, PublishToken, Report};

/// The requests that wait. Messages in the mailboxes and in the store's backlog bound their number.
#[derive(Default)]
pub(crate) struct Outcomes {
    numbers: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting, RandomState>>,
}

#[derive(Default)]
struct Waiting {
    outcome: Outcome,
    senders: Vec<oneshot::Sender<Outcome>>,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The epoch of the history and the offset of the first message. None if the channel has no history now.
    pub(crate) first: Option<(Arc<str>, u64)>,
    /// The number of messages that were removed from the history. None if it was no removal, or there is no history.
    pub(crate) removed: Option<usize>,
    /// The outcome of a changed subscription. None if it was none.
    pub(crate) changed: Option<Changed>,
    /// True if it counts as persisted, or nothing is persisted in this server.
    pub(crate) is_persisted: bool,
}

impl Outcomes {
    /// A new token.
    pub(crate) fn token(&self) -> PublishToken {
        PublishToken { shard: PublishToken::HANDLES, number: self.numbers.fetch_add(1, Ordering::Relaxed) }
    }

    /// Waits for the outcome of a token. Call it before the request can reach its shard.
    pub(crate) fn wait(&self, token: PublishToken) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        self.lock().entry(token.number).or_default().senders.push(sender);
        receiver
    }

    /// Notes what a shard reports. The outcome follows with [`Outcomes::settle`].
    pub(crate) fn note(&self, report: Report) {
        let (Report::Recorded(number, ..) | Report::Cleared(number, _) | Report::Changed(number, _)) = report;
        let mut waiting = self.lock();
        let Some(Waiting { outcome, .. }) = waiting.get_mut(&number) else { return };
        match report {
            Report::Recorded(_, epoch, first) => outcome.first = Some((epoch, first)),
            Report::Cleared(_, removed) => outcome.removed = removed,
            Report::Changed(_, changed) => outcome.changed = Some(changed),
        }
    }

    /// Answers those who wait for these tokens.
    pub(crate) fn settle(&self, persisted: &[Persisted]) {
        let mut waiting = self.lock();
        for Persisted { number, is_persisted } in persisted {
            let Some(Waiting { outcome, senders }) = waiting.remove(number) else { continue };
            for sender in senders {
                // A client that has left does not wait any more.
                let _gone = sender.send(Outcome { is_persisted: *is_persisted, ..outcome.clone() });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting, RandomState>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_who_waits_for_a_token_gets_its_outcome_once() {
        let outcomes = Outcomes::default();
        let (one, other) = (outcomes.token(), outcomes.token());
        assert!(one.is_of_handle() && one != other);
        let mut waiting = [outcomes.wait(one), outcomes.wait(one), outcomes.wait(other)];
        outcomes.note(Report::Recorded(one.number, "epoch".into(), 7));
        assert!(waiting[0].try_recv().is_err(), "not persisted yet");
        outcomes.settle(&[Persisted { number: one.number, is_persisted: true }]);
        let outcome = Outcome { first: Some(("epoch".into(), 7)), is_persisted: true, ..Outcome::default() };
        assert_eq!([waiting[0].try_recv(), waiting[1].try_recv()], [Ok(outcome.clone()), Ok(outcome)]);
        outcomes.settle(&[Persisted { number: other.number, is_persisted: false }]);
        assert_eq!(waiting[2].try_recv(), Ok(Outcome::default()));
        assert!(outcomes.lock().is_empty(), "nothing is left behind");
    }
}
