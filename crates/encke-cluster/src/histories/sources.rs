//! The publications of this node for one partition, from the publisher until they are committed.
//!
//! ```text
//!   publishers ── waiting, in turns ──▶ numbered, bounded ──▶ done
//! ```
//!
//! Publishers take turns, so one with many publications that wait delays those of the others by little. Each has its order. A publication gets
//! its number when it is sent for the first time, and has it from then on. What the owner has not committed is sent again: after a second without progress, and to each new owner. The owner
//! drops numbers that it has, so each is stored once.

use std::collections::VecDeque;
use std::sync::Arc;

use encke_core::{PublishToken, SessionOwner, Share, Turns};

use super::entry::{Submission, Term};

/// The publications of this node for one partition.
#[derive(Default)]
pub(super) struct Outbox {
    /// All up to this number are committed.
    done: u64,
    /// Those after it that have their numbers. The last one may be too large to be sent with the others.
    numbered: VecDeque<Waiting>,
    /// Those that have none yet, by their publishers; None: the program.
    waiting: Turns<Option<SessionOwner>, Waiting>,
    /// The number of those that the owner of `term` may have.
    sent: usize,
    sent_bytes: usize,
    term: Option<Term>,
    /// The time of the last progress, in milliseconds.
    moved_ms: u64,
}

/// A publication that is not committed.
pub(super) struct Waiting {
    pub(super) submission: Arc<Submission>,
    /// The publisher that waits for it.
    pub(super) token: Option<PublishToken>,
    /// True if this is all that the publisher waits for, so that it gets the position.
    pub(super) is_whole: bool,
    /// Its part of what may wait. None: a later publication has it.
    pub(super) share: Option<Share<Payer>>,
}

/// The owner of what waits. A channel is inside its publisher: anybody can make channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    /// A user or an address. None: the program.
    Publisher(Option<SessionOwner>),
    /// A publisher on a channel, by a hash of its name.
    Channel(Option<SessionOwner>, u64),
}

impl Outbox {
    /// Adds publications of a user or an address; None: of the program.
    pub(super) fn add(&mut self, publisher: Option<SessionOwner>, waiting: Waiting) {
        self.waiting.push(publisher, waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbered.is_empty() && self.waiting.is_empty()
    }

    /// The last number that is committed.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// An entry of this node is committed. Returns what has waited for it; None if it was committed before.
    pub(super) fn committed(&mut self, now_ms: u64, sequence: u64) -> Option<Waiting> {
        if sequence <= self.done {
            return None;
        }
        self.moved_ms = now_ms;
        self.done += 1;
        debug_assert_eq!(sequence, self.done, "the owner takes them in order");
        if self.sent > 0 {
            self.sent -= 1;
            self.sent_bytes -= self.numbered.front().map_or(0, |waiting| waiting.submission.bytes());
        }
        self.numbered.pop_front()
    }

    /// The owner has everything before this number, and nothing after it.
    pub(super) fn expects(&mut self, number: u64) {
        let sent = number.saturating_sub(self.done + 1);
        if let Ok(sent) = usize::try_from(sent)
            && sent < self.sent
        {
            self.sent = sent;
            self.sent_bytes = self.numbered.iter().take(sent).map(|waiting| waiting.submission.bytes()).sum();
        }
    }

    /// The first number that the owner of this term is to get next, and publications of up to so many bytes, one at least.
    pub(super) fn next(&mut self, now_ms: u64, term: Term, bytes_max: usize) -> Option<(u64, Vec<Arc<Submission>>)> {
        let is_stuck = self.sent > 0 && now_ms >= self.moved_ms + AGAIN_MS;
        if self.term != Some(term) || is_stuck {
            (self.term, self.sent, self.sent_bytes) = (Some(term), 0, 0);
            self.moved_ms = now_ms;
        }
        if self.sent == 0 {
            self.moved_ms = now_ms;
        }
        let first = self.done + 1 + self.sent as u64;
        let (mut next, mut bytes) = (Vec::new(), 0);
        while let Some(submission) = self.unsent() {
            let more = submission.bytes();
            let is_full = self.sent_bytes + more > ON_WAY_BYTES_MAX && self.sent > 0;
            if is_full || (bytes + more > bytes_max && !next.is_empty()) {
                break;
            }
            next.push(submission);
            bytes += more;
            self.sent += 1;
            self.sent_bytes += more;
        }
        (!next.is_empty()).then_some((first, next))
    }

    /// The first publication that the owner does not have.
    fn unsent(&mut self) -> Option<Arc<Submission>> {
        if self.sent == self.numbered.len() {
            self.numbered.extend(self.waiting.pop(|waiting| waiting.submission.bytes() as u64));
        }
        self.numbered.get(self.sent).map(|waiting| waiting.submission.clone())
    }
}

/// Bytes that are on their way to the owner of a partition.
const ON_WAY_BYTES_MAX: usize = 512 * 1024;
/// The time without progress after which publications are sent again, in milliseconds.
const AGAIN_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use encke_core::{Amount, Shares, Side, Urgency};

    use super::*;
    use crate::histories::entry::Content;

    const TERM: Term = Term { seed: 1, number: 1 };

    fn outbox(count: usize) -> Outbox {
        let mut outbox = Outbox::default();
        for number in 0..count {
            let token = PublishToken { shard: 0, number: number as u64 };
            let submission = Submission { channel: "/a".into(), content: Content::Clear };
            let share =
                Shares::default().take_regardless(Payer::Publisher(None), None, Amount::one(1), Urgency::Common);
            let submission = Arc::new(submission);
            outbox.add(None, Waiting { submission, token: Some(token), is_whole: true, share: Some(share) });
        }
        outbox
    }

    fn next(outbox: &mut Outbox, now_ms: u64, term: Term) -> Option<(u64, usize)> {
        outbox.next(now_ms, term, usize::MAX).map(|(first, submissions)| (first, submissions.len()))
    }

    #[test]
    fn what_is_not_committed_is_sent_again_to_a_new_owner_and_after_a_while() {
        let mut outbox = outbox(5);
        assert_eq!((next(&mut outbox, 0, TERM), next(&mut outbox, 0, TERM)), (Some((1, 5)), None));
        let token = outbox.committed(10, 1).and_then(|waiting| waiting.token);
        assert_eq!(token.map(|token| token.number), Some(0));
        assert!(outbox.committed(10, 1).is_none());
        assert_eq!(next(&mut outbox, 10, Term { number: 2, ..TERM }), Some((2, 4)));
        assert_eq!(next(&mut outbox, 1_009, Term { number: 2, ..TERM }), None);
        assert_eq!(next(&mut outbox, 1_010, Term { number: 2, ..TERM }), Some((2, 4)));
        outbox.expects(4);
        assert_eq!(next(&mut outbox, 1_011, Term { number: 2, ..TERM }), Some((4, 2)));
        (2..=5).for_each(|sequence| assert!(outbox.committed(1_012, sequence).is_some()));
        assert!(outbox.is_empty() && outbox.done() == 5 && outbox.sent_bytes == 0);
    }

    #[test]
    fn bytes_on_the_way_have_a_bound() {
        let mut outbox = outbox(10_000);
        let mut sent = 0;
        while let Some((first, submissions)) = outbox.next(0, TERM, 10_000) {
            assert_eq!(first, sent + 1);
            sent += submissions.len() as u64;
        }
        assert!(outbox.sent_bytes <= ON_WAY_BYTES_MAX && sent < 10_000, "{sent}");
        outbox.committed(1, 1);
        assert_eq!(next(&mut outbox, 1, TERM), Some((sent + 1, 1)));
    }

    /// A publication with a token and this number of bytes.
    fn publication(number: u64, bytes: usize) -> Waiting {
        let content =
            Content::Publications { side: Side::Client, except: None, messages: 1, frames: vec![0; bytes].into() };
        let submission = Arc::new(Submission { channel: "/a".into(), content });
        Waiting { submission, token: Some(PublishToken { shard: 0, number }), is_whole: true, share: None }
    }

    #[test]
    fn publishers_take_turns_and_each_has_its_order_and_its_numbers() {
        let (mut outbox, [flood, witness]) = (Outbox::default(), [1, 2].map(|hash| Some(SessionOwner::of(hash))));
        (0..1_000).for_each(|number| outbox.add(flood, publication(number, 4_000)));
        let bytes_max = 64 * 1024;
        let mut sent = Vec::new();
        while let Some((_, submissions)) = outbox.next(0, TERM, bytes_max) {
            sent.extend(submissions);
        }
        (1_000..1_003).for_each(|number| outbox.add(witness, publication(number, 10)));
        // They have the numbers with which they were sent, also for another owner.
        let mut again = Vec::new();
        while let Some((_, submissions)) = outbox.next(0, Term { number: 2, ..TERM }, bytes_max) {
            again.extend(submissions);
        }
        assert!(again.iter().zip(&sent).all(|(again, sent)| Arc::ptr_eq(again, sent)) && again.len() == sent.len());
        let mut settled = Vec::new();
        while !outbox.is_empty() {
            settled.extend(outbox.committed(0, outbox.done() + 1).and_then(|waiting| waiting.token));
            outbox.next(0, Term { number: 2, ..TERM }, bytes_max);
        }
        let settled: Vec<u64> = settled.iter().map(|token| token.number).collect();
        let of_witness: Vec<usize> =
            (1_000..1_003).filter_map(|number| settled.iter().position(|settled| *settled == number)).collect();
        assert!(of_witness.is_sorted() && of_witness.len() == 3 && of_witness[2] <= sent.len() + 4, "{of_witness:?}");
        let of_flood: Vec<u64> = settled.into_iter().filter(|number| *number < 1_000).collect();
        assert!(of_flood.is_sorted() && of_flood.len() == 1_000);
    }
}
