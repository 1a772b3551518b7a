//! Bayeux messages as this client reads and writes them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Message;

/// Any message from the server: a reply or a delivery.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming {
    pub(crate) channel: String,
    #[serde(default)]
    id: Option<Box<RawValue>>,
    pub(crate) successful: Option<bool>,
    pub(crate) data: Option<Box<RawValue>>,
    pub(crate) error: Option<String>,
    #[serde(rename = "clientId")]
    pub(crate) client_id: Option<String>,
    pub(crate) advice: Option<Advice>,
}

/// How the server wants to be called again (Bayeux 1.0 §3.6). What is missing stays as it was.
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
pub(crate) struct Outgoing<'a> {
    pub(crate) channel: &'a str,
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) supported_connection_types: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) connection_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subscription: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<AdviceRequest>,
}

/// What a client asks for with a connect.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AdviceRequest {
    /// 0 asks for a reply at once.
    pub(crate) timeout: u64,
}

impl Incoming {
    /// The messages of one carrier message: an array, or a message alone.
    pub(crate) fn parse(text: &str) -> Result<Vec<Incoming>, serde_json::Error> {
        if text.trim_start().starts_with('[') {
            serde_json::from_str(text)
        } else {
            serde_json::from_str(text).map(|message| vec![message])
        }
    }

    /// Whether it answers the message with this id. Servers may echo ids as strings or numbers.
    pub(crate) fn answers(&self, id: &str) -> bool {
        self.id.as_ref().is_some_and(|raw| raw.get().trim_matches('"') == id)
    }

    /// Whether it is a reply of the protocol. A message with data is a delivery, also the answer of a service.
    pub(crate) fn is_reply(&self) -> bool {
        self.channel.starts_with("/meta/") || (self.successful.is_some() && self.data.is_none())
    }

    /// The Bayeux error of a reply that is not successful.
    pub(crate) fn failure(&self) -> Option<String> {
        let error = || self.error.clone().unwrap_or_else(|| "without a reason".into());
        (self.successful != Some(true)).then(error)
    }

    /// What remains of a delivery.
    pub(crate) fn into_message(self) -> Message {
        let data = self.data.unwrap_or_else(|| RawValue::NULL.to_owned());
        Message { channel: self.channel, data, id: None }
    }
}

impl Advice {
    /// Takes over what the newer advice says.
    pub(crate) fn update(&mut self, newer: Advice) {
        self.reconnect = newer.reconnect.or(self.reconnect);
        self.interval = newer.interval.or(self.interval);
        self.timeout = newer.timeout.or(self.timeout);
    }
}
