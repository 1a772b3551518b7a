//! The state of a node of a cluster that begins: it takes clients when it has read the histories of other nodes.

use encke_cluster::Member;
use encke_core::history::PARTITIONS;

/// The state of a node that begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Reading {
    /// It has not begun.
    #[default]
    Not,
    /// It reads what other nodes have, since this time in milliseconds.
    Since(u64),
    /// It had all, or it took too long.
    Done,
}

impl Reading {
    /// The time of the next look, if nothing happens before, in milliseconds.
    pub(super) fn next_ms(self, member: &Member, now_ms: u64) -> Option<u64> {
        let is_awaited = member.histories().is_some() && !matches!(self, Reading::Done);
        is_awaited.then_some(now_ms + READING_LOOK_MS)
    }

    /// The partitions whose messages the node has, while it reads those of other nodes for the first time. None at any other time.
    pub(super) fn progress(&mut self, member: &Member, now_ms: u64) -> Option<usize> {
        let level = member.histories()?.counts().level;
        let max_ms = if member.node.is_connected() { READING_MAX_MS } else { ENGINE_MAX_MS };
        *self = match *self {
            Reading::Not => Reading::Since(now_ms),
            Reading::Since(_) if level == PARTITIONS => Reading::Done,
            Reading::Since(since_ms) if now_ms >= since_ms + max_ms => {
                tracing::warn!(level, "this node has not read all histories of the cluster, and takes clients now");
                Reading::Done
            }
            as_before => as_before,
        };
        matches!(self, Reading::Since(_)).then_some(level)
    }
}

/// The time after which a node takes clients even without all histories, in milliseconds.
const READING_MAX_MS: u64 = 60_000;
/// The same while the engine is not there, in milliseconds.
const ENGINE_MAX_MS: u64 = 5_000;
/// The time between two looks at it, in milliseconds.
const READING_LOOK_MS: u64 = 1_000;
