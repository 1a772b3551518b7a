//! The last time in which a node was dead, cut off or paused.

/// A time in milliseconds, and its end.
#[derive(Default)]
pub(super) struct Absence(Option<(u64, Option<u64>)>);

impl Absence {
    pub(super) fn begins(&mut self, now_ms: u64) {
        self.0 = match self.0 {
            // Nobody has seen it meanwhile.
            Some((since_ms, until_ms)) if until_ms.is_none_or(|until_ms| now_ms <= until_ms + UNSEEN_MAX_MS) => {
                Some((since_ms, None))
            }
            _ => Some((now_ms, None)),
        };
    }

    pub(super) fn ends(&mut self, now_ms: u64) {
        if let Some((_, until_ms @ None)) = &mut self.0 {
            *until_ms = Some(now_ms);
        }
    }

    /// True if the node has been there since this time, in milliseconds.
    pub(super) fn was_there_since(&self, ms: u64) -> bool {
        self.0.is_none_or(|(_, until_ms)| until_ms.is_some_and(|until_ms| until_ms <= ms))
    }

    /// True if others may take the node for gone.
    pub(super) fn is_seen(&self, now_ms: u64) -> bool {
        self.0.is_some_and(|(since_ms, until_ms)| {
            let until_ms = until_ms.unwrap_or(now_ms);
            until_ms >= since_ms + GONE_MS && now_ms <= until_ms + UNSEEN_MAX_MS
        })
    }
}

/// The time after which a node is gone, in milliseconds.
const GONE_MS: u64 = 5_000;
/// The longest time until all others have seen that a node is back, in milliseconds.
const UNSEEN_MAX_MS: u64 = 4_000;
