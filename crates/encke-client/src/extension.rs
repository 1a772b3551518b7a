//! Extensions of the protocol by a program: they see all messages and write into their `ext`.

use std::fmt;

use bayeux::{RawJson, ServerMessage};
use serde_json::{Map, Value};

/// Sees the messages of a session in both directions, as CometD's `ClientSession.Extension` does.
///
/// A login, for example, is a field in the `ext` of the handshake:
///
/// ```
/// use encke_client::{Extension, Outgoing};
///
/// struct Login(String);
///
/// impl Extension for Login {
///     fn outgoing(&mut self, message: &mut Outgoing<'_>) {
///         if message.channel == "/meta/handshake" {
///             message.ext.insert("token".into(), self.0.as_str().into());
///         }
///     }
/// }
/// ```
pub trait Extension: Send {
    /// A message is about to be written; it carries the fields that this puts into [`Outgoing::ext`].
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        let _ = message;
    }

    /// A message has come. A delivery that is dropped does not reach the program; replies cannot be dropped.
    fn incoming(&mut self, message: &ServerMessage<'_>) -> Filter {
        let _ = message;
        Filter::Pass
    }
}

/// The decision of an extension about an incoming message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Filter {
    /// The next extension sees it, and then the program.
    Pass,
    /// Nobody else sees it.
    Drop,
}

/// A message on its way to the server, as an extension sees it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outgoing<'a> {
    /// Its channel.
    pub channel: &'a str,
    /// The channels that a `/meta/subscribe` or `/meta/unsubscribe` names; otherwise empty. After a new handshake one
    /// message names all of them.
    pub subscription: &'a [String],
    /// The data that it publishes.
    pub data: Option<RawJson<'a>>,
    /// Its `ext`; empty unless an extension before this one wrote into it.
    pub ext: Map<String, Value>,
}

/// The extensions of a session, in the order in which they see messages.
#[derive(Default)]
pub(crate) struct Extensions(Vec<Box<dyn Extension>>);

impl Extensions {
    pub(crate) fn add(&mut self, extension: Box<dyn Extension>) {
        self.0.push(extension);
    }

    /// Lets all of them write into the `ext` of a message, and returns it.
    pub(crate) fn outgoing(
        &mut self,
        channel: &str,
        subscription: &[String],
        data: Option<RawJson<'_>>,
    ) -> Map<String, Value> {
        let mut message = Outgoing { channel, subscription, data, ext: Map::new() };
        for extension in &mut self.0 {
            extension.outgoing(&mut message);
        }
        message.ext
    }

    /// Shows a message to all of them until one drops it; replies pass in any case.
    pub(crate) fn pass(&mut self, message: &ServerMessage<'_>) -> bool {
        let drops = |extension: &mut Box<dyn Extension>| extension.incoming(message) == Filter::Drop;
        !self.0.iter_mut().any(|extension| drops(extension) && !message.is_reply())
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} extensions", self.0.len())
    }
}
