//! Notices to nodes that a session was taken from them, or has ended elsewhere: its record says more.

use encke_core::NodeTag;

use super::message::Question;
use super::record::Key;
use super::{Sent, Sessions};
use crate::command::RequestFailure;

/// A node that has to learn that a session was taken from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// The session.
    key: Key,
    /// The node.
    node: NodeTag,
    /// The revision of its record since then.
    revision: u64,
    /// Earlier tries.
    tries: u32,
    /// True if nobody was there at the last one.
    was_gone: bool,
    /// True if the session has ended: no node has it.
    has_ended: bool,
}

impl Notice {
    /// The first one.
    pub(super) fn new(key: Key, node: NodeTag, revision: u64) -> Notice {
        Notice { key, node, revision, tries: 0, was_gone: false, has_ended: false }
    }

    /// The first one of a session that has ended.
    pub(super) fn of_end(key: Key, node: NodeTag, revision: u64) -> Notice {
        Notice { has_ended: true, ..Notice::new(key, node, revision) }
    }
}

impl Sessions {
    /// Tells a node that a session was taken from it, or has ended.
    pub(super) fn tell_taken(&mut self, notice: Notice) {
        // It would ask the node that has the session next: of one that has ended, itself.
        let home = if notice.has_ended { notice.node } else { self.settings.node };
        let question = Question::Taken(notice.key, home, notice.revision);
        self.ask(Sent::Taken(notice), notice.node, &question, ANSWER_MS);
    }

    /// A node has learned that a session was taken from it; it is gone; or the notice goes out again.
    pub(super) fn notice_answered(&mut self, now_ms: u64, notice: Notice, failure: Option<RequestFailure>) {
        let is_gone = failure == Some(RequestFailure::NoResponders);
        // A node that comes back now may still read the record of before. One that comes back later does not.
        let is_open = failure.is_some() && !(is_gone && notice.was_gone);
        if is_open && notice.tries < NOTICES_MAX {
            let notice = Notice { tries: notice.tries + 1, was_gone: is_gone, ..notice };
            self.notices.push_back((now_ms + NOTICE_EVERY_MS, notice));
        }
    }
}

/// Further notices to a node that a session was taken from it, and the time between them, in milliseconds.
const NOTICES_MAX: u32 = 60;
const NOTICE_EVERY_MS: u64 = 1_000;
/// The time for the answer to one, in milliseconds.
const ANSWER_MS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::sessions::Output;
    use crate::sessions::tests::{id, settings, tag};

    #[test]
    fn a_node_that_is_not_there_gets_one_more_notice_because_it_may_come_back_to_an_old_value() {
        let mut sessions = Sessions::new(settings(0));
        sessions.connected(1, 1 << 20);
        sessions.tell_taken(Notice::new(Key::of(&id(1, 1)), tag(1), 7));
        let asked = |sessions: &mut Sessions| match sessions.take_outputs().pop() {
            Some(Output::Engine(Command::Request { number, .. })) => Some(number),
            _ => None,
        };
        let mut now_ms = 1;
        let gone = || Err(RequestFailure::NoResponders);
        for (answer, goes_on) in
            [(gone(), true), (Err(RequestFailure::TimedOut), true), (gone(), true), (gone(), false)]
        {
            let number = asked(&mut sessions).expect("a notice");
            sessions.answered(now_ms, number, answer);
            sessions.turn(now_ms);
            assert_eq!(asked(&mut sessions), None, "not at once");
            assert_eq!(sessions.next_ms(now_ms).is_some(), goes_on);
            now_ms += NOTICE_EVERY_MS;
            sessions.turn(now_ms);
        }
        assert_eq!(asked(&mut sessions), None);
    }
}
