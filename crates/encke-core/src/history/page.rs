//! Pages of a history, for clients that read it without a subscription: oldest first, in either direction from a position.

use bayeux::ext::{PositionForm, PositionStamp};
use bayeux::{Position, escape_into};

use crate::history::ring::{Entry, Ring};

/// The part of a history that a client asks for: the messages after a position, those before one, or the latest ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    after: Option<Position<'static>>,
    before: Option<Position<'static>>,
    limit: usize,
}

/// A page of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The JSON object.
    pub json: String,
    /// The number of its messages.
    pub messages: usize,
    /// True if messages of the channel are compressed.
    pub compresses: bool,
}

impl HistoryQuery {
    /// Positions are texts such as `k3jd9a2f-17`. `limit`: the most messages, within the server's limit. None if a text is no
    /// position.
    pub fn new(before: Option<&str>, after: Option<&str>, limit: Option<i64>) -> Option<HistoryQuery> {
        let limit = limit.map_or(LIMIT_DEFAULT, |limit| limit.clamp(1, LIMIT_MAX));
        Some(HistoryQuery { after: position(after)?, before: position(before)?, limit: limit as usize })
    }

    /// The page of a channel. None is the ring of a channel that has none.
    pub fn page(&self, channel: &str, ring: Option<&Ring>) -> HistoryPage {
        let Some(ring) = ring else { return write(channel, None, &[], [self.after.is_none(), false, false]) };
        let is_of_ring = |position: &Position<'_>| *position.epoch == **ring.epoch();
        let known = |position: &Option<Position<'static>>| position.clone().filter(is_of_ring);
        let first = known(&self.after).map_or(0, |after| after.offset.saturating_add(1));
        let end = match &self.before {
            None => u64::MAX,
            Some(before) if is_of_ring(before) => before.offset,
            // Nothing is known of what was before it.
            Some(_) => 0,
        };
        let entries = ring.between(first, end);
        let mut found: Vec<&Entry> = match self.after {
            Some(_) => within(entries, self.limit, PAGE_BYTES_MAX).collect(),
            None => within(entries.rev(), self.limit, PAGE_BYTES_MAX).collect(),
        };
        if self.after.is_none() {
            found.reverse();
        }
        let bounds = match (found.first(), found.last()) {
            (Some(first), Some(last)) => (first.offset, last.offset + 1),
            _ if self.after.is_some() => (first, first),
            _ => (end, end),
        };
        let has = |from, to| ring.between(from, to).next().is_some();
        let has_all = |after: &Position<'_>| ring.has_all_after(after.offset, Some(&after.epoch));
        let is_complete = self.after.as_ref().is_none_or(has_all) && self.before.as_ref().is_none_or(is_of_ring);
        write(channel, Some(ring), &found, [is_complete, has(0, bounds.0), has(bounds.1, u64::MAX)])
    }
}

/// The first of these messages: at most `limit`, with at most `bytes_max` bytes, but at least one message.
pub fn within<'r>(
    entries: impl Iterator<Item = &'r Entry>,
    limit: usize,
    bytes_max: usize,
) -> impl Iterator<Item = &'r Entry> {
    let mut bytes = 0;
    entries.take(limit).take_while(move |entry| {
        let is_first = bytes == 0;
        bytes += entry.text.len();
        is_first || bytes <= bytes_max
    })
}

fn position(text: Option<&str>) -> Option<Option<Position<'static>>> {
    let Some(text) = text else { return Some(None) };
    let (epoch, offset) = text.rsplit_once('-')?;
    Some(Some(Position { epoch: epoch.to_owned().into(), offset: offset.parse().ok()? }))
}

/// Writes a page: its messages with their positions, if it is complete, and if the history retains earlier and later ones.
fn write(
    channel: &str,
    ring: Option<&Ring>,
    found: &[&Entry],
    [is_complete, earlier, later]: [bool; 3],
) -> HistoryPage {
    let mut json = b"{\"channel\":".to_vec();
    escape_into(channel, &mut json);
    json.extend_from_slice(b",\"messages\":[");
    let epoch = ring.map(|ring| ring.epoch().clone()).unwrap_or_default();
    for (at, entry) in found.iter().enumerate() {
        if at > 0 {
            json.push(b',');
        }
        let position = Position { epoch: (*epoch).into(), offset: entry.offset };
        PositionStamp { position, created: "", lost: None }.write(PositionForm::Plain, &entry.text, &mut json);
    }
    let latest = ring.and_then(|ring| Some(format!("\"{epoch}-{}\"", ring.next().checked_sub(1)?)));
    let latest = latest.unwrap_or_else(|| "null".into());
    let rest = format!("],\"recovered\":{is_complete},\"earlier\":{earlier},\"later\":{later},\"latest\":{latest}}}");
    json.extend_from_slice(rest.as_bytes());
    HistoryPage {
        json: String::from_utf8(json).unwrap_or_default(),
        messages: found.len(),
        compresses: ring.is_some_and(Ring::compresses),
    }
}

/// The messages of a page if its client names no number.
const LIMIT_DEFAULT: i64 = 100;
/// The most messages of a page.
const LIMIT_MAX: i64 = 1_000;
/// The most bytes of the messages of a page, but at least one message.
const PAGE_BYTES_MAX: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayeux::RawJson;
    use bayeux::json::{elements, integer, member};

    use super::*;
    use crate::HistoryTerms;
    use crate::limits::shares::{Amount, Shares, Urgency};
    use crate::side::Side;

    /// A ring with messages 10 to 19, of which the first five are gone.
    fn ring(epoch: &str, text: &str) -> Ring {
        let terms = HistoryTerms {
            messages_max: 5,
            age_max_ms: 60_000,
            bytes_max: usize::MAX,
            is_persistent: false,
            compresses: false,
        };
        let share = Shares::<u64>::default().take_regardless(0, None, Amount::of(1), Urgency::Common);
        let mut ring = Ring::new("/a", Arc::from(epoch), 1, terms, 10, share);
        for offset in 10..20 {
            let text = text.replace('#', &offset.to_string()).into();
            ring.append(Entry { offset: 0, text, at_ms: 0, wall_ms: 0, side: Side::Server, except: None });
        }
        ring
    }

    /// The offsets on a page, and what it says of the others: complete, earlier, later.
    fn page(before: Option<&str>, after: Option<&str>, limit: i64) -> (Vec<u64>, [bool; 3]) {
        let ring = ring("e", r#"{"channel":"/a","data":#}"#);
        let page = HistoryQuery::new(before, after, Some(limit)).expect("a query").page("/a", Some(&ring));
        let json = RawJson::parse(&page.json).expect("JSON");
        let text = |name: &str| json.member(name).expect("a member").as_str();
        assert_eq!([text("channel"), text("latest")], ["\"/a\"", "\"e-19\""]);
        let offset = |message: &str| {
            let offset = member(message, "data").and_then(integer).expect("a number");
            assert_eq!(member(message, "position"), Some(&*format!("\"e-{offset}\"")));
            offset as u64
        };
        let offsets: Vec<u64> = elements(text("messages")).map(offset).collect();
        assert_eq!(offsets.len(), page.messages);
        (offsets, ["recovered", "earlier", "later"].map(|name| text(name) == "true"))
    }

    #[test]
    fn a_page_is_the_latest_messages_or_those_before_or_after_a_position() {
        assert_eq!(page(None, None, 3), (vec![17, 18, 19], [true, true, false]));
        assert_eq!(page(None, None, 50), (vec![15, 16, 17, 18, 19], [true, false, false]));
        assert_eq!(page(Some("e-17"), None, 1), (vec![16], [true, true, true]));
        assert_eq!(page(Some("e-15"), None, 5), (vec![], [true, false, true]));
        assert_eq!(page(None, Some("e-16"), 2), (vec![17, 18], [true, true, true]));
        assert_eq!(page(None, Some("e-19"), 2), (vec![], [true, true, false]));
        assert_eq!(page(Some("e-19"), Some("e-16"), 9), (vec![17, 18], [true, true, true]));
    }

    #[test]
    fn a_page_after_a_position_that_is_gone_says_so_and_begins_with_the_oldest_message() {
        assert_eq!(page(None, Some("e-12"), 2), (vec![15, 16], [false, false, true]));
        assert_eq!(page(None, Some("f-17"), 2), (vec![15, 16], [false, false, true]));
        assert_eq!(page(Some("f-17"), None, 2), (vec![], [false, false, true]));
    }

    #[test]
    fn a_channel_without_a_ring_has_an_empty_page_and_a_page_has_a_limited_number_of_bytes() {
        let query = HistoryQuery::new(None, None, None).expect("a query");
        let empty = r#"{"channel":"/a","messages":[],"recovered":true,"earlier":false,"later":false,"latest":null}"#;
        assert_eq!(query.page("/a", None).json, empty);
        let long = format!(r#"{{"channel":"/a","data":"{}#"}}"#, "x".repeat(100_000));
        assert_eq!(query.page("/a", Some(&ring("e", &long))).messages, 2);
        let longer = format!(r#"{{"channel":"/a","data":"{}#"}}"#, "x".repeat(300_000));
        assert_eq!(query.page("/a", Some(&ring("e", &longer))).messages, 1);
        for text in ["", "e", "e-", "e-x", "-1e"] {
            assert_eq!(HistoryQuery::new(Some(text), None, None), None, "{text}");
        }
    }
}
