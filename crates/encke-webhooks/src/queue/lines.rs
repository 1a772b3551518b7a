//! The events that may start, in a line for each owner. The owner with the fewest requests under way is first, so a slow backend does
//! not let those wait who have nothing there yet; among equals the oldest event is.

use std::collections::{BTreeSet, HashMap};

use crate::owner::Owner;
use crate::queue::EventId;

/// The lines of all owners.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: HashMap<Owner, Line>,
    /// The first event of each line: the requests under way of its owner, the event, the owner.
    order: BTreeSet<(usize, EventId, Owner)>,
}

#[derive(Debug, Default)]
struct Line {
    ready: BTreeSet<EventId>,
    in_flight: usize,
}

impl Lines {
    /// Adds an event.
    pub(crate) fn insert(&mut self, owner: Owner, id: EventId) {
        self.change(owner, |line| _ = line.ready.insert(id));
    }

    /// Removes an event, if it is there.
    pub(crate) fn remove(&mut self, owner: Owner, id: EventId) {
        self.change(owner, |line| _ = line.ready.remove(&id));
    }

    /// Notes that an event has started.
    pub(crate) fn started(&mut self, owner: Owner, id: EventId) {
        self.change(owner, |line| {
            line.ready.remove(&id);
            line.in_flight += 1;
        });
    }

    /// Notes that a request has ended.
    pub(crate) fn ended(&mut self, owner: Owner) {
        self.change(owner, |line| line.in_flight = line.in_flight.saturating_sub(1));
    }

    /// The first event, behind the requests under way of its owner.
    pub(crate) fn first(&self) -> Option<(usize, EventId, Owner)> {
        self.order.first().copied()
    }

    /// True if no event may start, and none is under way.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.order.is_empty()
    }

    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Line)) {
        let line = self.lines.entry(owner).or_default();
        let first = |line: &Line| line.ready.first().map(|id| (line.in_flight, *id, owner));
        let before = first(line);
        change(line);
        let after = first(line);
        if line.ready.is_empty() && line.in_flight == 0 {
            self.lines.remove(&owner);
        }
        if before != after {
            before.map(|first| self.order.remove(&first));
            self.order.extend(after);
        }
    }
}
