//! A partition whose messages only the journal has: its new owner adds them to its rings, and then goes on.

use super::journal::{Journal, Next, Value};
use super::log::Log;
use super::{Partition, Role, settle};
use crate::histories::context::Context;
#[cfg(test)]
use crate::histories::context::Sabotage;

impl Partition {
    /// Reads the journal, as far as there is room. True if this node is not done with it.
    pub(super) fn is_rebuilding(&mut self, cx: &mut Context<'_>) -> bool {
        while let Role::Owner(owner) = &mut self.role
            && owner.is_reading()
        {
            let journal = owner.journal_mut().filter(|_| cx.rings.has_room(self.number.into()));
            let next = journal.map_or(Next::Nothing, |journal| journal.next(&self.log));
            match next {
                Next::Value(value) => self.take_value(cx, value),
                Next::End(leap) => {
                    self.replay(cx, self.log.last());
                    self.lineage.into_iter().for_each(|lineage| cx.rings.leap(self.number.into(), lineage, leap));
                    self.known_from = self.log.committed();
                    self.reads += 1;
                    if let Role::Owner(owner) = &mut self.role {
                        owner.has_read(&self.log);
                    }
                }
                Next::Nothing => {
                    owner.turn_journal(cx, &self.claims, &self.log);
                    return true;
                }
            }
        }
        false
    }

    /// Adds the entries of a value to the log. The first value of an owner has none, and drops nothing: what the owners before it have added may
    /// be committed.
    fn take_value(&mut self, cx: &mut Context<'_>, value: Value) {
        let Value { age_ms, floor, sources, first, entries, committed } = value;
        self.lineage.into_iter().for_each(|lineage| cx.rings.raise_floor(self.number.into(), lineage, floor));
        let has_gap = first > self.log.last() + 1;
        if has_gap && self.has_some && self.is_live {
            // The engine has dropped what was between, and subscribers of this node do not know that.
            return self.lose_journal();
        }
        if has_gap || (first <= self.log.committed() && !self.has_some) {
            // The journal begins here: older values are gone, or some between. What came before it is of an owner that others took for gone.
            let sources = if sources.is_empty() { self.log.sources() } else { sources };
            self.log = Log::at(first - 1, &sources);
            self.came_ms.clear();
            self.settle_done(cx);
            if std::mem::take(&mut self.has_some) {
                cx.rings.clear(self.number.into());
            }
        }
        #[cfg(test)]
        if cx.is_broken(Sabotage::DropsAtFirstValue) {
            self.log.truncate_from(first);
        }
        let new_from = self.log.merge(first, entries.into_iter());
        let staged_until = |number: u64| (number - self.log.committed()) as usize;
        self.came_ms.truncate(staged_until(new_from - 1));
        self.came_ms.resize(staged_until(self.log.last()), cx.now.ms.saturating_sub(age_ms));
        self.replay(cx, committed);
    }

    /// The journal does not continue what is in the rings: the partition begins again.
    fn lose_journal(&mut self) {
        if let Role::Owner(owner) = &mut self.role {
            owner.journal_mut().into_iter().for_each(Journal::lose);
        }
    }

    /// Applies entries up to this number.
    fn replay(&mut self, cx: &mut Context<'_>, until: u64) {
        while self.log.committed() < until
            && let Some(entry) = self.log.commit()
        {
            let came_ms = self.came_ms.pop_front().unwrap_or(cx.now.ms);
            self.has_some = true;
            cx.rings.replay(&entry, came_ms, self.is_live);
            let own = (entry.source == cx.own()).then(|| self.outbox.committed(cx.now.ms, entry.sequence)).flatten();
            own.into_iter().for_each(|own| settle(cx, own));
        }
    }
}
