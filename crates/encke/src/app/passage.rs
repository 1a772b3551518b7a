//! The passage of an operation through the hooks of its channel: first the authorizers, about the creation of the channel if
//! it does not exist, then about the operation; after them those of channels that a wanted pattern reaches, name by name;
//! at last, for a publication, the filters.
//!
//! It goes from hook to hook on the thread of the shard, and borrows its message, until a hook waits. Only then it owns its
//! data.

use std::borrow::Cow;
use std::sync::Arc;

use encke_core::{Answer, EXT_BYTES_MAX, Pending, Replacement, Verdict};
use tokio::runtime::Handle;

use super::access::{Access, Grant, Operation};
use super::call::Context;
use super::channel_hooks::ChannelHooks;
use super::filter::Publishing;
use super::patterns::{Found, Patterns};

/// An operation on its way through the hooks.
pub(crate) struct Passage<'a> {
    access: Access<'a>,
    progress: Progress,
}

#[derive(Clone, Copy)]
struct Progress {
    /// The group of hooks that is asked: see [`Concerned::group`]. Behind the last one come the filters.
    group: usize,
    /// The operation behind the creation of the channel, while the first group decides about that.
    then: Option<Operation>,
    /// The number of hooks of this group that have been asked.
    asked: usize,
    /// True if an authorizer of this group has granted the operation.
    is_granted: bool,
    /// True if the filters follow the authorizers.
    is_filtered: bool,
    /// True if a filter has changed the data.
    is_changed: bool,
    /// True if a filter has changed the `ext`.
    has_other_ext: bool,
}

/// The hooks that an operation concerns.
pub(crate) struct Concerned<'t> {
    found: Found<'t, ChannelHooks>,
    /// The number of those that cover the whole channel or pattern. The others cover a part of the pattern.
    covering: usize,
}

impl<'t> Concerned<'t> {
    /// The hooks for a subscription to a channel or pattern, or a publication on it: also those of all channels that the pattern reaches.
    #[inline]
    pub(crate) fn of(hooks: &'t Patterns<ChannelHooks>, name: &str) -> Concerned<'t> {
        let found = hooks.of(name);
        let mut concerned = Concerned { covering: found.len(), found };
        if bayeux::channel::is_pattern(name) {
            concerned.found.extend(hooks.within(name));
        }
        concerned
    }

    pub(crate) fn has_authorizer(&self) -> bool {
        self.found.iter().any(|hooks| hooks.has_authorizer())
    }

    /// True if there is no hook at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Those that decide together: first those that cover the whole channel or pattern, then those of each name that covers a
    /// part of the pattern. None behind the last ones.
    #[inline]
    fn group(&self, group: usize) -> Option<&[&'t ChannelHooks]> {
        match group {
            0 => self.found.get(..self.covering),
            part => self.found.get(self.covering + part - 1).map(std::slice::from_ref),
        }
    }
}

/// The next step of a passage.
pub(crate) enum Next {
    /// The operation is decided about.
    Decided(Verdict),
    /// A hook waits. [`Passage::take`] takes its answer.
    Waits(Pending<Said>),
}

/// The answer of a hook.
pub(crate) enum Said {
    Grant(Grant),
    Verdict(Verdict),
}

impl<'a> Passage<'a> {
    /// An operation before the first authorizer. `creates`: they decide about the creation of the channel, too.
    /// `is_filtered`: it passes the filters, too.
    pub(crate) fn new(operation: Operation, message: Publishing<'a>, creates: bool, is_filtered: bool) -> Passage<'a> {
        let (operation, then) = if creates { (Operation::Create, Some(operation)) } else { (operation, None) };
        let progress = Progress {
            group: 0,
            then,
            asked: 0,
            is_granted: false,
            is_filtered,
            is_changed: false,
            has_other_ext: false,
        };
        Passage { access: Access { operation, message }, progress }
    }

    /// The same, without references.
    pub(crate) fn into_owned(self) -> Passage<'static> {
        Passage { access: self.access.into_owned(), progress: self.progress }
    }

    /// The hooks that it concerns.
    pub(crate) fn concerned<'t>(&self, hooks: &'t Patterns<ChannelHooks>) -> Concerned<'t> {
        Concerned::of(hooks, self.access.channel())
    }

    /// Asks the hooks one after the other, until one waits or the operation is decided about.
    pub(crate) fn go_on<'h>(&mut self, concerned: &Concerned<'h>, context: &Arc<Context>, runtime: &Handle) -> Next {
        while let Some(found) = concerned.group(self.progress.group) {
            let of_hooks = |hooks: &'h ChannelHooks| hooks.authorizers().map(move |authorizer| (hooks, authorizer));
            for (hooks, authorizer) in found.iter().copied().flat_map(of_hooks).skip(self.progress.asked) {
                let calling = self.access.message.calling(&hooks.pattern, context);
                match authorizer.ask(&self.access, &calling, runtime) {
                    Answer::Now(grant) => {
                        if let Some(refusal) = self.take_grant(grant) {
                            return Next::Decided(refusal);
                        }
                    }
                    Answer::Later(later) => return Next::Waits(Box::pin(async { Said::Grant(later.await) })),
                }
            }
            if self.progress.asked > 0 && !self.progress.is_granted {
                return Next::Decided(Verdict::Deny(Cow::Borrowed(NOT_GRANTED)));
            }
            (self.progress.asked, self.progress.is_granted) = (0, false);
            match self.progress.then.take() {
                Some(operation) => self.access.operation = operation,
                None => self.progress.group += 1,
            }
        }
        let is_filtered = self.progress.is_filtered;
        let found = concerned.group(0).unwrap_or_default();
        let of_hooks = |hooks: &'h ChannelHooks| hooks.filters().map(move |filter| (hooks, filter));
        let filters = found.iter().copied().filter(|_| is_filtered).flat_map(of_hooks);
        for (hooks, filter) in filters.skip(self.progress.asked) {
            let calling = self.access.message.calling(&hooks.pattern, context);
            match filter.ask(&self.access.message, &calling, runtime) {
                Answer::Now(verdict) => {
                    if let Some(refusal) = self.take_verdict(verdict) {
                        return Next::Decided(refusal);
                    }
                }
                Answer::Later(later) => return Next::Waits(Box::pin(async { Said::Verdict(later.await) })),
            }
        }
        let Publishing { data, ext, .. } = &mut self.access.message;
        let data = data.take().filter(|_| self.progress.is_changed).map(Cow::into_owned);
        let ext = ext.take().filter(|_| self.progress.has_other_ext).map(Cow::into_owned);
        Next::Decided(match (data, ext) {
            (None, None) => Verdict::Forward,
            (Some(data), None) => Verdict::Replace(data),
            (data, ext) => Verdict::ReplaceMessage(Box::new(Replacement { data, ext })),
        })
    }

    /// Takes the answer of a hook that waited. Returns the refusal if it is one.
    pub(crate) fn take(&mut self, said: Said) -> Option<Verdict> {
        match said {
            Said::Grant(grant) => self.take_grant(grant),
            Said::Verdict(verdict) => self.take_verdict(verdict),
        }
    }

    #[inline]
    fn take_grant(&mut self, grant: Grant) -> Option<Verdict> {
        self.progress.asked += 1;
        match grant {
            Grant::Deny(reason) => return Some(Verdict::Deny(reason)),
            Grant::Grant => self.progress.is_granted = true,
            Grant::Ignore => {}
        }
        None
    }

    #[inline]
    fn take_verdict(&mut self, verdict: Verdict) -> Option<Verdict> {
        self.progress.asked += 1;
        match verdict {
            Verdict::Forward => None,
            Verdict::Replace(data) => self.replace(data),
            Verdict::ReplaceMessage(replacement) => {
                let Replacement { data, ext } = *replacement;
                data.and_then(|data| self.replace(data)).or_else(|| ext.and_then(|ext| self.replace_ext(ext)))
            }
            refusal => Some(refusal),
        }
    }

    fn replace(&mut self, data: String) -> Option<Verdict> {
        if bayeux::json::validate(&data, bayeux::Limits::default().json_depth_max).is_err() {
            tracing::error!(channel = self.access.channel(), "a filter returned data that is no JSON");
            return Some(Verdict::Deny(Cow::Borrowed("filter_error")));
        }
        self.access.message.data = Some(Cow::Owned(data));
        self.progress.is_changed = true;
        None
    }

    fn replace_ext(&mut self, ext: String) -> Option<Verdict> {
        let depth_max = bayeux::Limits::default().json_depth_max;
        let is_object = bayeux::json::validate(&ext, depth_max).is_ok_and(|ext| ext.starts_with('{'));
        if !is_object || ext.len() > EXT_BYTES_MAX {
            tracing::error!(channel = self.access.channel(), "a filter returned an ext that is no object, or too long");
            return Some(Verdict::Deny(Cow::Borrowed("filter_error")));
        }
        self.access.message.ext = Some(Cow::Owned(ext));
        self.progress.has_other_ext = true;
        None
    }
}

/// CometD's reason if authorizers matched and none granted.
const NOT_GRANTED: &str = "denied_by_not_granting";
