//! The deliveries of one connection: its welcome, then chunks in order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::clock::now_us;
use crate::latencies::Latencies;
use crate::report::Faults;

/// One connection's chunks.
#[derive(Debug)]
pub(super) struct Listener {
    /// Its number.
    pub(super) id: u32,
    /// The planned time of the connection, in microseconds of [`now_us`].
    planned_us: u64,
    stage: Stage,
    /// The first chunk that was sent after the welcome.
    first: u64,
    /// The chunk that comes next.
    next: u64,
    /// The time of the welcome or of the last chunk.
    last_us: u64,
    /// Chunks that were passed over, and may still come.
    skipped: Vec<u64>,
}

/// The progress of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no welcome yet.
    Coming,
    Welcomed,
    Ended,
}

/// State that all connections share.
#[derive(Debug)]
pub(super) struct ListenerShared {
    /// Chunks later than this count as late, in microseconds.
    pub(super) late_after_us: u64,
    pub(super) chunk_every_us: u64,
    /// Time from a connection's planned time to its welcome.
    pub(super) welcomes: Latencies,
    /// The lateness of chunks.
    pub(super) lateness: Latencies,
    /// The times of the welcomes, in order.
    pub(super) welcomed_us: Vec<u64>,
    /// Connections that were welcomed and have not ended.
    pub(super) listening: u64,
    /// Requests that were sent.
    pub(super) sent: u64,
    pub(super) chunks: u64,
    pub(super) bytes: u64,
    pub(super) faults: Faults,
    /// Connections that ended before or after their welcome, and why.
    pub(super) errors: BTreeMap<String, u64>,
    /// Publications sent so far, where chunks are publications.
    pub(super) published: u64,
    /// The session that publishes can.
    pub(super) can_publish: bool,
    /// The reason that it failed.
    pub(super) publisher_failed: Option<String>,
}

impl ListenerShared {
    /// Creates the counters.
    pub(super) fn new(late_after: Duration, chunk_every: Duration) -> ListenerShared {
        ListenerShared {
            late_after_us: late_after.as_micros() as u64,
            chunk_every_us: chunk_every.as_micros() as u64,
            welcomes: Latencies::default(),
            lateness: Latencies::default(),
            welcomed_us: Vec::new(),
            listening: 0,
            sent: 0,
            chunks: 0,
            bytes: 0,
            faults: Faults::default(),
            errors: BTreeMap::new(),
            published: 0,
            can_publish: false,
            publisher_failed: None,
        }
    }
}

impl Listener {
    /// A connection that is planned.
    pub(super) fn new(id: u32, planned_us: u64) -> Listener {
        Listener { id, planned_us, stage: Stage::Coming, first: 1, next: 1, last_us: 0, skipped: Vec::new() }
    }

    pub(super) fn is_welcomed(&self) -> bool {
        self.stage == Stage::Welcomed
    }

    /// The welcome came; `next` is the number of the first chunk that must come.
    pub(super) fn welcome(&mut self, next: u64, shared: &mut ListenerShared) {
        let now = now_us();
        self.stage = Stage::Welcomed;
        (self.first, self.next, self.last_us) = (next, next, now);
        shared.welcomes.record(now.saturating_sub(self.planned_us));
        shared.welcomed_us.push(now);
        shared.listening += 1;
    }

    /// Counts a chunk. A publication says when it was due. Streams keep their own time, so a chunk of a stream is late
    /// relative to the one before it.
    pub(super) fn chunk(&mut self, number: u64, due_us: Option<u64>, shared: &mut ListenerShared) {
        let now = now_us();
        if number < self.first {
            // Published before the subscription was confirmed.
            return;
        }
        let due_us = due_us.unwrap_or(self.last_us + shared.chunk_every_us);
        let late_us = now.saturating_sub(due_us);
        shared.chunks += 1;
        shared.lateness.record(late_us);
        shared.faults.late += u64::from(late_us > shared.late_after_us);
        self.last_us = now;
        if number >= self.next {
            let begin = number.saturating_sub(SKIPPED_REMEMBERED_MAX).max(self.next);
            shared.faults.lost += number - self.next;
            self.skipped.extend(begin..number);
            self.next = number + 1;
        } else if let Some(at) = self.skipped.iter().position(|skipped| *skipped == number) {
            self.skipped.swap_remove(at);
            shared.faults.lost -= 1;
            shared.faults.reordered += 1;
        } else {
            shared.chunks -= 1;
            shared.faults.doubled += 1;
        }
    }

    /// The number of missing chunks of those published so far.
    pub(super) fn behind(&self, published: u64) -> u64 {
        if self.is_welcomed() { (published + 1).saturating_sub(self.next) } else { 0 }
    }

    /// The number of chunks of a stream that are overdue at `now`.
    pub(super) fn overdue(&self, now: u64, shared: &ListenerShared) -> u64 {
        if !self.is_welcomed() {
            return 0;
        }
        now.saturating_sub(self.last_us + shared.late_after_us) / shared.chunk_every_us
    }

    /// The connection has ended.
    pub(super) fn ended(&mut self, why: &str, shared: &mut ListenerShared) {
        shared.faults.dropped_sessions += 1;
        let when = if self.is_welcomed() { "ended" } else { "no welcome" };
        shared.listening -= u64::from(self.is_welcomed());
        self.stage = Stage::Ended;
        let text = format!("{when}: {why}");
        let known = shared.errors.len() < DISTINCT_ERRORS_MAX || shared.errors.contains_key(&text);
        *shared.errors.entry(if known { text } else { "other errors".into() }).or_default() += 1;
    }
}

const DISTINCT_ERRORS_MAX: usize = 16;
/// The most skipped chunks remembered, so that they do not count as doubled when they arrive after all.
const SKIPPED_REMEMBERED_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn shared() -> ListenerShared {
        ListenerShared::new(Duration::from_secs(1), Duration::from_secs(10))
    }

    fn taken(numbers: &[u64]) -> (u64, Faults) {
        let (mut shared, mut listener) = (shared(), Listener::new(1, now_us()));
        listener.welcome(3, &mut shared);
        numbers.iter().for_each(|number| listener.chunk(*number, Some(now_us()), &mut shared));
        (shared.chunks, shared.faults)
    }

    #[test]
    fn lost_doubled_and_reordered_deliveries_are_distinguished() {
        assert_eq!(taken(&[3, 4, 5]), (3, Faults::default()));
        assert_eq!(taken(&[3, 6]), (2, Faults { lost: 2, ..Faults::default() }));
        assert_eq!(taken(&[3, 5, 4]), (3, Faults { reordered: 1, ..Faults::default() }));
        assert_eq!(taken(&[3, 3]), (1, Faults { doubled: 1, ..Faults::default() }));
        assert_eq!(taken(&[2, 3]), (1, Faults::default()), "what was sent before the welcome does not count");
    }

    #[test]
    fn a_chunk_is_late_after_its_time_and_the_allowance() {
        let (mut shared, mut listener) = (shared(), Listener::new(1, now_us()));
        listener.welcome(1, &mut shared);
        listener.chunk(1, Some(now_us() - 900_000), &mut shared);
        assert_eq!(shared.faults.late, 0);
        listener.chunk(2, Some(now_us() - 1_100_000), &mut shared);
        assert_eq!(shared.faults.late, 1);
        listener.chunk(3, None, &mut shared);
        assert_eq!(shared.faults.late, 1, "sooner than a period after the one before is not late");
    }

    #[test]
    fn a_stream_that_falls_silent_is_overdue_by_whole_periods() {
        let (mut shared, mut listener) = (shared(), Listener::new(1, now_us()));
        assert_eq!(listener.overdue(now_us() + 100_000_000, &shared), 0, "without a welcome nothing is due");
        listener.welcome(1, &mut shared);
        assert_eq!(listener.overdue(now_us() + 10_900_000, &shared), 0);
        assert_eq!(listener.overdue(now_us() + 11_100_000, &shared), 1);
        assert_eq!(listener.overdue(now_us() + 31_100_000, &shared), 3);
        assert_eq!((listener.behind(0), listener.behind(2)), (0, 2));
    }
}
