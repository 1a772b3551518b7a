//! Marks: how far a node has delivered the log of each partition, at ticks. Sessions that acknowledge go on from a mark when their node is
//! gone.
//!
//! ```text
//!   node a: tick 1 ─ tick 2 ─ tick 3 ─ tick 4        its shards: "confirmed before tick 3" ──▶ heartbeat with mark 3
//!                                                                                                    │
//!   node b: tick 7 ─ tick 8 ─ tick 9 ─ tick 10       the last of its ticks that no partition of mark 3 is behind ◀┘
//!                        └─ time at which it was taken: all messages behind mark 3 have come here since then
//! ```
//!
//! The numbers of a log are the same on all nodes, and times are those of one node only. So clocks are not compared.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use encke_core::NodeTag;
use encke_core::history::PARTITIONS;

/// For each partition the seed of its epochs, and the number of the last entry of its log that was delivered. None: it is not known.
pub(super) type Points = [Option<Point>; PARTITIONS];

/// A position in the log of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) seed: u64,
    pub(super) number: u64,
}

/// For each partition the time since which messages behind a mark have come to a node, in milliseconds. None: it cannot say.
pub type SinceMs = [Option<u64>; PARTITIONS];

/// The marks of one node.
#[derive(Default)]
pub(super) struct Marks {
    /// Those of the last minutes, oldest first.
    taken: VecDeque<Taken>,
    /// The time of the next tick, in milliseconds.
    due_ms: u64,
    /// The tick before which all sessions of this node have confirmed all, but for those whose record says otherwise.
    confirmed: Option<Taken>,
    /// True if some record does.
    has_late: bool,
}

/// The mark of a tick.
#[derive(Clone, Debug)]
struct Taken {
    tick: u64,
    at_ms: u64,
    points: Arc<Points>,
}

impl Marks {
    /// True if a tick would bring something new.
    pub(super) fn are_due(&self, points: &Points) -> bool {
        let last = self.taken.back().map(|taken| &*taken.points);
        let confirmed = self.confirmed.as_ref().map(|taken| &*taken.points);
        self.has_late || last != Some(points) || confirmed != Some(points)
    }

    /// The point of a partition in the last mark.
    pub(super) fn last(&self, partition: usize) -> Option<Point> {
        self.taken.back().and_then(|taken| taken.points[partition])
    }

    /// The time of the next tick, in milliseconds.
    pub(super) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Takes a mark. Returns its tick.
    pub(super) fn take(&mut self, now_ms: u64, points: &Points) -> (u64, Bytes) {
        self.due_ms = now_ms + TICK_MS;
        let last = self.taken.back();
        let tick = last.map_or(1, |last| last.tick + 1);
        let same = last.filter(|last| *last.points == *points).map(|last| last.points.clone());
        let points = same.unwrap_or_else(|| Arc::new(*points));
        let bytes = write(&points);
        self.taken.push_back(Taken { tick, at_ms: now_ms, points });
        while self.taken.len() > TICKS_MAX {
            self.taken.pop_front();
        }
        (tick, bytes)
    }

    /// The sessions of this node have confirmed all before a tick, but for those whose record says otherwise.
    pub(super) fn confirmed(&mut self, tick: u64, has_late: bool) {
        self.has_late = has_late;
        let taken = self.taken.iter().find(|taken| taken.tick == tick);
        self.confirmed = taken.cloned().or(self.confirmed.take());
    }

    /// The mark for the other nodes.
    pub(super) fn common(&self) -> Option<Bytes> {
        self.confirmed.as_ref().map(|taken| write(&taken.points))
    }

    /// The times since which all messages behind a mark have come to this node, whose partitions are at these points. `known_from`: the number
    /// of each log from which on the times at which its entries came are known.
    pub(super) fn since(&self, mark: &[u8], points: &Points, known_from: &[u64; PARTITIONS]) -> Option<SinceMs> {
        let mark = read(mark)?;
        let since_ms = |partition: usize| {
            let (wanted, here) = (mark[partition]?, points[partition]?);
            let is_known = wanted.seed == here.seed && wanted.number >= known_from[partition];
            let is_before = |taken: &&Taken| {
                taken.points[partition].is_some_and(|at| at.seed == wanted.seed && at.number <= wanted.number)
            };
            let before = self.taken.iter().rev().find(is_before);
            before.filter(|_| is_known).map(|taken| taken.at_ms)
        };
        Some(std::array::from_fn(since_ms))
    }
}

/// Writes a mark: a seed and a number for each partition.
fn write(points: &Points) -> Bytes {
    let mut bytes = Vec::with_capacity(MARK_BYTES);
    for point in points {
        // A log without entries is at 0, so no point has this number.
        let Point { seed, number } = point.unwrap_or(Point { seed: 0, number: u64::MAX });
        bytes.extend_from_slice(&seed.to_le_bytes());
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.into()
}

/// Reads a mark. None if it is none.
fn read(bytes: &[u8]) -> Option<Points> {
    let (numbers, []) = bytes.as_chunks::<8>() else { return None };
    let (pairs, []) = numbers.as_chunks::<2>() else { return None };
    let pairs: &[_; PARTITIONS] = pairs.try_into().ok()?;
    Some(pairs.map(|[seed, number]| {
        let (seed, number) = (u64::from_le_bytes(seed), u64::from_le_bytes(number));
        Some(Point { seed, number }).filter(|point| point.number < u64::MAX)
    }))
}

/// The report of a node about its sessions, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its name in the ids of sessions.
    pub node: NodeTag,
    /// The mark up to which its sessions have confirmed all, but for those whose record has another one.
    pub mark: Bytes,
    /// The sessions that other nodes must not go on with: see [`Sessions::unrecorded`](crate::Sessions::unrecorded).
    pub unrecorded: Bytes,
}

/// Writes the value of the key of a node. One without a mark reports nothing: no node goes on with a session to which messages are promised.
pub(super) fn write_beat(node: NodeTag, mark: Option<Bytes>, unrecorded: &[u8]) -> Bytes {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(node.as_str().as_bytes());
    if let Some(mark) = mark {
        bytes.extend_from_slice(&mark);
        bytes.extend_from_slice(unrecorded);
    }
    bytes.into()
}

/// Reads the value of the key of a node. None if it reports nothing.
pub(super) fn read_beat(value: &Bytes) -> Option<Report> {
    let [VERSION, rest @ ..] = &value[..] else { return None };
    let (tag, rest) = rest.split_at_checked(TAG_BYTES)?;
    let node = NodeTag::parse(str::from_utf8(tag).ok()?)?;
    let (mark, unrecorded) = rest.split_at_checked(MARK_BYTES)?;
    Some(Report { node, mark: value.slice_ref(mark), unrecorded: value.slice_ref(unrecorded) })
}

/// The time between two ticks, in milliseconds.
pub(super) const TICK_MS: u64 = 500;
/// The ticks whose marks are there: two minutes, or more if nothing is published.
pub(crate) const TICKS_MAX: usize = 240;
/// The bytes of a mark.
pub(crate) const MARK_BYTES: usize = PARTITIONS * 16;
const TAG_BYTES: usize = 4;
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn points(number: u64) -> Points {
        let mut points = [Some(Point { seed: 7, number }); PARTITIONS];
        points[1] = None;
        points
    }

    fn mark(number: u64) -> Bytes {
        write(&points(number))
    }

    #[test]
    fn a_mark_and_a_beat_read_back_and_nothing_else_is_one() {
        assert_eq!(read(&mark(9)), Some(points(9)));
        let tag = NodeTag::parse("abcd").expect("a tag");
        let report = |unrecorded| Report { node: tag, mark: mark(9), unrecorded: Bytes::from_static(unrecorded) };
        for unrecorded in [&b""[..], &b"0123456789abcdef"[..]] {
            assert_eq!(read_beat(&write_beat(tag, Some(mark(9)), unrecorded)), Some(report(unrecorded)));
        }
        assert_eq!(read_beat(&write_beat(tag, None, b"0123456789abcdef")), None);
        assert_eq!((read_beat(&Bytes::from_static(&[1])), read_beat(&Bytes::new())), (None, None));
        let cut = mark(9).slice(..MARK_BYTES - 16);
        assert!(read(&cut).is_none() && read(&[]).is_none() && read_beat(&write_beat(tag, Some(cut), b"")).is_none());
    }

    #[test]
    fn messages_behind_a_mark_have_come_since_the_last_tick_that_was_not_ahead_of_it() {
        let mut marks = Marks::default();
        for (at_ms, number) in [(500, 10), (1_000, 20), (1_500, 20), (2_000, 30)] {
            marks.take(at_ms, &points(number));
        }
        let since = |number, known_from| {
            let since = marks.since(&mark(number), &points(35), &[known_from; PARTITIONS]).expect("a mark");
            assert_eq!(since[1], None);
            since[0]
        };
        for (number, since_ms) in [(9, None), (10, Some(500)), (19, Some(500)), (20, Some(1_500)), (99, Some(2_000))] {
            assert_eq!(since(number, 0), since_ms, "{number}");
        }
        assert_eq!((since(20, 20), since(20, 21)), (Some(1_500), None));
        let mut others = points(35);
        others[0] = Some(Point { seed: 8, number: 35 });
        assert_eq!(marks.since(&mark(20), &others, &[0; PARTITIONS]).expect("a mark")[0], None);
        assert!(marks.since(b"", &points(35), &[0; PARTITIONS]).is_none());
    }

    #[test]
    fn ticks_end_when_all_is_confirmed_and_their_marks_have_a_bound() {
        let mut marks = Marks::default();
        assert!(marks.are_due(&points(1)) && marks.common().is_none());
        let (first, _) = marks.take(500, &points(1));
        assert!(marks.are_due(&points(1)), "nobody has confirmed it");
        marks.confirmed(first, true);
        assert!(marks.are_due(&points(1)), "the record of a session says otherwise");
        marks.confirmed(first, false);
        assert!(!marks.are_due(&points(1)) && marks.are_due(&points(2)));
        (0..1_000).for_each(|number| _ = marks.take(1_000 + number, &points(number)));
        assert_eq!((marks.taken.len(), marks.common()), (TICKS_MAX, Some(mark(1))));
        marks.confirmed(first + 1_000, false);
        assert_eq!(marks.common(), Some(mark(999)));
        marks.confirmed(first, false);
        assert_eq!(marks.common(), Some(mark(999)), "it is forgotten");
    }
}
