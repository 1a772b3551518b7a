//! Messages that a program sends with more than their data.

use std::borrow::Cow;

use bayeux::ext::{BINARY_EXT, binary_data};
use serde::Serialize;

use crate::error::PublishError;

/// A message that a program publishes or delivers: its `data`, and what else is in it.
///
/// ```
/// use encke::{Handle, Outgoing, PublishError};
///
/// fn send(handle: &Handle) -> Result<(), PublishError> {
///     handle.publish_message("/stock/GOOG", &Outgoing::json(&[19_900, 20_000])?.ext(r#"{"trace":"7f"}"#))?;
///     handle.publish_message("/pictures", &Outgoing::binary(b"\x89PNG"))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    pub(crate) data: Cow<'a, str>,
    pub(crate) ext: Option<Cow<'a, str>>,
    pub(crate) is_lazy: bool,
}

impl<'a> Outgoing<'a> {
    /// A message with this `data`, which is valid JSON.
    pub fn raw(data: &'a str) -> Outgoing<'a> {
        Outgoing { data: Cow::Borrowed(data), ext: None, is_lazy: false }
    }

    /// A message with this value as its `data`, written by serde.
    ///
    /// # Errors
    /// [`PublishError::Data`] if it cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(data: &T) -> Result<Outgoing<'static>, PublishError> {
        let data = serde_json::to_string(data).map_err(|_| PublishError::Data)?;
        Ok(Outgoing { data: Cow::Owned(data), ext: None, is_lazy: false })
    }

    /// A message with these bytes, as CometD's extension `binary` sends them: clients with that extension receive them as bytes.
    pub fn binary(bytes: &[u8]) -> Outgoing<'static> {
        let (data, ext) = (Cow::Owned(binary_data(bytes)), Some(Cow::Borrowed(BINARY_EXT)));
        Outgoing { data, ext, is_lazy: false }
    }

    /// The same with this `ext`, a JSON object of at most [`EXT_BYTES_MAX`](crate::EXT_BYTES_MAX) bytes, in place of an earlier one.
    pub fn ext(mut self, ext: &'a str) -> Outgoing<'a> {
        self.ext = Some(Cow::Borrowed(ext));
        self
    }

    /// The same as a lazy message: its subscribers need not get it at once. It waits until they get another message, or their
    /// connects are answered, and at most the time that [`ChannelRule::lazy_timeout_ms`](crate::ChannelRule::lazy_timeout_ms) and
    /// [`Settings::lazy_timeout_max_ms`](crate::Settings::lazy_timeout_max_ms) say. A history has it at once. In a cluster a message
    /// of a channel with a history is sent at once, unless the rule of the channel is lazy.
    ///
    /// It concerns publications. A message for a single session is sent at once.
    ///
    /// ```
    /// # use encke::{Handle, Outgoing, PublishError};
    /// # fn send(handle: &Handle) -> Result<(), PublishError> {
    /// handle.publish_message("/load", &Outgoing::json(&0.75)?.lazy())
    /// # }
    /// ```
    pub fn lazy(mut self) -> Outgoing<'a> {
        self.is_lazy = true;
        self
    }
}

impl<'a> Outgoing<'a> {
    /// The same with this `ext`, if there is one.
    pub(crate) fn with(self, ext: Option<&'a str>) -> Outgoing<'a> {
        match ext {
            Some(ext) => self.ext(ext),
            None => self,
        }
    }
}

impl<'a> From<&'a str> for Outgoing<'a> {
    fn from(data: &'a str) -> Outgoing<'a> {
        Outgoing::raw(data)
    }
}
