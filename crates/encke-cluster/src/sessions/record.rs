//! The record of a session in the engine's keys: the node that has the session, and the state from which another one goes on. Keys
//! hold a hash of the id, because the id is the secret of the session's client.
//!
//! ```text
//!   absent ── has connected ──▶ live, of node a ── taken ──▶ live, of node b ── has ended ──▶ ended, for a while
//! ```
//!
//! An ended session leaves its end in the place of the record, so that no node that has a copy of the session takes the missing
//! record for one that the engine has lost.

use std::fmt;

use bytes::Bytes;
use encke_core::{Id, NodeTag};
use sha2::{Digest, Sha256};

use crate::hex;
use crate::histories::MARK_BYTES;

/// The hash of a session's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key([u8; KEY_BYTES]);

/// The bytes of a key: half of the hash.
pub(super) const KEY_BYTES: usize = 16;

impl Key {
    /// The key of a session.
    pub(super) fn of(id: &Id) -> Key {
        let hash = Sha256::new().chain_update(b"encke session ").chain_update(id.as_str()).finalize();
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&hash[..KEY_BYTES]);
        Key(key)
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key with these bytes. None if they are too few or too many.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Key> {
        bytes.try_into().ok().map(Key)
    }

    /// The key at the engine.
    pub(super) fn text(&self) -> String {
        hex::of(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text()[..8])
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A node has the session, or had it when it ended without notice.
    Live {
        /// The node.
        node: NodeTag,
        /// The state.
        content: Content,
    },
    /// The session has ended.
    Ended,
}

/// The state of a session from which another node goes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    /// The mark up to which its client has confirmed all messages of histories, if this is not the mark of its node. Empty if it cannot be
    /// known any more.
    pub(super) mark: Option<Bytes>,
    /// All that its shard restores.
    pub(super) state: Bytes,
}

impl Content {
    /// The state of a session that no other node can go on with.
    pub(super) fn empty() -> Content {
        Content { mark: None, state: Bytes::new() }
    }

    /// The bytes of its record, and of that of a node that takes the session with a mark.
    pub(super) fn record_bytes(&self) -> usize {
        let mark = self.mark.as_ref().map_or(0, Bytes::len).max(MARK_BYTES);
        HEAD_BYTES + LENGTH_BYTES + mark + self.state.len()
    }
}

impl Record {
    /// Writes it.
    pub(super) fn write(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        match self {
            Record::Ended => bytes.push(ENDED),
            Record::Live { node, content: Content { mark, state } } => {
                bytes.push(if mark.is_some() { LIVE_SINCE } else { LIVE });
                bytes.extend_from_slice(node.as_str().as_bytes());
                if let Some(mark) = mark {
                    bytes.extend_from_slice(&(mark.len() as u32).to_le_bytes());
                    bytes.extend_from_slice(mark);
                }
                bytes.extend_from_slice(state);
            }
        }
        bytes.into()
    }

    /// Reads it. None if this is none, or one of another version.
    pub(super) fn read(value: &Bytes) -> Option<Record> {
        match value.get(..2)? {
            [VERSION, ENDED] => Some(Record::Ended),
            [VERSION, kind @ (LIVE | LIVE_SINCE)] => {
                let node = NodeTag::parse(str::from_utf8(value.get(2..HEAD_BYTES)?).ok()?)?;
                let mut state = value.slice(HEAD_BYTES..);
                let mut mark = None;
                if *kind == LIVE_SINCE {
                    let length = u32::from_le_bytes(*state.first_chunk::<LENGTH_BYTES>()?) as usize;
                    let end = LENGTH_BYTES.checked_add(length).filter(|end| *end <= state.len())?;
                    mark = Some(state.slice(LENGTH_BYTES..end));
                    state = state.slice(end..);
                }
                Some(Record::Live { node, content: Content { mark, state } })
            }
            _ => None,
        }
    }
}

/// A record as a store sees it that shows more of sessions than bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordView {
    /// A node has the session, or had it when it ended without notice.
    Live {
        /// The node.
        node: NodeTag,
        /// The state, as [`SessionsSettings::encode`](crate::SessionsSettings::encode) has written it. Empty if it was too large.
        state: Bytes,
    },
    /// The session has ended.
    Ended,
}

impl RecordView {
    /// The view of a record. None if this is none.
    pub fn of(record: &Bytes) -> Option<RecordView> {
        Some(match Record::read(record)? {
            Record::Live { node, content } => RecordView::Live { node, state: content.state },
            Record::Ended => RecordView::Ended,
        })
    }

    /// The record of a session that has ended.
    pub fn ended() -> Bytes {
        Record::Ended.write()
    }
}

const VERSION: u8 = 1;
const ENDED: u8 = 0;
const LIVE: u8 = 1;
/// With a mark before the state.
const LIVE_SINCE: u8 = 2;
const LENGTH_BYTES: usize = 4;
/// The bytes before the state: the version, the kind, and the node.
pub(super) const HEAD_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{id, tag};

    #[test]
    fn a_record_reads_back_and_nothing_else_is_one() {
        let live = |mark: Option<&'static [u8]>| {
            let content = Content { mark: mark.map(Bytes::from_static), state: Bytes::from_static(b"{}") };
            Record::Live { node: tag(3), content }
        };
        for record in [Record::Ended, live(None), live(Some(b"")), live(Some(b"mark"))] {
            let view = match &record {
                Record::Live { node, content } => RecordView::Live { node: *node, state: content.state.clone() },
                Record::Ended => RecordView::Ended,
            };
            assert_eq!((RecordView::of(&record.write()), Record::read(&record.write())), (Some(view), Some(record)));
        }
        assert_eq!(RecordView::of(&RecordView::ended()), Some(RecordView::Ended));
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x02\x00",
            b"\x01\x07",
            b"\x01\x01abc",
            b"\x01\x01ab.c{}",
            b"\x01\x01\xff\xff\xff\xff",
            b"\x01\x02abcd\x01\0\0",
            b"\x01\x02abcd\x03\0\0\0{}",
        ] {
            assert_eq!(Record::read(&Bytes::copy_from_slice(bytes)), None);
        }
    }

    #[test]
    fn a_key_does_not_show_the_id() {
        let (one, other) = (Key::of(&id(1, 0)), Key::of(&id(2, 0)));
        assert!(one != other && one.text().len() == 32 && !one.text().contains(&id(1, 0).as_str()[..8]));
        assert_eq!((Key::from_bytes(one.bytes()), Key::from_bytes(b"short")), (Some(one), None));
    }
}
