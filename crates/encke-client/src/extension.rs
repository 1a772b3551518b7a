//! What a program may add to the protocol: it sees all messages and writes into their `ext`.

use std::fmt;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::message::{Envelope, Incoming};

/// Sees what goes out and what comes in, as CometD's `ClientSession.Extension` does.
///
/// Enough for a login (`ext` of the handshake), for acknowledgement and for replay:
///
/// ```
/// use encke_client::{Extension, Incoming, Outgoing, Value, Verdict};
///
/// /// CometD's acknowledgement extension: what a break swallowed comes again.
/// #[derive(Debug, Default)]
/// struct Acknowledge {
///     /// The last batch that came whole.
///     batch: u64,
/// }
///
/// impl Extension for Acknowledge {
///     fn outgoing(&mut self, message: &mut Outgoing<'_>) {
///         match message.channel {
///             "/meta/handshake" => message.ext.insert("ack".into(), Value::from(true)),
///             "/meta/connect" => message.ext.insert("ack".into(), Value::from(self.batch)),
///             _ => None,
///         };
///     }
///
///     fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
///         match &*message.channel {
///             // A new session counts anew.
///             "/meta/handshake" => self.batch = 0,
///             "/meta/connect" => {
///                 let batch = message.ext_field("ack").and_then(|batch| batch.as_u64());
///                 self.batch = batch.unwrap_or(self.batch);
///             }
///             _ => {}
///         }
///         Verdict::Keep
///     }
/// }
/// ```
pub trait Extension: Send {
    /// A message is about to be written; what is put into [`Outgoing::ext`] goes with it.
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        let _ = message;
    }

    /// A message has come. Deliveries that are dropped do not reach the program; replies cannot be dropped.
    fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
        let _ = message;
        Verdict::Keep
    }
}

/// What becomes of an incoming message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Keep,
    /// The program does not see it.
    Drop,
}

/// A message on its way to the server, as an extension sees it.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Its channel.
    pub channel: &'a str,
    /// The channels that a `/meta/subscribe` or `/meta/unsubscribe` names; otherwise empty. After a new handshake one
    /// message names all of them.
    pub subscription: &'a [String],
    /// What it publishes, as raw JSON.
    pub data: Option<&'a RawValue>,
    /// What goes with it; empty unless an extension before this one wrote into it.
    pub ext: Map<String, Value>,
}

/// The extensions of a session, in the order in which they see messages.
#[derive(Default)]
pub(crate) struct Extensions(Vec<Box<dyn Extension>>);

impl Extensions {
    pub(crate) fn add(&mut self, extension: Box<dyn Extension>) {
        self.0.push(extension);
    }

    /// Lets all write into the `ext` of a message.
    pub(crate) fn outgoing(&mut self, envelope: &mut Envelope<'_>) {
        if self.0.is_empty() {
            return;
        }
        let mut message = Outgoing {
            channel: envelope.channel,
            subscription: envelope.subscription.unwrap_or_default(),
            data: envelope.data,
            ext: Map::new(),
        };
        for extension in &mut self.0 {
            extension.outgoing(&mut message);
        }
        envelope.ext = (!message.ext.is_empty()).then_some(message.ext);
    }

    /// Shows a message to all until one drops it; replies go on in any case.
    pub(crate) fn keep(&mut self, message: &Incoming<'_>) -> bool {
        let drops = |extension: &mut Box<dyn Extension>| extension.incoming(message) == Verdict::Drop;
        !self.0.iter_mut().any(|extension| drops(extension) && !message.is_reply())
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} extensions", self.0.len())
    }
}
