//! The name of a node is its own: a node that begins asks if another one answers to it, before it takes part in the cluster. Names are
//! random, but few characters long, and a folder with the data of a node may be a copy of another one's.
//!
//! ```text
//!   connected ──▶ asks ── nobody answers ──▶ takes part
//!                  ▲ └── another node does ──▶ stays alone for a while ─┐
//!                  └────────────────────────────────────────────────────┘
//! ```

use encke_core::NodeTag;

use crate::command::{Command, RequestFailure};
use crate::event::Event;
use crate::sessions::Sessions;
use crate::subject::Subjects;

/// Finds out if a node has its name for itself. Until then it lets no machine of the node know that the engine is there.
#[derive(Debug)]
pub struct OwnName {
    name: NodeTag,
    subjects: Subjects,
    /// The most bytes of an envelope, while the engine is there.
    envelope_bytes_max: Option<usize>,
    /// The time of the next question, in milliseconds.
    ask_ms: Option<u64>,
    is_own: bool,
    is_taken: bool,
}

impl OwnName {
    /// The number of its question.
    pub const NUMBER: u64 = 1 << 58;

    /// The name of a node that begins.
    pub fn new(name: NodeTag, subjects: Subjects) -> OwnName {
        OwnName { name, subjects, envelope_bytes_max: None, ask_ms: None, is_own: false, is_taken: false }
    }

    /// The name.
    pub fn name(&self) -> NodeTag {
        self.name
    }

    /// True if another node had it when this one asked last.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Takes an event of the engine. Returns the one that the machines of the node are to take.
    pub fn take(&mut self, now_ms: u64, event: Event) -> Option<Event> {
        match event {
            event if self.is_own => Some(event),
            Event::Connected { envelope_bytes_max } => {
                (self.envelope_bytes_max, self.ask_ms) = (Some(envelope_bytes_max), Some(now_ms));
                None
            }
            Event::Disconnected => {
                (self.envelope_bytes_max, self.ask_ms) = (None, None);
                Some(Event::Disconnected)
            }
            Event::Answered { number: OwnName::NUMBER, answer } => self.answered(now_ms, answer.err()),
            event => Some(event),
        }
    }

    fn answered(&mut self, now_ms: u64, failure: Option<RequestFailure>) -> Option<Event> {
        let envelope_bytes_max = self.envelope_bytes_max?;
        self.is_taken = failure.is_none();
        match failure {
            None => self.ask_ms = Some(now_ms + ASK_AGAIN_MS),
            // It asks when the engine is back.
            Some(RequestFailure::Away) => return None,
            // One that is paused, or was killed without its machine's notice, does not answer either.
            Some(RequestFailure::NoResponders | RequestFailure::TimedOut) => self.is_own = true,
        }
        self.is_own.then_some(Event::Connected { envelope_bytes_max })
    }

    /// The question that is due. The engine brings a node nothing that it has sent itself.
    pub fn turn(&mut self, now_ms: u64) -> Option<Command> {
        self.ask_ms.take_if(|ask_ms| *ask_ms <= now_ms)?;
        let (subject, body) = Sessions::ping_to(self.name, &self.subjects);
        Some(Command::Request { number: OwnName::NUMBER, subject, body, timeout_ms: ANSWER_MS })
    }

    /// The time of the next question, in milliseconds.
    pub fn next_ms(&self) -> Option<u64> {
        self.ask_ms
    }
}

/// The longest wait for an answer, in milliseconds.
const ANSWER_MS: u64 = 2_000;
/// The time after which a node whose name is taken asks again, in milliseconds.
const ASK_AGAIN_MS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sessions::tests::tag;

    const CONNECTED: Event = Event::Connected { envelope_bytes_max: 1_000 };

    fn own_name() -> OwnName {
        OwnName::new(tag(1), Subjects::of("test").expect("a name"))
    }

    fn answered(answer: Result<Bytes, RequestFailure>) -> Event {
        Event::Answered { number: OwnName::NUMBER, answer }
    }

    #[test]
    fn a_node_takes_part_when_nobody_else_answers_to_its_name() {
        for failure in [RequestFailure::NoResponders, RequestFailure::TimedOut] {
            let mut own = own_name();
            assert!(own.turn(1).is_none() && own.take(1, CONNECTED).is_none());
            assert_eq!(own.next_ms(), Some(1));
            let Some(Command::Request { subject, .. }) = own.turn(1) else { panic!("no question") };
            assert_eq!(subject, format!("encke.test.n.{}", tag(1).as_str()));
            assert!(own.turn(1).is_none(), "one question at a time");
            assert!(
                matches!(own.take(2, Event::Failed("x".into())), Some(Event::Failed(_))),
                "others know of the rest"
            );
            let event = own.take(3, answered(Err(failure)));
            assert!(matches!(event, Some(Event::Connected { envelope_bytes_max: 1_000 })));
            assert!(!own.is_taken() && own.next_ms().is_none());
            assert!(own.take(9, CONNECTED).is_some(), "it has asked once");
        }
    }

    #[test]
    fn a_node_whose_name_another_one_has_stays_alone_until_that_is_gone() {
        let mut own = own_name();
        _ = own.take(1, CONNECTED);
        _ = own.turn(1);
        assert!(own.take(2, answered(Ok(Bytes::new()))).is_none());
        assert!(own.is_taken() && own.turn(2 + ASK_AGAIN_MS - 1).is_none());
        assert!(own.turn(2 + ASK_AGAIN_MS).is_some());
        let event = own.take(2 + ASK_AGAIN_MS, answered(Err(RequestFailure::NoResponders)));
        assert!(event.is_some() && !own.is_taken());
    }

    #[test]
    fn the_question_is_asked_again_when_the_engine_was_away() {
        let mut own = own_name();
        _ = own.take(1, CONNECTED);
        _ = own.turn(1);
        assert!(matches!(own.take(2, Event::Disconnected), Some(Event::Disconnected)));
        assert!(own.take(2, answered(Err(RequestFailure::Away))).is_none() && own.next_ms().is_none());
        assert!(own.take(3, CONNECTED).is_none() && own.turn(3).is_some());
    }
}
