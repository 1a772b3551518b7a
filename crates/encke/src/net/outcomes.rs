//! Requests of handles and of the HTTP API whose outcome comes later: publications that get a position in a history, and
//! removals from one. Each has a token. The shard that owns the history reports the outcome under this token, and the
//! history store reports when it is persisted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use encke_core::{Changed, Persisted, PublishToken, Report};

/// The requests that wait. Messages in the mailboxes and in the store's backlog bound their number.
pub(crate) struct Outcomes {
    numbers: AtomicU64,
    /// None when the server has stopped.
    waiting: Mutex<Option<HashMap<u64, WaitingRequest, RandomState>>>,
}

#[derive(Default)]
struct WaitingRequest {
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

impl Outcome {
    /// True if the messages were not published, because the cluster did not take them: they have no positions.
    pub(crate) fn is_refused(&self) -> bool {
        self.first.is_none() && !self.is_persisted
    }
}

impl Default for Outcomes {
    fn default() -> Outcomes {
        Outcomes { numbers: AtomicU64::default(), waiting: Mutex::new(Some(HashMap::default())) }
    }
}

impl Outcomes {
    /// A new token.
    pub(crate) fn token(&self) -> PublishToken {
        PublishToken { shard: PublishToken::HANDLES, number: self.numbers.fetch_add(1, Ordering::Relaxed) }
    }

    /// Waits for the outcome of a token. Call it before the request can reach its shard. When the server has stopped, the
    /// wait ends at once.
    pub(crate) fn wait(&self, token: PublishToken) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.entry(token.number).or_default().senders.push(sender);
        }
        receiver
    }

    /// Forgets a token whose request has reached no shard.
    pub(crate) fn forget(&self, token: PublishToken) {
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.remove(&token.number);
        }
    }

    /// Ends all waits without an outcome: no shard is left that could report one.
    pub(crate) fn close(&self) {
        *self.waiting.lock() = None;
    }

    /// Notes what a shard reports. The outcome follows with [`Outcomes::settle`].
    pub(crate) fn note(&self, report: Report) {
        let (Report::Recorded(number, ..) | Report::Cleared(number, _) | Report::Changed(number, _)) = report;
        let mut waiting = self.waiting.lock();
        let waiting = waiting.as_mut().and_then(|waiting| waiting.get_mut(&number));
        let Some(WaitingRequest { outcome, .. }) = waiting else { return };
        match report {
            Report::Recorded(_, epoch, first) => outcome.first = Some((epoch, first)),
            Report::Cleared(_, removed) => outcome.removed = removed,
            Report::Changed(_, changed) => outcome.changed = Some(changed),
        }
    }

    /// Answers those who wait for these tokens.
    pub(crate) fn settle(&self, persisted: &[Persisted]) {
        let mut waiting = self.waiting.lock();
        let Some(waiting) = &mut *waiting else { return };
        for Persisted { number, is_persisted } in persisted {
            let Some(WaitingRequest { outcome, senders }) = waiting.remove(number) else { continue };
            for sender in senders {
                // A client that has left does not wait any more.
                let _gone = sender.send(Outcome { is_persisted: *is_persisted, ..outcome.clone() });
            }
        }
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
        assert!(outcomes.waiting.lock().as_ref().is_some_and(HashMap::is_empty), "nothing is left behind");
        let (before, token) = (outcomes.wait(one), outcomes.token());
        outcomes.close();
        for mut waits in [before, outcomes.wait(token)] {
            assert_eq!(
                waits.try_recv(),
                Err(oneshot::error::TryRecvError::Closed),
                "nobody waits for a stopped server"
            );
        }
    }
}
