//! Filters: change or refuse what clients publish.

use std::borrow::Cow;
use std::sync::Arc;

use encke_core::Verdict;
use serde::Serialize;

use super::call::{Calling, Context};
use super::caller::Caller;
use super::hook::{Hook, HookAnswer, Subject};
use super::reply::{Data, Failure};

/// A message of a client about to be broadcast, as a filter sees it: with the changes of the filters before.
#[derive(Clone, Debug)]
pub struct Publishing<'a> {
    pub(crate) caller: Caller<'a>,
    pub(crate) channel: Cow<'a, str>,
    pub(crate) data: Option<Cow<'a, str>>,
    pub(crate) ext: Option<Cow<'a, str>>,
}

impl<'a> Publishing<'a> {
    /// A message of an anonymous session with this `data` (valid JSON), for tests of a filter.
    pub fn new(session: &'a str, channel: &'a str, data: &'a str) -> Publishing<'a> {
        let caller = Caller::anonymous(session);
        Publishing { caller, channel: channel.into(), data: Some(data.into()), ext: None }
    }

    /// A message of this session, with raw JSON.
    pub(crate) fn of(
        caller: &encke_core::Caller<'a>,
        channel: &'a str,
        data: Option<&'a str>,
        ext: Option<&'a str>,
    ) -> Publishing<'a> {
        let (data, ext) = (data.map(Cow::Borrowed), ext.map(Cow::Borrowed));
        Publishing { caller: Caller::from(caller), channel: channel.into(), data, ext }
    }

    /// The source of the further values of a hook with this channel, pattern or template.
    pub(crate) fn calling<'c>(&'c self, pattern: &'c str, context: &'c Arc<Context>) -> Calling<'c> {
        Calling::of_message(&self.caller, self.channel(), self.data(), self.ext(), context).of_hook(pattern)
    }

    /// The publisher.
    pub fn caller(&self) -> &Caller<'a> {
        &self.caller
    }

    /// The user of the publisher, empty for an anonymous session.
    pub fn user(&self) -> &str {
        self.caller.user()
    }

    /// The channel of the message.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The `data` of the message, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    /// The `ext` of the message, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.ext.as_deref()
    }

    /// The same, without references.
    pub fn into_owned(self) -> Publishing<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Publishing {
            caller: self.caller.into_owned(),
            channel: owned(self.channel),
            data: self.data.map(owned),
            ext: self.ext.map(owned),
        }
    }
}

impl Subject for Publishing<'static> {
    type View<'a> = Publishing<'a>;
}

impl HookAnswer for Verdict {
    fn without(failure: &Failure) -> Verdict {
        Verdict::deny(failure.class())
    }
}

/// Data that serde writes as JSON replaces that of the publication.
impl<T: Serialize> From<Data<T>> for Verdict {
    fn from(data: Data<T>) -> Verdict {
        match serde_json::to_string(&data.0) {
            Ok(data) => Verdict::Replace(data),
            Err(error) => {
                tracing::error!(%error, "the data of a filter is no JSON");
                Verdict::deny("filter_error")
            }
        }
    }
}

/// A registered filter.
pub(crate) type Filter = Hook<Publishing<'static>, Verdict>;
