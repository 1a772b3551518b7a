//! What a session that replays says and hears about positions: where a subscription begins, what it got of what it wanted, and
//! how far it is when nothing happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayeux::ext::{Lost, Position, Positions, Recovery, ReplayFrom};

use crate::history::Ring;
use crate::sessions::withdrawn::{Unnumbered, Withdrawn};

/// What one subscribe wants of the past, and what becomes of it.
pub(crate) struct ReplayRequest<'a> {
    pub(crate) positions: Positions<'a>,
    /// Where it has begun with each channel, and what the reply says of that.
    pub(crate) answers: BTreeMap<Box<str>, (ReplayFrom<'a>, String)>,
    pub(crate) begun: Box<Begun>,
}

/// Where the subscribes of one batch begin.
#[derive(Default)]
pub(crate) struct Begun {
    /// How often they began with a channel.
    pub(crate) channels: usize,
    /// What comes out of rings now or not at all.
    pub(crate) withdrawn: Withdrawn,
    /// The session uses replay since this batch: messages that wait for it have no number.
    pub(crate) is_first: bool,
}

/// Where a session begins with a channel.
pub(crate) struct Start {
    pub(crate) recovered: bool,
    pub(crate) epoch: Arc<str>,
    pub(crate) from: u64,
    /// The number of the next message.
    pub(crate) next: u64,
    lost: Option<(u64, u64)>,
}

impl<'a> ReplayRequest<'a> {
    /// Where the subscribes of the batch begin, and the member `replay` of the reply's `ext`.
    pub(crate) fn end(self) -> (Box<Begun>, Option<String>) {
        let answers: Vec<_> = self.answers.iter().map(|(name, (_, answer))| format!("\"{name}\":{answer}")).collect();
        let member = (!answers.is_empty()).then(|| format!("\"replay\":{{{}}}", answers.join(",")));
        (self.begun, member)
    }

    /// Whether it has begun with a channel just there: two of its names may bring the same one.
    pub(crate) fn has_begun(&self, name: &str, position: &ReplayFrom<'_>) -> bool {
        self.answers.get(name).is_some_and(|(begun, _)| begun == position)
    }

    pub(crate) fn answer(&mut self, name: &str, position: &ReplayFrom<'a>, start: Option<&Start>) {
        let recovery = Recovery {
            recovered: start.is_some_and(|start| start.recovered),
            from: start.map(|start| Position { epoch: (*start.epoch).into(), offset: start.from }),
            latest: start.map(|start| start.next - 1),
            lost: start.and_then(|start| start.lost).map(|(from, to)| Lost { from, to: Some(to) }),
        };
        self.answers.insert(name.into(), (position.clone(), recovery.to_json()));
    }
}

impl Start {
    pub(crate) fn new(ring: &Ring, position: &ReplayFrom<'_>) -> Start {
        let (oldest, next) = (ring.oldest(), ring.next());
        let (recovered, from, lost) = match position {
            ReplayFrom::Latest => (true, next, None),
            ReplayFrom::Earliest => (true, oldest, None),
            ReplayFrom::After { offset, epoch } => {
                let known = epoch.as_ref().is_none_or(|epoch| **epoch == **ring.epoch());
                if known && offset + 1 >= oldest && *offset < next {
                    (true, offset + 1, None)
                } else {
                    (false, oldest, (known && *offset < oldest).then(|| (offset + 1, oldest - 1)))
                }
            }
        };
        Start { recovered, epoch: ring.epoch().clone(), from, next, lost }
    }
}

impl Begun {
    /// Whether something that waits may have to go before the rings give more.
    pub(crate) fn is_pending(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// What waits of a channel from this number on is not to come beside the ring.
    pub(crate) fn note(&mut self, channel: &str, start: &Start, lower: u64, unnumbered: Unnumbered) {
        let numbers = lower..start.next;
        if numbers.is_empty() {
            return;
        }
        self.withdrawn.note(channel, &start.epoch, numbers, unnumbered);
    }
}
