//! Messages of remote calls as bytes. All numbers are little-endian.
//!
//! ```text
//!   version 1 · 0 · node 8 · tag 4                                     a node is there
//!   version 1 · 1 · node 8 · number 8 · settled 8 · kind 1 · content   a call
//!   version 1 · content                                                an answer
//! ```

use bytes::Bytes;
use encke_core::NodeTag;

use super::CallKind;

/// A message to a node, or to all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A node is there.
    Hello(u64, NodeTag),
    /// A call.
    Call(Call),
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The node that calls.
    pub(super) node: u64,
    /// The number of the call, which grows.
    pub(super) number: u64,
    /// All calls of that node below this number have ended.
    pub(super) settled: u64,
    pub(super) kind: CallKind,
    pub(super) content: Bytes,
}

impl Message {
    /// Writes a message.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Message::Hello(node, tag) => {
                out.push(0);
                out.extend_from_slice(&node.to_le_bytes());
                out.extend_from_slice(tag.as_str().as_bytes());
            }
            Message::Call(call) => {
                out.push(1);
                [call.node, call.number, call.settled].iter().for_each(|number| out.extend(number.to_le_bytes()));
                out.push(call.kind as u8);
                out.extend_from_slice(&call.content);
            }
        }
        out
    }

    /// Reads a message. None if it is none.
    pub(super) fn read(bytes: &Bytes) -> Option<Message> {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let (node, rest) = number(rest)?;
        match head {
            [VERSION, 0] => Some(Message::Hello(node, NodeTag::parse(str::from_utf8(rest).ok()?)?)),
            [VERSION, 1] => {
                let (number_of_call, rest) = number(rest)?;
                let (settled, rest) = number(rest)?;
                let (kind, content) = rest.split_first()?;
                let kind = KINDS.get(usize::from(*kind)).copied()?;
                let content = bytes.slice_ref(content);
                Some(Message::Call(Call { node, number: number_of_call, settled, kind, content }))
            }
            _ => None,
        }
    }
}

/// Writes an answer.
pub(super) fn write_answer(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + content.len());
    out.push(VERSION);
    out.extend_from_slice(content);
    out
}

/// The content of an answer. None if it is none.
pub(super) fn read_answer(bytes: &Bytes) -> Option<Bytes> {
    bytes.strip_prefix(&[VERSION]).map(|content| bytes.slice_ref(content))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(number, rest)| (u64::from_le_bytes(*number), rest))
}

const VERSION: u8 = 1;
/// The kinds of calls by their bytes.
const KINDS: [CallKind; 3] = [CallKind::Question, CallKind::Command, CallKind::Order];
/// The bytes of a call beside its content.
pub(super) const HEAD_BYTES: usize = 2 + 3 * 8 + 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sessions::tests::tag;

    fn call() -> Message {
        call_of(CallKind::Command)
    }

    fn call_of(kind: CallKind) -> Message {
        Message::Call(Call { node: 7, number: 9, settled: 8, kind, content: Bytes::from_static(b"abc") })
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in [Message::Hello(7, tag(1))].into_iter().chain(KINDS.map(call_of)) {
            assert_eq!(Message::read(&message.write().into()), Some(message));
        }
        assert_eq!(call().write().len(), HEAD_BYTES + 3);
        assert_eq!(read_answer(&write_answer(b"abc").into()), Some(Bytes::from_static(b"abc")));
    }

    #[test]
    fn other_bytes_are_refused() {
        for length in 0..HEAD_BYTES {
            assert_eq!(Message::read(&call().write()[..length].to_vec().into()), None, "{length}");
        }
        for (at, byte) in [(0, 2), (1, 2), (HEAD_BYTES - 1, 3)] {
            let mut bytes = call().write();
            bytes[at] = byte;
            assert_eq!(Message::read(&bytes.into()), None, "{at}");
        }
        assert_eq!(read_answer(&Bytes::from_static(b"\x02abc")), None);
    }

    proptest! {
        #[test]
        fn no_bytes_end_in_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            _ = Message::read(&bytes.into());
        }
    }
}
