//! What a client sends: batches of messages, read without building a tree.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::encode::{self, Sink};
use crate::error::BayeuxError;
use crate::json::{self, JsonError, RawString, Scanner};
use crate::limits::Limits;

/// One message of a client, borrowed from the text it came in (Bayeux 1.0, "Message field definitions").
///
/// "Raw" fields are slices of that text: valid JSON, exact to the last byte. A field that is `null` is as good as absent,
/// except in `data`, where `null` is a value. Fields of no use to a server (`successful`, `error`, …) are recognised and
/// dropped, so that a publisher cannot speak to subscribers in the server's name; what Bayeux does not know is `custom`.
#[derive(Debug, Clone, Default)]
pub struct Message<'a> {
    /// The channel, not yet checked as a name; see [`ChannelName::parse`](crate::ChannelName::parse).
    pub channel: Option<Cow<'a, str>>,
    /// Who the client says it is. One that is not a string is as good as none.
    pub client_id: Option<Cow<'a, str>>,
    /// The message id, which replies echo. Kept even where it is faulty, if it is short enough to be echoed.
    pub id: Option<Id<'a>>,
    /// Raw; what a publication is about.
    pub data: Option<&'a str>,
    /// Raw JSON object; what extensions say to each other.
    pub ext: Option<&'a str>,
    /// Raw; the channels of a subscribe or unsubscribe, see [`subscription_names`](crate::subscription_names).
    pub subscription: Option<&'a str>,
    /// What the client advises; `None` where it advises nothing, or with something that is no object.
    pub advice: Option<ClientAdvice>,
    /// The transport that a connect wants to be.
    pub connection_type: Option<Cow<'a, str>>,
    /// Raw; the protocol version of a handshake.
    pub version: Option<&'a str>,
    /// Raw; the transports of a handshake.
    pub supported_connection_types: Option<&'a str>,
    /// Raw; when the publisher says it was sent.
    pub timestamp: Option<&'a str>,
    /// Raw keys, quotes included, and raw values of the fields that Bayeux does not know, in the order they first came;
    /// no key stands twice, the last value has won.
    pub custom: SmallVec<[(&'a str, &'a str); 2]>,
    /// What is wrong with this message alone; the others of its batch are not concerned.
    pub fault: Option<MessageError>,
}

/// A message id: a JSON string or number, always echoed as a JSON string, as CometD does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id<'a>(Cow<'a, str>);

impl<'a> Id<'a> {
    /// An id with this text, whatever it is.
    pub fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Id(text.into())
    }

    /// The text without quotes or escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Appends it as a JSON string.
    pub fn write(&self, out: &mut Vec<u8>) {
        encode::escape_into(&self.0, out);
    }

    /// A copy that outlives the text it came in, for a connect that is held.
    pub fn into_owned(self) -> Id<'static> {
        Id(Cow::Owned(self.0.into_owned()))
    }

    pub(crate) fn emit(&self, out: &mut impl Sink) {
        encode::escape(&self.0, out);
    }
}

/// What a client may advise in a connect or a handshake (Bayeux 1.0, "advice"), in milliseconds.
///
/// A member that is absent or no number is `None`. Fractions are cut off. Negative and absurd values stand as they are,
/// held at the ends of `i64`: the session judges them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAdvice {
    /// How long this connect is to be held at most.
    pub timeout_ms: Option<i64>,
    /// How long the client will wait before its next connect.
    pub interval_ms: Option<i64>,
    /// How much longer than the interval the server is to keep the session (CometD's `maxInterval`).
    pub max_interval_ms: Option<i64>,
}

/// Why a batch is not taken, none of it: the client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It is not JSON (RFC 8259).
    #[error("not JSON")]
    JsonInvalid,
    /// A field's value is nested deeper than [`Limits::json_depth_max`].
    #[error("JSON nested too deep")]
    JsonTooDeep,
    /// It is an empty array.
    #[error("no message")]
    Empty,
    /// It is neither an object nor an array of objects.
    #[error("a message that is no object")]
    MessageNotObject,
    /// It has more messages than [`Limits::batch_messages_max`].
    #[error("too many messages")]
    TooLong,
}

impl BatchError {
    /// The HTTP status for it: 400, or 413 for a limit on size.
    pub fn status(&self) -> u16 {
        BayeuxError::from(*self).code()
    }

    /// The Bayeux `error` text for it.
    pub fn error(&self) -> &'static str {
        BayeuxError::from(*self).as_str()
    }
}

/// What is wrong with one message of a batch that is JSON: the client's fault, answered with a reply of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It has no channel.
    #[error("no channel")]
    ChannelMissing,
    /// Its channel is not a string, or one that no text can hold.
    #[error("not a channel")]
    ChannelInvalid,
    /// Its id is no string or number, or not alphanumeric, or longer than [`Limits::id_bytes_max`].
    #[error("not a message id")]
    IdInvalid,
    /// Its ext is no object.
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

/// Reads one batch: an array of messages, or a lone message.
///
/// All or nothing: either the whole text is JSON and its messages come out in order, each perhaps with a
/// [`fault`](Message::fault) of its own, or none does.
pub fn parse_batch<'a>(text: &'a str, limits: &Limits) -> Result<Vec<Message<'a>>, BatchError> {
    let mut scanner = Scanner::new(text);
    // Most batches are of one message.
    let mut messages = Vec::with_capacity(1);
    scanner.space();
    if scanner.take(b'[') {
        scanner.space();
        if scanner.take(b']') {
            end(&mut scanner)?;
            return Err(BatchError::Empty);
        }
        loop {
            if messages.len() == limits.batch_messages_max {
                return Err(BatchError::TooLong);
            }
            read_message(&mut scanner, messages.push_mut(Message::default()), limits)?;
            scanner.space();
            if scanner.take(b']') {
                break;
            }
            if !scanner.take(b',') {
                return Err(BatchError::JsonInvalid);
            }
            scanner.space();
        }
    } else {
        read_message(&mut scanner, messages.push_mut(Message::default()), limits)?;
    }
    end(&mut scanner)?;
    Ok(messages)
}

fn end(scanner: &mut Scanner<'_>) -> Result<(), BatchError> {
    scanner.space();
    if scanner.peek().is_none() { Ok(()) } else { Err(BatchError::JsonInvalid) }
}

/// Reads one message into `message`, where it stays: it is too large to be moved about.
fn read_message<'a>(scanner: &mut Scanner<'a>, message: &mut Message<'a>, limits: &Limits) -> Result<(), BatchError> {
    if !scanner.take(b'{') {
        // Garbage is told from JSON of the wrong kind.
        scanner.value(limits.json_depth_max)?;
        return Err(BatchError::MessageNotObject);
    }
    let mut pending = Pending::default();
    scanner.space();
    if !scanner.take(b'}') {
        loop {
            let key = scanner.key()?;
            let value = scanner.value(limits.json_depth_max)?;
            pending.set(message, key, value, limits);
            scanner.space();
            if scanner.take(b'}') {
                break;
            }
            if !scanner.take(b',') {
                return Err(BatchError::JsonInvalid);
            }
            scanner.space();
        }
    }
    pending.interpret(message, limits);
    Ok(())
}

impl From<JsonError> for BatchError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Invalid => BatchError::JsonInvalid,
            JsonError::TooDeep => BatchError::JsonTooDeep,
        }
    }
}

/// The fields that are more than a slice. They are interpreted only when all are there, so that of a key that stands twice
/// only the last counts, its faults included.
#[derive(Default)]
struct Pending<'a> {
    channel: Option<&'a str>,
    client_id: Option<&'a str>,
    id: Option<&'a str>,
    advice: Option<&'a str>,
    connection_type: Option<&'a str>,
    too_many_custom: bool,
}

impl<'a> Pending<'a> {
    #[inline]
    fn set(&mut self, message: &mut Message<'a>, key: RawString<'a>, value: &'a str, limits: &Limits) {
        if !self.set_known(message, key.inner(), value) && !self.set_escaped(message, key, value) {
            self.set_custom(message, key.raw(), value, limits);
        }
    }

    /// A known key may be written with escapes: `"chann\u0065l"`.
    fn set_escaped(&mut self, message: &mut Message<'a>, key: RawString<'a>, value: &'a str) -> bool {
        // What is longer than the longest known key with each letter as `\u0000` is not worth decoding.
        if key.raw().len() > ESCAPED_KEY_BYTES_MAX || !key.has_escapes() {
            return false;
        }
        key.decode().is_some_and(|decoded| self.set_known(message, &decoded, value))
    }

    #[inline]
    fn set_known(&mut self, message: &mut Message<'a>, key: &str, value: &'a str) -> bool {
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
            // Of no use to a server, and the server's own to say to a client.
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

    /// At most `custom_fields_max` keys are kept and compared with, so a message of many keys takes linear time.
    fn set_custom(&mut self, message: &mut Message<'a>, key: &'a str, value: &'a str, limits: &Limits) {
        if self.too_many_custom {
            // The message is faulty already: what else it holds is of no interest.
        } else if let Some(same) = message.custom.iter_mut().find(|(known, _)| json::same_string(known, key)) {
            same.1 = value;
        } else if message.custom.len() < limits.custom_fields_max {
            message.custom.push((key, value));
        } else {
            self.too_many_custom = true;
        }
    }

    fn interpret(self, message: &mut Message<'a>, limits: &Limits) {
        message.client_id = self.client_id.and_then(json::decode_string);
        message.connection_type = self.connection_type.and_then(json::decode_string);
        message.advice = self.advice.and_then(client_advice);
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
        message.channel = channel.and_then(json::decode_string);
        let id = present(self.id);
        message.id = id.and_then(|raw| readable_id(raw, limits));
        let ext_is_object = message.ext.is_none_or(|raw| raw.starts_with('{'));

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
fn present(raw: Option<&str>) -> Option<&str> {
    raw.filter(|raw| *raw != "null")
}

/// The id as far as it can be echoed.
fn readable_id<'a>(raw: &'a str, limits: &Limits) -> Option<Id<'a>> {
    let text = match raw.as_bytes().first() {
        Some(b'"') => json::decode_string(raw)?,
        Some(b'-' | b'0'..=b'9') => Cow::Borrowed(raw),
        _ => return None,
    };
    (text.len() <= limits.id_bytes_max).then_some(Id(text))
}

fn is_alphanumeric(id: &Id<'_>) -> bool {
    !id.0.is_empty() && id.0.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn client_advice(raw: &str) -> Option<ClientAdvice> {
    if !raw.starts_with('{') {
        return None;
    }
    let mut advice = ClientAdvice::default();
    for (key, value) in json::members(raw) {
        if key.is("timeout") {
            advice.timeout_ms = json::integer(value);
        } else if key.is("interval") {
            advice.interval_ms = json::integer(value);
        } else if key.is("maxInterval") {
            advice.max_interval_ms = json::integer(value);
        }
    }
    Some(advice)
}

/// Six bytes for each letter of `supportedConnectionTypes`, and two quotes.
const ESCAPED_KEY_BYTES_MAX: usize = 24 * 6 + 2;
