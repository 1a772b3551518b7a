//! Questions of who looks after the records of sessions: which nodes are gone.

use encke_core::NodeTag;

use super::message::Question;
use super::{Output, Sent, Sessions};
use crate::command::RequestFailure;
use crate::subject::Subjects;

impl Sessions {
    /// Asks if a node is there. [`Output::Probed`] has the outcome, which comes at once if this node cannot ask.
    pub fn probe(&mut self, node: NodeTag) {
        if self.is_connected {
            self.ask(Sent::Probe(node), node, &Question::Ping, PROBE_MS);
        } else {
            self.probe_answered(node, Some(RequestFailure::Away));
        }
    }

    /// The question to a node if it is there: its subject, and its bytes.
    pub(crate) fn ping_to(node: NodeTag, subjects: &Subjects) -> (String, Vec<u8>) {
        (subjects.of_node(node), Question::Ping.write())
    }

    /// A node has answered, or has not. One that is only slow is there.
    pub(super) fn probe_answered(&mut self, node: NodeTag, failure: Option<RequestFailure>) {
        self.outputs.push(Output::Probed(node, failure == Some(RequestFailure::NoResponders)));
    }

    /// The records were out of reach, and are there again: some may be lost, or those of others.
    pub fn records_are_back(&mut self) {
        self.records.look_again();
    }
}

/// The longest wait for the answer of a node, in milliseconds.
const PROBE_MS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::command::Command;
    use crate::sessions::tests::{settings, tag};

    #[test]
    fn a_node_is_gone_only_if_the_engine_knows_nobody_with_its_name() {
        let mut sessions = Sessions::new(settings(0));
        let outcome = |sessions: &mut Sessions| match sessions.take_outputs().pop() {
            Some(Output::Probed(node, is_gone)) => (node, is_gone),
            other => panic!("{other:?}"),
        };
        sessions.probe(tag(1));
        assert_eq!(outcome(&mut sessions), (tag(1), false), "nobody can say");
        sessions.connected(1, 1 << 20);
        let answers = [
            (Ok(Bytes::new()), false),
            (Err(RequestFailure::TimedOut), false),
            (Err(RequestFailure::Away), false),
            (Err(RequestFailure::NoResponders), true),
        ];
        for (answer, is_gone) in answers {
            sessions.probe(tag(1));
            let Some(Output::Engine(Command::Request { number, .. })) = sessions.take_outputs().pop() else {
                panic!("no question")
            };
            sessions.answered(2, number, answer);
            assert_eq!(outcome(&mut sessions), (tag(1), is_gone));
        }
    }
}
