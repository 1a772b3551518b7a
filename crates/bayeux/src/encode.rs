//! The messages of a server: publications and replies, spliced from slices rather than built as trees.

use crate::channel::ChannelName;
use crate::json::{ByteCount, RawJson, Sink, escape, raw_field, text_field};
use crate::message::{Id, Message};

/// The delivered form of a publication. It contains only fields that may be forwarded, and never a `clientId`, `advice`,
/// `successful`, `error` or `subscription`: with these a publisher could control subscribers.
///
/// ```
/// use bayeux::{ChannelName, Limits, Publication, parse_batch};
///
/// let limits = Limits::default();
/// let text = r#"{"channel":"/a","clientId":"secret","id":"7","data":{"n":1e400},"advice":{"reconnect":"none"},"foo":1}"#;
/// let message = &parse_batch(text, &limits).unwrap()[0];
/// let channel = ChannelName::parse(message.channel.as_deref().unwrap(), &limits).unwrap();
///
/// let mut out = Vec::new();
/// Publication::from_message(channel, message, true).write(&mut out);
/// assert_eq!(out, br#"{"channel":"/a","data":{"n":1e400},"foo":1}"#);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Publication<'a> {
    /// A valid channel name. It is written first, and without escapes.
    pub channel: &'a str,
    /// The published value.
    pub data: Option<RawJson<'a>>,
    /// An object.
    pub ext: Option<RawJson<'a>>,
    /// The publisher's timestamp.
    pub timestamp: Option<RawJson<'a>>,
    /// Only in the answer of a service: the client pairs it with its request by this id.
    pub id: Option<&'a Id<'a>>,
    /// Keys with their quotes, and values.
    pub custom: &'a [(RawJson<'a>, RawJson<'a>)],
}

impl<'a> Publication<'a> {
    /// The form of `message` that subscribers get. `channel` is its checked channel. `forward_ext` decides if they get
    /// its `ext`; CometD forwards it, and the binary extension needs it.
    pub fn from_message(channel: ChannelName<'a>, message: &'a Message<'_>, forward_ext: bool) -> Self {
        Publication {
            channel: channel.as_str(),
            data: message.data,
            ext: message.ext.filter(|_| forward_ext),
            timestamp: message.timestamp,
            id: None,
            custom: &message.custom,
        }
    }

    /// Appends it as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.emit(out);
    }

    /// The exact number of bytes that [`write`](Self::write) appends.
    pub fn encoded_bytes(&self) -> usize {
        let mut count = ByteCount::default();
        self.emit(&mut count);
        count.0
    }

    #[inline]
    fn emit(&self, out: &mut impl Sink) {
        debug_assert!(!self.channel.contains(['"', '\\']), "not a channel name: {}", self.channel);
        out.put(b"{\"channel\":\"");
        out.put(self.channel.as_bytes());
        out.put(b"\"");
        raw_field(out, b",\"data\":", self.data);
        raw_field(out, b",\"ext\":", self.ext);
        raw_field(out, b",\"timestamp\":", self.timestamp);
        if let Some(id) = self.id {
            out.put(b",\"id\":");
            id.emit(out);
        }
        for (key, value) in self.custom {
            out.put(b",");
            out.put(key.as_str().as_bytes());
            out.put(b":");
            out.put(value.as_str().as_bytes());
        }
        out.put(b"}");
    }
}

/// Any reply. Fields that are `None` are not written.
///
/// ```
/// use bayeux::{Id, Reply};
///
/// let id = Id::new("4");
/// let mut out = Vec::new();
/// Reply { id: Some(&id), successful: Some(true), ..Reply::new("/meta/connect") }.write(&mut out);
/// assert_eq!(out, br#"{"channel":"/meta/connect","id":"4","successful":true}"#);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Reply<'a> {
    /// Written with escapes: in the reply to a faulty message it may be any text. `None` if the message has none.
    pub channel: Option<&'a str>,
    /// The id of the message that is answered.
    pub id: Option<&'a Id<'a>>,
    /// Text; the session's id, only for the session's own client.
    pub client_id: Option<&'a str>,
    /// True if the server has processed the message with success.
    pub successful: Option<bool>,
    /// Text; see [`BayeuxError`](crate::BayeuxError).
    pub error: Option<&'a str>,
    /// Exactly as the client sent it.
    pub subscription: Option<RawJson<'a>>,
    /// An object; see [`Advice`](crate::advice::Advice).
    pub advice: Option<RawJson<'a>>,
    /// An object.
    pub ext: Option<RawJson<'a>>,
    /// The answer of a service.
    pub data: Option<RawJson<'a>>,
    /// Text; the protocol version of a handshake reply.
    pub version: Option<&'a str>,
    /// Text; the least protocol version of a handshake reply.
    pub minimum_version: Option<&'a str>,
    /// An array of names.
    pub supported_connection_types: Option<RawJson<'a>>,
    /// Text; see [`timestamp`](crate::ext::timestamp).
    pub timestamp: Option<&'a str>,
    /// Further fields: the members of a JSON object, without its braces.
    pub custom: &'a str,
}

impl<'a> Reply<'a> {
    /// A reply with no field but its channel, if it has one.
    pub fn new(channel: impl Into<Option<&'a str>>) -> Self {
        Reply { channel: channel.into(), ..Reply::default() }
    }

    /// Appends it as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.channel {
            Some(channel) => {
                out.put(b"{\"channel\":");
                escape(channel, out);
            }
            None => out.put(b"{"),
        }
        if let Some(id) = self.id {
            out.put(b",\"id\":");
            id.emit(out);
        }
        text_field(out, b",\"clientId\":", self.client_id);
        if let Some(successful) = self.successful {
            out.put(if successful { b",\"successful\":true" } else { b",\"successful\":false" });
        }
        text_field(out, b",\"error\":", self.error);
        raw_field(out, b",\"subscription\":", self.subscription);
        raw_field(out, b",\"advice\":", self.advice);
        raw_field(out, b",\"ext\":", self.ext);
        raw_field(out, b",\"data\":", self.data);
        text_field(out, b",\"version\":", self.version);
        text_field(out, b",\"minimumVersion\":", self.minimum_version);
        raw_field(out, b",\"supportedConnectionTypes\":", self.supported_connection_types);
        text_field(out, b",\"timestamp\":", self.timestamp);
        if !self.custom.is_empty() {
            out.put(b",");
            out.put(self.custom.as_bytes());
        }
        // Each of these fields is written with a comma before it; the very first field must have none.
        if self.channel.is_none() && out.len() > start + 1 {
            out.remove(start + 1);
        }
        out.put(b"}");
    }
}
