//! Pages of histories, which a client reads without a subscription.

use bayeux::{Position as Borrowed, RawJson};
use serde_json::{Map, Value};

use crate::{Client, Error, Message, Position};

/// The part of a history to be read: the latest messages, those after a position, those before one, or those between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryQuery {
    /// Only messages after this one. A page then begins with the oldest of them, otherwise it ends with the newest.
    pub after: Option<Position>,
    /// Only messages before this one.
    pub before: Option<Position>,
    /// The most messages; without it 100. The server has a limit, too: 1,000.
    pub limit: Option<u32>,
}

/// Messages of the history of a channel, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryPage {
    /// The messages, each with its position.
    pub messages: Vec<Message>,
    /// False if messages between the position of the query and this page are not retained any more.
    pub recovered: bool,
    /// True if the server retains messages before the first one.
    pub earlier: bool,
    /// True if the server retains messages after the last one.
    pub later: bool,
    /// The position of the newest message of the channel; `None` if it has no history.
    pub latest: Option<Position>,
}

impl HistoryQuery {
    /// The latest messages, up to this number.
    pub fn last(messages: u32) -> HistoryQuery {
        HistoryQuery { limit: Some(messages), ..HistoryQuery::default() }
    }

    /// The messages after a position.
    pub fn after(position: Position) -> HistoryQuery {
        HistoryQuery { after: Some(position), ..HistoryQuery::default() }
    }

    /// The messages before a position: the page before one that begins there.
    pub fn before(position: Position) -> HistoryQuery {
        HistoryQuery { before: Some(position), ..HistoryQuery::default() }
    }

    /// The same query for a page of at most this number of messages.
    #[must_use]
    pub fn limit(self, messages: u32) -> HistoryQuery {
        HistoryQuery { limit: Some(messages), ..self }
    }

    fn to_json(&self, channel: &str) -> Value {
        let text = |position: &Position| format!("{}-{}", position.epoch, position.offset);
        let mut query = Map::from_iter([("channel".into(), channel.into())]);
        for (name, position) in [("after", &self.after), ("before", &self.before)] {
            query.extend(position.as_ref().map(|position| (name.into(), text(position).into())));
        }
        query.extend(self.limit.map(|limit| ("limit".into(), limit.into())));
        query.into()
    }
}

impl HistoryPage {
    /// The query for the page before this one, if the server retains one.
    pub fn previous(&self) -> Option<HistoryQuery> {
        let first = self.messages.first().filter(|_| self.earlier)?;
        first.position.clone().map(HistoryQuery::before)
    }

    /// The query for the page after this one, if the server has one already.
    pub fn next(&self) -> Option<HistoryQuery> {
        let last = self.messages.last().filter(|_| self.later)?;
        last.position.clone().map(HistoryQuery::after)
    }

    fn read(answer: RawJson<'_>) -> HistoryPage {
        let is_true = |name| answer.member(name).is_some_and(|value| value.as_str() == "true");
        let messages = answer.member("messages");
        HistoryPage {
            messages: messages.into_iter().flat_map(RawJson::elements).filter_map(message).collect(),
            recovered: is_true("recovered"),
            earlier: is_true("earlier"),
            later: is_true("later"),
            latest: answer.member("latest").and_then(position),
        }
    }
}

impl Client {
    /// Reads a page of the history of a channel, with the rights of a subscriber. The channel needs no subscription.
    ///
    /// ```no_run
    /// # use encke_client::{Client, Error, HistoryQuery};
    /// # async fn example(client: &Client) -> Result<(), Error> {
    /// let mut page = client.read_history("/chat/room", &HistoryQuery::last(50)).await?;
    /// while let Some(earlier) = page.previous() {
    ///     page = client.read_history("/chat/room", &earlier.limit(50)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server refuses ([`Error::Refused`]): the client may not read the channel, or this is no server of Encke; or as
    /// [`Client::request`].
    pub async fn read_history(&self, channel: &str, query: &HistoryQuery) -> Result<HistoryPage, Error> {
        let answer = self.request(SERVICE, &query.to_json(channel)).await?;
        Ok(HistoryPage::read(answer.data()))
    }
}

/// A message of a page.
fn message(raw: RawJson<'_>) -> Option<Message> {
    let position = raw.member("position").and_then(position);
    Message::stored(raw, position)
}

/// Reads a position such as `k3jd9a2f-17`.
fn position(raw: RawJson<'_>) -> Option<Position> {
    let text = raw.text()?;
    let (epoch, offset) = text.rsplit_once('-')?;
    Some(Borrowed { epoch: epoch.to_owned().into(), offset: offset.parse().ok()? })
}

/// The service that reads histories.
const SERVICE: &str = "/service/history/read";

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"{"channel":"/a","messages":[{"channel":"/a","data":7,"ext":{"x":1},"position":"e-f-3"},{"data":1},
        {"channel":"/a","data":{"n":8},"position":"e-f-4"}],"recovered":true,"earlier":true,"later":false,"latest":"e-f-4"}"#;

    #[test]
    fn a_page_has_messages_with_positions_and_the_queries_for_its_neighbours() {
        let page = HistoryPage::read(RawJson::parse(PAGE).expect("JSON"));
        let position = |offset| Position { epoch: "e-f".into(), offset };
        let messages: Vec<_> = page.messages.iter().map(|it| (it.data().as_str(), it.position.clone())).collect();
        assert_eq!(messages, [("7", Some(position(3))), (r#"{"n":8}"#, Some(position(4)))]);
        assert!(page.recovered && page.messages[0].ext().is_some());
        assert_eq!((page.latest.clone(), page.next()), (Some(position(4)), None));
        let query = page.previous().expect("an earlier page").limit(5);
        assert_eq!(query.to_json("/a").to_string(), r#"{"before":"e-f-3","channel":"/a","limit":5}"#);
        assert_eq!(HistoryQuery::last(9).to_json("/b").to_string(), r#"{"channel":"/b","limit":9}"#);
    }

    #[test]
    fn an_answer_that_is_no_page_is_an_empty_one() {
        for text in ["null", "[]", r#"{"messages":5,"latest":1}"#, r#"{"messages":[1,"x"],"latest":"e"}"#] {
            assert_eq!(HistoryPage::read(RawJson::parse(text).expect("JSON")), HistoryPage::default(), "{text}");
        }
    }
}
