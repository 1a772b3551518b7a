//! Replay requests: the positions at which a subscribe begins, and the outcome for each channel, which the reply
//! reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayeux::ext::{Lost, Position, Positions, Recovery, ReplayFrom};

use crate::delivery::{Unnumbered, Withdrawn};
use crate::history::Ring;

/// The positions that one subscribe requests, and their outcomes.
pub(crate) struct ReplayRequest<'a> {
    pub(crate) positions: Positions<'a>,
    /// For each channel the requested position, and the outcome as JSON for the reply.
    answers: BTreeMap<Box<str>, (ReplayFrom<'a>, String)>,
    /// The bytes of the outcomes.
    answer_bytes: usize,
    /// True while channels begin that only a pattern names: a long reply leaves out their outcomes.
    pub(crate) is_of_pattern: bool,
    /// True while the session gets a subscription that it did not have in any way: without a position it begins with what is retained.
    pub(crate) is_of_new: bool,
    /// For a page of a pattern that was requested earlier: when, in milliseconds. Its outcomes are in no reply.
    pub(crate) since_ms: Option<u64>,
    pub(crate) begun: Box<Begun>,
}

/// The positions at which the subscribes of one batch begin.
#[derive(Default)]
pub(crate) struct Begun {
    /// The number of times that a subscribe began at a channel.
    pub(crate) channels: usize,
    /// Messages that only rings may give from now on.
    pub(crate) withdrawn: Withdrawn,
    /// True if the session uses replay since this batch. Messages that already wait for it have no position.
    pub(crate) is_first: bool,
    /// True if rings give messages that may wait already. They come behind the replies of the batch.
    pub(crate) gives_again: bool,
}

/// The position at which a session begins to replay a channel.
pub(crate) struct Start {
    pub(crate) recovered: bool,
    pub(crate) epoch: Arc<str>,
    pub(crate) from: u64,
    /// The offset of the next message that comes live.
    pub(crate) next: u64,
    pub(crate) lost: Option<(u64, u64)>,
}

impl<'a> ReplayRequest<'a> {
    /// A request for these positions.
    pub(crate) fn new(positions: Positions<'a>, begun: Box<Begun>) -> ReplayRequest<'a> {
        ReplayRequest {
            positions,
            answers: BTreeMap::new(),
            answer_bytes: 0,
            is_of_pattern: false,
            is_of_new: false,
            since_ms: None,
            begun,
        }
    }

    /// A request for the latest position of each channel.
    pub(crate) fn latest() -> ReplayRequest<'a> {
        ReplayRequest::new(Positions::default(), Box::default())
    }

    /// A page of a pattern that was requested at this time, in milliseconds.
    pub(crate) fn page(since_ms: u64) -> ReplayRequest<'a> {
        ReplayRequest { since_ms: Some(since_ms), ..ReplayRequest::latest() }
    }

    /// Returns the start positions of the batch, and the member `replay` of the reply's `ext`.
    pub(crate) fn end(self) -> (Box<Begun>, Option<String>) {
        let answers: Vec<_> = self.answers.iter().map(|(name, (_, answer))| format!("\"{name}\":{answer}")).collect();
        let member = (!answers.is_empty()).then(|| format!("\"replay\":{{{}}}", answers.join(",")));
        (self.begun, member)
    }

    /// True if this subscribe has already begun at this position of the channel: two of its names may match the same
    /// channel.
    pub(crate) fn has_begun(&self, name: &str, position: &ReplayFrom<'_>) -> bool {
        self.answers.get(name).is_some_and(|(begun, _)| begun == position)
    }

    pub(crate) fn answer(&mut self, name: &str, position: &ReplayFrom<'a>, start: Option<&Start>) {
        // The client learns the positions of such channels by their messages.
        let is_long = self.is_of_pattern && self.answer_bytes >= ANSWER_BYTES_MAX;
        if self.since_ms.is_some() || is_long && start.is_some_and(|start| start.recovered) {
            return;
        }
        let recovery = Recovery {
            recovered: start.is_some_and(|start| start.recovered),
            from: start.map(|start| Position { epoch: (*start.epoch).into(), offset: start.from }),
            latest: start.map(|start| start.next - 1),
            lost: start.and_then(|start| start.lost).map(|(from, to)| Lost { from, to: Some(to) }),
        };
        let answer = recovery.to_json();
        self.answer_bytes += name.len() + answer.len() + "\"\":,".len();
        self.answers.insert(name.into(), (position.clone(), answer));
    }
}

impl Start {
    /// The start in a ring. `now_ms`: the time of the request, in milliseconds of the monotonic clock. `is_mirrored`: other nodes have
    /// the same ring, and may be ahead of this one.
    pub(crate) fn new(ring: &Ring, position: &ReplayFrom<'_>, now_ms: u64, is_mirrored: bool) -> Start {
        let (oldest, mut next) = (ring.oldest(), ring.next());
        let is_ahead = |offset: &u64, epoch: &str| is_mirrored && *epoch == **ring.epoch() && *offset >= ring.next();
        let (recovered, from, lost) = match position {
            ReplayFrom::After { offset, epoch: Some(epoch) } if is_ahead(offset, epoch) => {
                // Another node has given it. So it comes here, too, and what comes up to it is not for this client.
                next = offset.saturating_add(1);
                (true, next, None)
            }
            ReplayFrom::Latest | ReplayFrom::More => (true, next, None),
            ReplayFrom::Earliest => (true, oldest, None),
            ReplayFrom::Last(messages) => (true, ring.last(*messages), None),
            ReplayFrom::LastMs(ms) => (true, ring.first_since(now_ms.saturating_sub(*ms)), None),
            ReplayFrom::After { offset, epoch } => {
                if ring.has_all_after(*offset, epoch.as_deref()) {
                    (true, offset + 1, None)
                } else {
                    let known = epoch.as_ref().is_none_or(|epoch| **epoch == **ring.epoch());
                    (false, oldest, (known && *offset < oldest).then(|| (offset + 1, oldest - 1)))
                }
            }
        };
        Start { recovered, epoch: ring.epoch().clone(), from, next, lost }
    }
}

impl Begun {
    /// Returns the messages to withdraw before anything of the session leaves.
    pub(crate) fn take_withdrawn(&mut self) -> Option<Withdrawn> {
        (!self.withdrawn.is_empty()).then(|| std::mem::take(&mut self.withdrawn))
    }

    /// Withdraws the waiting messages of a channel from offset `lower` up to the end of the ring.
    pub(crate) fn note(&mut self, channel: &str, start: &Start, lower: u64, unnumbered: Unnumbered) {
        let numbers = lower..start.next;
        if numbers.is_empty() {
            return;
        }
        self.gives_again = true;
        self.withdrawn.note(channel, &start.epoch, numbers, unnumbered);
    }
}

/// The bytes of the outcomes in one reply from which on it leaves out those that the client learns from messages. Clients read
/// 64 KiB at least.
const ANSWER_BYTES_MAX: usize = 32 * 1024;
