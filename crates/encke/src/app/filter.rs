//! Filters: change or refuse what clients publish.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use encke_core::{Pending, Verdict};

use super::caller::Caller;

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

/// A registered filter.
pub(crate) enum Filter {
    /// It answers at once.
    Now(Box<dyn Fn(&Publishing<'_>) -> Verdict + Send + Sync>),
    /// It may wait.
    Later(Box<dyn Fn(Publishing<'static>) -> Pending<Verdict> + Send + Sync>),
}

impl Filter {
    pub(crate) fn later<F, Fut>(filter: F) -> Filter
    where
        F: Fn(Publishing<'static>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        Filter::Later(Box::new(move |publishing| Box::pin(filter(publishing))))
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(self, Filter::Later(_))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.waits() { "Filter::Later" } else { "Filter::Now" })
    }
}
