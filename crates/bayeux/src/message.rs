//! The messages of a client: the server reads them without building a tree, the client writes them.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::advice::ClientAdvice;
use crate::batch::{BatchError, read_batch, read_fields};
use crate::error::BayeuxError;
use crate::json::{self, RawJson, RawString, Scanner, Sink, escape, escape_into, raw_field, text_field};
use crate::limits::Limits;

/// One message of a client (Bayeux 1.0, "Message field definitions").
///
/// [`parse_batch`] makes it from a text and borrows from that text: [`RawJson`] fields are slices of it. A field that is
/// `null` counts as absent, except `data`, where `null` is a value. Fields that only a server sends (`successful`, `error`,
/// …) are dropped, so that a publisher cannot send them to subscribers in the server's name. Fields that Bayeux does not
/// define are in `custom`.
///
/// A client fills in the same type and calls [`Message::write`]:
///
/// ```
/// use bayeux::channel::META_CONNECT;
/// use bayeux::{ClientAdvice, Id, Message};
///
/// let connect = Message {
///     id: Some(Id::new("2")),
///     client_id: Some("c1".into()),
///     connection_type: Some("websocket".into()),
///     advice: Some(ClientAdvice { timeout_ms: Some(0), ..ClientAdvice::default() }),
///     ..Message::new(META_CONNECT)
/// };
/// let mut out = Vec::new();
/// connect.write(&mut out);
/// assert_eq!(
///     String::from_utf8_lossy(&out),
///     r#"{"channel":"/meta/connect","id":"2","clientId":"c1","connectionType":"websocket","advice":{"timeout":0}}"#
/// );
/// ```
#[derive(Debug, Clone, Default)]
pub struct Message<'a> {
    /// The channel, not yet checked as a name; see [`ChannelName::parse`](crate::ChannelName::parse).
    pub channel: Option<Cow<'a, str>>,
    /// The session that the client claims. A value that is not a string counts as none.
    pub client_id: Option<Cow<'a, str>>,
    /// The message id, which replies echo. A faulty one is present, too, if it is short enough to be echoed.
    pub id: Option<Id<'a>>,
    /// The value of a publication.
    pub data: Option<RawJson<'a>>,
    /// An object with the fields of extensions.
    pub ext: Option<RawJson<'a>>,
    /// The channels of a subscribe or unsubscribe, see [`subscription_names`](crate::subscription_names).
    pub subscription: Option<RawJson<'a>>,
    /// The client's advice; `None` if there is none, or if it is not an object.
    pub advice: Option<ClientAdvice>,
    /// The transport of a connect.
    pub connection_type: Option<Cow<'a, str>>,
    /// The protocol version of a handshake.
    pub version: Option<RawJson<'a>>,
    /// The transports of a handshake.
    pub supported_connection_types: Option<RawJson<'a>>,
    /// The time at which it was sent, according to the publisher.
    pub timestamp: Option<RawJson<'a>>,
    /// Keys, with their quotes, and values of the fields that Bayeux does not define, in the order of their first occurrence.
    /// Each key occurs once, with its last value.
    pub custom: SmallVec<[(RawJson<'a>, RawJson<'a>); 2]>,
    /// The fault of this message. It does not affect the other messages of the batch.
    pub fault: Option<MessageError>,
    /// The bytes of its batch that it took: from the end of the message before it on, with the space around it and with
    /// values that later ones of the same key replace. All messages together have the bytes of their batch. 0 if it was
    /// not read from a batch.
    pub batch_bytes: usize,
}

/// A message id: a JSON string or number, always echoed as a JSON string, as CometD does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id<'a>(Cow<'a, str>);

impl<'a> Message<'a> {
    /// A message with no field but its channel.
    pub fn new(channel: impl Into<Cow<'a, str>>) -> Self {
        Message { channel: Some(channel.into()), ..Message::default() }
    }

    /// Appends it as a JSON object; fields that are `None` are not written. [`parse_batch`] reads the same message from it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put(b"{");
        text_field(out, b",\"channel\":", self.channel.as_deref());
        text_field(out, b",\"id\":", self.id.as_ref().map(Id::as_str));
        text_field(out, b",\"clientId\":", self.client_id.as_deref());
        raw_field(out, b",\"version\":", self.version);
        raw_field(out, b",\"supportedConnectionTypes\":", self.supported_connection_types);
        text_field(out, b",\"connectionType\":", self.connection_type.as_deref());
        raw_field(out, b",\"subscription\":", self.subscription);
        raw_field(out, b",\"data\":", self.data);
        if let Some(advice) = self.advice {
            out.put(b",\"advice\":");
            advice.write(out);
        }
        raw_field(out, b",\"ext\":", self.ext);
        raw_field(out, b",\"timestamp\":", self.timestamp);
        for (key, value) in &self.custom {
            out.put(b",");
            out.put(key.as_str().as_bytes());
            raw_field(out, b":", Some(*value));
        }
        // Each field is written with a comma before it; the first one must have none.
        if out.len() > start + 1 {
            out.remove(start + 1);
        }
        out.put(b"}");
    }
}

impl<'a> Id<'a> {
    /// An id with this text, which may be any text.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Id(text.into())
    }

    /// The text without quotes or escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends it as a JSON string.
    pub fn write(&self, out: &mut Vec<u8>) {
        escape_into(&self.0, out);
    }

    /// A copy that does not borrow from the text, for a held connect.
    pub fn into_owned(self) -> Id<'static> {
        Id(Cow::Owned(self.0.into_owned()))
    }

    #[inline]
    pub(crate) fn emit(&self, out: &mut impl Sink) {
        escape(&self.0, out);
    }
}

/// A fault of one message of a batch that is valid JSON. The client caused it and gets a reply to this message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It has no channel.
    #[error("no channel")]
    ChannelMissing,
    /// Its channel is not a string, or contains half a surrogate pair.
    #[error("not a channel")]
    ChannelInvalid,
    /// Its id is not a string or number, or not alphanumeric, or longer than [`Limits::id_bytes_max`].
    #[error("not a message id")]
    IdInvalid,
    /// Its ext is not an object.
    #[error("an ext that is no object")]
    ExtInvalid,
    /// It has more custom fields than [`Limits::custom_fields_max`]; those above are left out.
    #[error("too many custom fields")]
    TooManyCustomFields,
}

impl MessageError {
    /// The Bayeux `error` field for it.
    pub fn error(&self) -> &'static str {
        BayeuxError::from(*self).as_str()
    }
}

impl From<MessageError> for BayeuxError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::ChannelMissing => BayeuxError::ChannelMissing,
            MessageError::ChannelInvalid => BayeuxError::ChannelInvalid,
            MessageError::IdInvalid => BayeuxError::MessageIdInvalid,
            MessageError::ExtInvalid => BayeuxError::ExtInvalid,
            MessageError::TooManyCustomFields => BayeuxError::CustomFieldsMax,
        }
    }
}

/// Reads one batch of a client: an array of messages, or a lone message.
///
/// If the whole text is JSON, it returns all messages in order, each with its [`fault`](Message::fault) if it has one.
/// Otherwise it returns none.
///
/// # Errors
/// The text is not JSON, not a batch, or exceeds a limit.
pub fn parse_batch<'a>(text: &'a str, limits: &Limits) -> Result<Vec<Message<'a>>, BatchError> {
    let mut read = 0;
    let mut messages = read_batch(text, limits.batch_messages_max, |scanner, message: &mut Message<'a>| {
        read_message(scanner, message, limits)?;
        message.batch_bytes = scanner.at() - std::mem::replace(&mut read, scanner.at());
        Ok(())
    })?;
    if let Some(last) = messages.last_mut() {
        last.batch_bytes += text.len() - read;
    }
    Ok(messages)
}

fn read_message<'a>(scanner: &mut Scanner<'a>, message: &mut Message<'a>, limits: &Limits) -> Result<(), BatchError> {
    let mut pending = Pending::default();
    read_fields(scanner, limits.json_depth_max, |key, value| pending.set(message, key, value, limits))?;
    pending.interpret(message, limits, scanner.has_escapes());
    Ok(())
}

/// The fields that need more than a slice. They are interpreted after the last one, so that only the last value of a
/// repeated key counts, with its faults.
#[derive(Default)]
struct Pending<'a> {
    channel: Option<RawJson<'a>>,
    client_id: Option<RawJson<'a>>,
    id: Option<RawJson<'a>>,
    advice: Option<RawJson<'a>>,
    connection_type: Option<RawJson<'a>>,
    too_many_custom: bool,
}

impl<'a> Pending<'a> {
    #[inline]
    fn set(&mut self, message: &mut Message<'a>, key: RawString<'a>, value: RawJson<'a>, limits: &Limits) {
        if !self.set_known(message, key.inner(), value) && !self.set_escaped(message, key, value) {
            self.set_custom(message, key.raw(), value, limits);
        }
    }

    /// A known key may be written with escapes: `"chann\u0065l"`.
    fn set_escaped(&mut self, message: &mut Message<'a>, key: RawString<'a>, value: RawJson<'a>) -> bool {
        // Anything longer than the longest known key with each letter as `\u0000` is not worth decoding.
        if key.raw().len() > ESCAPED_KEY_BYTES_MAX || !key.has_escapes() {
            return false;
        }
        key.decode().is_some_and(|decoded| self.set_known(message, &decoded, value))
    }

    #[inline]
    fn set_known(&mut self, message: &mut Message<'a>, key: &str, value: RawJson<'a>) -> bool {
        let slot = match key {
            "channel" => &mut self.channel,
            "clientId" => &mut self.client_id,
            "id" => &mut self.id,
            "data" => &mut message.data,
            "ext" => &mut message.ext,
            "subscription" => &mut message.subscription,
            "advice" => &mut self.advice,
            "connectionType" => &mut self.connection_type,
            "version" => &mut message.version,
            "supportedConnectionTypes" => &mut message.supported_connection_types,
            "timestamp" => &mut message.timestamp,
            // Only a server sends these.
            "successful"
            | "error"
            | "minimumVersion"
            | "authSuccessful"
            | "connectionId"
            | "json-comment-filtered"
            | "x-messages" => {
                return true;
            }
            _ => return false,
        };
        *slot = Some(value);
        true
    }

    /// At most `custom_fields_max` keys are stored and compared, so a message of many keys takes linear time.
    fn set_custom(&mut self, message: &mut Message<'a>, key: &'a str, value: RawJson<'a>, limits: &Limits) {
        if self.too_many_custom {
            // The message is faulty already, so its other fields do not matter.
        } else if let Some(same) = message.custom.iter_mut().find(|(known, _)| json::same_string(known.as_str(), key)) {
            same.1 = value;
        } else if message.custom.len() < limits.custom_fields_max {
            message.custom.push((RawJson::trusted(key), value));
        } else {
            self.too_many_custom = true;
        }
    }

    /// `has_escapes`: its strings may have some. Otherwise they need not be searched.
    fn interpret(self, message: &mut Message<'a>, limits: &Limits, has_escapes: bool) {
        let text = |raw: RawJson<'a>| if has_escapes { raw.text() } else { raw.plain_text() };
        message.client_id = self.client_id.and_then(text);
        message.connection_type = self.connection_type.and_then(text);
        message.advice = self.advice.and_then(ClientAdvice::read);
        for raw in [
            &mut message.ext,
            &mut message.subscription,
            &mut message.version,
            &mut message.supported_connection_types,
            &mut message.timestamp,
        ] {
            *raw = present(*raw);
        }

        let channel = present(self.channel);
        message.channel = channel.and_then(text);
        let id = present(self.id);
        message.id = id.and_then(|raw| raw_text(raw, text)).filter(|text| text.len() <= limits.id_bytes_max).map(Id);
        let ext_is_object = message.ext.is_none_or(RawJson::is_object);

        message.fault = if channel.is_none() {
            Some(MessageError::ChannelMissing)
        } else if message.channel.is_none() {
            Some(MessageError::ChannelInvalid)
        } else if id.is_some() && !message.id.as_ref().is_some_and(is_alphanumeric) {
            Some(MessageError::IdInvalid)
        } else if !ext_is_object {
            Some(MessageError::ExtInvalid)
        } else if self.too_many_custom {
            Some(MessageError::TooManyCustomFields)
        } else {
            None
        };
        if !ext_is_object {
            message.ext = None;
        }
    }
}

#[inline]
fn present(raw: Option<RawJson<'_>>) -> Option<RawJson<'_>> {
    raw.filter(|raw| !raw.is_null())
}

/// The text of a string, as `text` reads it, or the digits of a number.
#[inline]
pub(crate) fn raw_text<'a>(
    raw: RawJson<'a>,
    text: impl FnOnce(RawJson<'a>) -> Option<Cow<'a, str>>,
) -> Option<Cow<'a, str>> {
    match raw.as_str().as_bytes().first() {
        Some(b'"') => text(raw),
        Some(b'-' | b'0'..=b'9') => Some(Cow::Borrowed(raw.as_str())),
        _ => None,
    }
}

fn is_alphanumeric(id: &Id<'_>) -> bool {
    !id.0.is_empty() && id.0.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Six bytes for each letter of `supportedConnectionTypes`, and two quotes.
const ESCAPED_KEY_BYTES_MAX: usize = 24 * 6 + 2;
