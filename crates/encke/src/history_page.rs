//! A page of a history, for handles and the HTTP API.

use std::sync::Arc;

use bayeux::RawJson;
use encke_core::history::{Entry, Ring, within};
use encke_local::Position;

/// Messages of the history of a channel, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryPage {
    /// The life of the history. A channel whose history was lost begins a new epoch.
    pub epoch: Arc<str>,
    /// The offset of the oldest message that the history retains.
    pub oldest: u64,
    /// The offset of the next message that will be published.
    pub next: u64,
    /// False if messages between the requested offset and the first one of this page are not retained any more.
    pub is_complete: bool,
    /// The messages. The page ends before `limit` messages if they have more than 4 MiB, but has one at least.
    pub messages: Vec<StoredMessage>,
}

/// A message of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredMessage {
    /// Its position.
    pub position: Position,
    /// The time when it was published, in milliseconds since 1970.
    pub time_ms: u64,
    json: Box<str>,
}

impl HistoryPage {
    /// Reads up to `limit` messages after an offset, or from the oldest one.
    pub(crate) fn read(ring: &Ring, after: Option<u64>, limit: usize) -> HistoryPage {
        let first = after.map_or(ring.oldest(), |after| after.saturating_add(1));
        let entries = within(ring.from(first), limit, HISTORY_BYTES_MAX);
        let message = |entry: &Entry| StoredMessage {
            position: Position { epoch: ring.epoch().clone(), offset: entry.offset },
            time_ms: entry.wall_ms,
            json: entry.text.clone(),
        };
        HistoryPage {
            epoch: ring.epoch().clone(),
            oldest: ring.oldest(),
            next: ring.next(),
            is_complete: first >= ring.oldest(),
            messages: entries.map(message).collect(),
        }
    }
}

impl StoredMessage {
    /// The whole message: a JSON object with `channel` and `data`.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The same as a text that is owned.
    pub(crate) fn into_json(self) -> String {
        self.json.into()
    }

    /// The published value as raw JSON; `null` if there is none.
    pub fn data(&self) -> &str {
        RawJson::trusted(&self.json).member("data").map_or("null", |data| data.as_str())
    }
}

/// Bytes of messages in one page, but at least one message.
const HISTORY_BYTES_MAX: usize = 4 << 20;
