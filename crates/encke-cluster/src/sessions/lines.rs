//! The lines of records that wait to be written. The lines take turns, and in each the owners of sessions do: one with many sessions that change
//! does not delay the records of others.

use encke_core::{SessionOwner, Turns};

use super::record::Key;

/// Keys of sessions that wait, and some that did.
#[derive(Default)]
pub(super) struct Lines {
    of: [Turns<SessionOwner, Key>; LINES.len()],
    /// The line that was served last.
    last: usize,
}

/// The line in which a session waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its end.
    End,
    /// The first mark of a session that is late: the mark of the node waits for it.
    Mark,
    /// Any other change.
    Change,
}

impl Lines {
    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.of.iter().map(Turns::len).sum()
    }

    /// Adds a session to a line.
    pub(super) fn push(&mut self, line: Line, owner: SessionOwner, key: Key) {
        self.of[line as usize].push(owner, key);
    }

    /// Takes the next session, and its line. `weight`: how heavy its record is there.
    pub(super) fn pop(&mut self, weight: impl Fn(&Key, Line) -> u64) -> Option<(Key, Line)> {
        let next = (1..=LINES.len()).map(|step| (self.last + step) % LINES.len());
        self.last = next.into_iter().find(|line| !self.of[*line].is_empty())?;
        let line = LINES[self.last];
        self.of[self.last].pop(|key| weight(key, line)).map(|key| (key, line))
    }

    /// Removes the keys for which `keep` is false.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Key, Line) -> bool) {
        for (turns, line) in self.of.iter_mut().zip(LINES) {
            turns.retain(|key| keep(key, line));
        }
    }
}

/// In the order of their numbers.
const LINES: [Line; 3] = [Line::End, Line::Mark, Line::Change];
