//! Bayeux messages as this client reads and writes them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::dialog::Place;

/// A message of a channel that the session subscribed to, or one sent to the session alone.
#[derive(Clone, Debug)]
pub struct Message {
    /// The channel it was published on.
    pub channel: String,
    /// Its data, byte for byte as the server sent it; `null` if it has none.
    pub data: Box<RawValue>,
    /// The id of the message it answers, if it is the answer of a service (Bayeux 1.0 §2.2.2).
    pub id: Option<u64>,
    /// Whether a service answers that it failed.
    pub failed: bool,
    /// Where it stands in the history of its channel, if the session replays and the channel has one.
    pub place: Option<Place>,
}

/// Any message from the server, a reply or a delivery, borrowed from the text that brought it.
#[derive(Debug, Deserialize)]
pub struct Incoming<'a> {
    /// The channel.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    /// Whether the server did what was asked; in replies only.
    pub successful: Option<bool>,
    /// What was published, as raw JSON; in deliveries.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
    /// What the server's extensions added, as raw JSON; see [`Incoming::ext_field`].
    #[serde(borrow, default)]
    pub ext: Option<&'a RawValue>,
    error: Option<String>,
    #[serde(rename = "clientId")]
    pub(crate) client_id: Option<Box<str>>,
    pub(crate) advice: Option<Advice>,
}

/// How the server wants to be called again (Bayeux 1.0 §3.6).
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Advice {
    pub(crate) reconnect: Option<Reconnect>,
    /// Pause before the next connect, in milliseconds.
    pub(crate) interval: Option<i64>,
    /// How long a connect is held, in milliseconds.
    pub(crate) timeout: Option<u64>,
}

/// What to do after a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reconnect {
    /// Connect again.
    Retry,
    /// The session is gone; handshake anew.
    Handshake,
    /// Stay away.
    None,
}

/// Any message to the server.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Envelope<'a> {
    pub(crate) channel: &'a str,
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) supported_connection_types: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connection_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscription: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<AdviceRequest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ext: Option<Map<String, Value>>,
}

/// What a client asks for with a connect.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AdviceRequest {
    /// In milliseconds; 0 asks for a reply at once.
    pub(crate) timeout: u64,
}

impl<'a> Incoming<'a> {
    /// The messages of one carrier message: an array, or a message alone.
    pub(crate) fn parse(text: &'a str) -> Result<Vec<Incoming<'a>>, serde_json::Error> {
        if text.trim_start().starts_with('[') {
            serde_json::from_str(text)
        } else {
            serde_json::from_str(text).map(|message| vec![message])
        }
    }

    /// The id of the message it answers. Servers may echo ids as strings or as numbers; ids that are none of ours are none.
    pub fn id(&self) -> Option<u64> {
        self.id?.get().trim_matches('"').parse().ok()
    }

    /// One field of its `ext`.
    pub fn ext_field(&self, name: &str) -> Option<Value> {
        let mut ext: Map<String, Value> = serde_json::from_str(self.ext?.get()).ok()?;
        ext.remove(name)
    }

    /// Whether it is a reply of the protocol. A message with data is a delivery, also the answer of a service.
    pub fn is_reply(&self) -> bool {
        self.is_meta() || (self.successful.is_some() && self.data.is_none())
    }

    pub(crate) fn is_meta(&self) -> bool {
        self.channel.starts_with("/meta/")
    }

    /// What a reply says: the Bayeux error if it is not successful.
    pub(crate) fn outcome(&mut self) -> Result<(), String> {
        match self.successful {
            Some(true) => Ok(()),
            _ => Err(self.error.take().unwrap_or_else(|| "without a reason".into())),
        }
    }

    /// What the server wants to be done now; without advice, a code for an unknown session (402, Faye's 401) asks for a
    /// handshake.
    pub(crate) fn reconnect(&self) -> Option<Reconnect> {
        let code = self.error.as_deref().and_then(|error| error.get(..3));
        let unknown = matches!(code, Some("401" | "402")) && self.successful != Some(true);
        self.advice.and_then(|advice| advice.reconnect).or(unknown.then_some(Reconnect::Handshake))
    }

    /// What remains of a delivery.
    pub(crate) fn into_message(self, place: Option<Place>) -> Message {
        let (id, failed) = (self.id(), self.successful == Some(false));
        let data = self.data.unwrap_or(RawValue::NULL).to_owned();
        Message { channel: self.channel.into_owned(), data, id, failed, place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_kept_byte_for_byte() {
        let text = r#"[{"channel":"/a","data":{"n":12345678901234567890, "x":1.0e400}}]"#;
        let message = Incoming::parse(text).expect("valid").remove(0).into_message(None);
        assert_eq!(message.data.get(), r#"{"n":12345678901234567890, "x":1.0e400}"#);
    }

    #[test]
    fn a_reply_is_told_from_a_delivery() {
        let text = r#"[{"channel":"/a","successful":true,"id":7},{"channel":"/a","data":1,"id":"7"},
            {"channel":"/service/echo","id":"7","data":1,"successful":true},{"channel":"/meta/connect","successful":true}]"#;
        let replies: Vec<bool> = Incoming::parse(text).expect("valid").iter().map(Incoming::is_reply).collect();
        assert_eq!(replies, [true, false, false, true]);
    }

    #[test]
    fn an_id_may_come_back_as_a_number() {
        let text = r#"[{"channel":"/a","id":7},{"channel":"/a","id":"7"},{"channel":"/a","id":"7x"},{"channel":"/a"}]"#;
        let ids: Vec<Option<u64>> = Incoming::parse(text).expect("valid").iter().map(Incoming::id).collect();
        assert_eq!(ids, [Some(7), Some(7), None, None]);
    }

    #[test]
    fn a_field_of_ext_is_found() {
        let messages = Incoming::parse(r#"{"channel":"/meta/connect","ext":{"ack":3}}"#).expect("valid");
        assert_eq!(messages[0].ext_field("ack"), Some(Value::from(3)));
        assert_eq!(messages[0].ext_field("replay"), None);
    }
}
