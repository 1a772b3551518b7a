//! The messages of a server as a client reads them: replies and deliveries.

use std::borrow::Cow;

use crate::advice::{Advice, Reconnect};
use crate::batch::{BatchError, read_batch, read_fields};
use crate::channel::is_meta;
use crate::error::{BayeuxError, ErrorField};
use crate::json::{DEPTH_CAP, RawJson, RawString, Scanner};
use crate::limits::SERVER_BATCH_MESSAGES_MAX;
use crate::message::raw_text;

/// One message of a server, as [`Reply`](crate::Reply) and [`Publication`](crate::Publication) write it. It borrows from
/// the text.
///
/// ```
/// use bayeux::server_message::{ServerMessage, parse_server_batch};
///
/// let text = r#"[{"channel":"/a","data":{"n":1e400}},{"channel":"/meta/connect","id":"2","successful":true}]"#;
/// let messages = parse_server_batch(text)?;
/// assert_eq!(messages[0].data.map(|data| data.as_str()), Some(r#"{"n":1e400}"#));
/// assert!(!messages[0].is_reply() && messages[1].is_reply());
/// assert_eq!(messages[1].number(), Some(2));
/// # Ok::<(), bayeux::server_message::ServerBatchError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServerMessage<'a> {
    /// The channel.
    pub channel: Cow<'a, str>,
    /// The id of the message that it answers; some servers echo it as a number.
    pub id: Option<Cow<'a, str>>,
    /// The session's id, in the reply to a handshake.
    pub client_id: Option<Cow<'a, str>>,
    /// True if the server has processed the message with success; in replies only.
    pub successful: Option<bool>,
    /// The error of a reply that is not successful; see [`ServerMessage::error_field`].
    pub error: Option<Cow<'a, str>>,
    /// The channels of a reply to a subscribe or unsubscribe.
    pub subscription: Option<RawJson<'a>>,
    /// The published value; in deliveries.
    pub data: Option<RawJson<'a>>,
    /// An object with the fields of extensions.
    pub ext: Option<RawJson<'a>>,
    /// The server's advice on what to do next.
    pub advice: Option<Advice>,
    /// The time at which it was published or sent.
    pub timestamp: Option<RawJson<'a>>,
}

/// A text that no Bayeux server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerBatchError {
    /// It is not JSON.
    #[error("not JSON")]
    NotJson,
    /// It is neither an array of objects nor an object.
    #[error("not an array of messages")]
    NotMessages,
    /// One of the messages has no channel.
    #[error("a message without a channel")]
    ChannelMissing,
    /// It has more than [`SERVER_BATCH_MESSAGES_MAX`] messages.
    #[error("too many messages in one text")]
    TooManyMessages,
}

/// Reads one text of a server: an array of messages, which may be empty, or a lone message. All or nothing.
///
/// # Errors
/// The text is not Bayeux.
pub fn parse_server_batch(text: &str) -> Result<Vec<ServerMessage<'_>>, ServerBatchError> {
    let messages = match read_batch(text, SERVER_BATCH_MESSAGES_MAX, ServerMessage::read) {
        Ok(messages) => messages,
        Err(BatchError::Empty) => Vec::new(),
        Err(BatchError::TooLong) => return Err(ServerBatchError::TooManyMessages),
        Err(BatchError::MessageNotObject) => return Err(ServerBatchError::NotMessages),
        Err(BatchError::JsonInvalid | BatchError::JsonTooDeep) => return Err(ServerBatchError::NotJson),
    };
    // If the field is absent or not a valid string, the name stays empty, which is no channel.
    let is_whole = messages.iter().all(|message| !message.channel.is_empty());
    if is_whole { Ok(messages) } else { Err(ServerBatchError::ChannelMissing) }
}

impl<'a> ServerMessage<'a> {
    fn read(scanner: &mut Scanner<'a>, message: &mut ServerMessage<'a>) -> Result<(), BatchError> {
        read_fields(scanner, DEPTH_CAP, |key, value| message.set(key, value))
    }

    fn set(&mut self, key: RawString<'a>, value: RawJson<'a>) {
        let Some(key) = key.decode() else { return };
        let present = Some(value).filter(|value| !value.is_null());
        match &*key {
            "channel" => self.channel = value.text().unwrap_or_default(),
            "id" => self.id = present.and_then(|raw| raw_text(raw, RawJson::text)),
            "clientId" => self.client_id = value.text(),
            "successful" => self.successful = present.map(|value| value.as_str() == "true"),
            "error" => self.error = value.text(),
            "subscription" => self.subscription = present,
            "data" => self.data = Some(value),
            "ext" => self.ext = present,
            "advice" => self.advice = Advice::read(value),
            "timestamp" => self.timestamp = present,
            _ => {}
        }
    }

    /// The id as a number, for clients that number their messages; `None` for any other id.
    pub fn number(&self) -> Option<u64> {
        self.id.as_deref()?.parse().ok()
    }

    /// True for a message of the protocol.
    pub fn is_meta(&self) -> bool {
        is_meta(&self.channel)
    }

    /// True for a reply of the protocol. A message with data is a delivery, also the answer of a service.
    pub fn is_reply(&self) -> bool {
        self.is_meta() || (self.successful.is_some() && self.data.is_none())
    }

    /// The parts of [`ServerMessage::error`].
    pub fn error_field(&self) -> Option<ErrorField<'_>> {
        self.error.as_deref().map(ErrorField::parse)
    }

    /// The next step according to the server; without advice, the code for an unknown session (402, Faye's 401) asks for a
    /// handshake.
    pub fn reconnect(&self) -> Option<Reconnect> {
        let code = self.error_field().filter(|_| self.successful != Some(true)).and_then(|error| error.code);
        let is_unknown = code.is_some_and(|code| code == 401 || code == BayeuxError::SessionUnknown.code());
        self.advice.and_then(|advice| advice.reconnect).or(is_unknown.then_some(Reconnect::Handshake))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<ServerMessage<'_>> {
        parse_server_batch(text).expect(text)
    }

    #[test]
    fn data_is_unchanged_byte_for_byte() {
        let message = parsed(r#"[{"channel":"/a","data":{"n":12345678901234567890, "x":1.0e400}}]"#).remove(0);
        assert_eq!(message.data.map(RawJson::as_str), Some(r#"{"n":12345678901234567890, "x":1.0e400}"#));
        assert_eq!(parsed(r#"{"channel":"/a","data":null}"#)[0].data, Some(RawJson::NULL));
    }

    #[test]
    fn a_reply_is_distinguished_from_a_delivery() {
        let text = r#"[{"channel":"/a","successful":true,"id":7},{"channel":"/a","data":1,"id":"7"},
            {"channel":"/service/echo","id":"7","data":1,"successful":true},{"channel":"/meta/connect","successful":true}]"#;
        let replies: Vec<bool> = parsed(text).iter().map(ServerMessage::is_reply).collect();
        assert_eq!(replies, [true, false, false, true]);
    }

    #[test]
    fn an_id_may_come_back_as_a_number() {
        let text = r#"[{"channel":"/a","id":7},{"channel":"/a","id":"7"},{"channel":"/a","id":"7x"},{"channel":"/a"}]"#;
        let ids: Vec<Option<u64>> = parsed(text).iter().map(ServerMessage::number).collect();
        assert_eq!(ids, [Some(7), Some(7), None, None]);
    }

    #[test]
    fn an_unknown_session_asks_for_a_handshake_unless_the_server_advises_otherwise() {
        for (fields, reconnect) in [
            (r#""successful":false,"error":"402::session_unknown""#, Some(Reconnect::Handshake)),
            (r#""successful":false,"error":"401:c1:Unknown client""#, Some(Reconnect::Handshake)),
            (r#""successful":false,"error":"402::x","advice":{"reconnect":"none"}"#, Some(Reconnect::None)),
            (r#""successful":false,"error":"403::no""#, None),
            (r#""successful":true,"error":"402::odd""#, None),
            (r#""successful":true,"advice":{"reconnect":"retry"}"#, Some(Reconnect::Retry)),
        ] {
            let text = format!(r#"{{"channel":"/meta/connect",{fields}}}"#);
            assert_eq!(parsed(&text)[0].reconnect(), reconnect, "{fields}");
        }
    }

    #[test]
    fn a_text_has_so_many_messages_at_most() {
        let text = |messages: usize| format!("[{}]", vec![r#"{"channel":"/a"}"#; messages].join(","));
        assert_eq!(parsed(&text(SERVER_BATCH_MESSAGES_MAX)).len(), SERVER_BATCH_MESSAGES_MAX);
        let refused = text(SERVER_BATCH_MESSAGES_MAX + 1);
        assert_eq!(parse_server_batch(&refused).err(), Some(ServerBatchError::TooManyMessages));
    }

    #[test]
    fn a_text_that_is_not_bayeux_is_refused_whole() {
        for (text, error) in [
            ("", ServerBatchError::NotJson),
            ("<html>", ServerBatchError::NotJson),
            (r#"[{"channel":"/a""#, ServerBatchError::NotJson),
            ("7", ServerBatchError::NotMessages),
            ("[7]", ServerBatchError::NotMessages),
            (r#"[{"channel":"/a","data":1},{"no":"channel"}]"#, ServerBatchError::ChannelMissing),
            (r#"{"channel":7}"#, ServerBatchError::ChannelMissing),
        ] {
            assert_eq!(parse_server_batch(text).err(), Some(error), "{text}");
        }
        assert!(parsed("[]").is_empty());
    }
}
