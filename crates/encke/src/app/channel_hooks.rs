//! Hooks for channels: one of them, those of one pattern, and the table of all.

use std::sync::Arc;

use encke_core::{Actions, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::access::{Access, Authorizer};
use super::call::{Calling, Need};
use super::events::{ChannelEvent, OnChannel, OnSubscription, SubscriptionEvent};
use super::filter::{Filter, Publishing};
use super::handlers::{
    AuthorizeAsyncHandler, AuthorizeHandler, ChannelListener, FilterAsyncHandler, FilterHandler, SubscriptionListener,
};
use super::patterns::{Found, Patterns};
use super::reply::Data;
use super::service::{AnswerCall, ServiceHandler};
use super::template::name_of;
use crate::error::HookError;

/// A hook for a channel, a pattern or a template: an authorizer, a filter, a service or a listener. Each method is named as that of
/// the [`Builder`](crate::Builder) that adds such a hook before the start. [`Hooks::add`](crate::Hooks::add) adds it to a running server.
pub struct ChannelHook {
    kind: Kind,
    needs: Vec<Need>,
}

#[derive(Clone)]
enum Kind {
    Authorizer(Authorizer),
    Filter(Filter),
    Service(AnswerCall),
    OnChannel(OnChannel),
    OnSubscription(OnSubscription),
}

opaque!(ChannelHook);

impl ChannelHook {
    /// An authorizer: see [`Builder::authorize`](crate::Builder::authorize).
    pub fn authorize<T, H: AuthorizeHandler<T>>(authorizer: H) -> ChannelHook {
        let needs = authorizer.needs();
        let answer = move |access: &Access<'_>, calling: &Calling<'_>| authorizer.answer(access, calling);
        ChannelHook { kind: Kind::Authorizer(Authorizer::Plain(Arc::new(answer))), needs }
    }

    /// An authorizer that may wait: see [`Builder::authorize_async`](crate::Builder::authorize_async).
    pub fn authorize_async<T, H: AuthorizeAsyncHandler<T>>(authorizer: H) -> ChannelHook {
        let needs = authorizer.needs();
        let answer = move |access: &Access<'_>, calling: &Calling<'_>| authorizer.answer(access, calling);
        ChannelHook { kind: Kind::Authorizer(Authorizer::Async(Arc::new(answer))), needs }
    }

    /// A service: see [`Builder::service`](crate::Builder::service).
    pub fn service<T, H: ServiceHandler<T>>(handler: H) -> ChannelHook {
        let needs = handler.needs();
        ChannelHook { kind: Kind::Service(Arc::new(move |call| handler.answer(call))), needs }
    }

    /// A filter: see [`Builder::filter`](crate::Builder::filter).
    pub fn filter<T, H: FilterHandler<T>>(filter: H) -> ChannelHook {
        let needs = filter.needs();
        let answer = move |message: &Publishing<'_>, calling: &Calling<'_>| filter.answer(message, calling);
        ChannelHook { kind: Kind::Filter(Filter::Plain(Arc::new(answer))), needs }
    }

    /// A filter of typed data: see [`Builder::filter_json`](crate::Builder::filter_json).
    pub fn filter_json<D, F>(filter: F) -> ChannelHook
    where
        D: DeserializeOwned + Serialize,
        F: Fn(D) -> Option<D> + Send + Sync + 'static,
    {
        ChannelHook::filter(move |_: &Publishing<'_>, Data(data): Data<D>| {
            filter(data).map_or(Verdict::Delete, |data| Verdict::from(Data(data)))
        })
    }

    /// A filter that may wait: see [`Builder::filter_async`](crate::Builder::filter_async).
    pub fn filter_async<T, H: FilterAsyncHandler<T>>(filter: H) -> ChannelHook {
        let needs = filter.needs();
        let answer = move |message: &Publishing<'_>, calling: &Calling<'_>| filter.answer(message, calling);
        ChannelHook { kind: Kind::Filter(Filter::Async(Arc::new(answer))), needs }
    }

    /// A listener for the first and the last subscriber: see [`Builder::on_channel`](crate::Builder::on_channel).
    pub fn on_channel<T, H: ChannelListener<T>>(listener: H) -> ChannelHook {
        let needs = listener.needs();
        let notify = move |event: &ChannelEvent<'_>, actions: &mut Actions, calling: &Calling<'_>| {
            listener.notify(event, actions, calling)
        };
        ChannelHook { kind: Kind::OnChannel(Arc::new(notify)), needs }
    }

    /// A listener for the subscriptions of each session: see [`Builder::on_subscription`](crate::Builder::on_subscription).
    pub fn on_subscription<T, H: SubscriptionListener<T>>(listener: H) -> ChannelHook {
        let needs = listener.needs();
        let notify = move |event: &SubscriptionEvent<'_>, actions: &mut Actions, calling: &Calling<'_>| {
            listener.notify(event, actions, calling)
        };
        ChannelHook { kind: Kind::OnSubscription(Arc::new(notify)), needs }
    }

    /// The states and parameters that it needs.
    pub(crate) fn needs(&self) -> &[Need] {
        &self.needs
    }

    /// Its kind with its channel, such as `the service /service/x`.
    pub(crate) fn described(&self, pattern: &str) -> String {
        let kind = match self.kind {
            Kind::Authorizer(_) => "authorizer of",
            Kind::Filter(_) => "filter of",
            Kind::Service(_) => "service",
            Kind::OnChannel(_) | Kind::OnSubscription(_) => "listener for",
        };
        format!("the {kind} {pattern}")
    }
}

/// The identity of a hook of a server, to remove it there: [`Hooks::remove`](crate::Hooks::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

/// A hook with its identity.
type Listed<H> = (HookId, H);

/// The hooks of one channel, pattern or template, each kind in the order of its registration.
#[derive(Clone)]
pub(crate) struct ChannelHooks {
    /// The channel, pattern or template.
    pub(crate) pattern: Box<str>,
    authorizers: Vec<Listed<Authorizer>>,
    filters: Vec<Listed<Filter>>,
    service: Option<Listed<AnswerCall>>,
    listeners: Vec<Listed<OnChannel>>,
    subscription_listeners: Vec<Listed<OnSubscription>>,
}

impl ChannelHooks {
    fn new(pattern: &str) -> ChannelHooks {
        ChannelHooks {
            pattern: pattern.into(),
            authorizers: Vec::new(),
            filters: Vec::new(),
            service: None,
            listeners: Vec::new(),
            subscription_listeners: Vec::new(),
        }
    }

    pub(crate) fn authorizers(&self) -> impl Iterator<Item = &Authorizer> {
        self.authorizers.iter().map(|(_, authorizer)| authorizer)
    }

    pub(crate) fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filters.iter().map(|(_, filter)| filter)
    }

    pub(crate) fn listeners(&self) -> impl Iterator<Item = &OnChannel> {
        self.listeners.iter().map(|(_, listener)| listener)
    }

    pub(crate) fn subscription_listeners(&self) -> impl Iterator<Item = &OnSubscription> {
        self.subscription_listeners.iter().map(|(_, listener)| listener)
    }

    pub(crate) fn has_authorizer(&self) -> bool {
        !self.authorizers.is_empty()
    }

    /// True if it has to be known if its channels have subscribers.
    fn counts(&self) -> bool {
        self.seen() > 0
    }

    /// The number of hooks of which shards have to know.
    fn seen(&self) -> usize {
        self.authorizers.len() + self.listeners.len()
    }

    fn remove(&mut self, id: HookId) {
        self.authorizers.retain(|(own, _)| *own != id);
        self.filters.retain(|(own, _)| *own != id);
        self.service.take_if(|(own, _)| *own == id);
        self.listeners.retain(|(own, _)| *own != id);
        self.subscription_listeners.retain(|(own, _)| *own != id);
    }

    fn len(&self) -> usize {
        let lists = self.authorizers.len() + self.filters.len() + self.listeners.len();
        lists + self.subscription_listeners.len() + usize::from(self.service.is_some())
    }
}

/// All hooks for channels.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) channels: Patterns<ChannelHooks>,
    /// The number of hooks that have been added.
    added: u64,
    /// Grows with each change of the hooks of which shards have to know: authorizers, and listeners for the first and last subscriber.
    pub(crate) revision: u64,
    /// True if some channel has an authorizer or a listener for its first and last subscriber.
    pub(crate) counts: bool,
    /// True if some channel has a listener for the subscriptions of each session.
    pub(crate) follows: bool,
}

impl Table {
    /// Adds a hook. Returns its identity, and true if it is a service that has replaced another one.
    ///
    /// # Errors
    /// The name is none for such a hook, another template covers the same channels, or the hook takes parameters that the
    /// name does not have.
    pub(crate) fn add(&mut self, pattern: &str, hook: ChannelHook) -> Result<(HookId, bool), HookError> {
        let name = name_of(pattern)?;
        if matches!(hook.kind, Kind::Service(_)) && !pattern.starts_with("/service/") {
            return Err(HookError::NotAService(pattern.into()));
        }
        if !name.has_parameters() && hook.needs.iter().any(Need::is_parameters) {
            return Err(HookError::NoParameters { hook: hook.described(pattern) });
        }
        let hooks = self.channels.entry(&name, || ChannelHooks::new(pattern));
        let other = |other: Box<str>| HookError::TwoTemplates(other.into(), pattern.into());
        let hooks = hooks.map_err(other)?;
        self.added += 1;
        let id = HookId(self.added);
        self.revision += u64::from(matches!(hook.kind, Kind::Authorizer(_) | Kind::OnChannel(_)));
        let mut is_replaced = false;
        match hook.kind {
            Kind::Authorizer(authorizer) => hooks.authorizers.push((id, authorizer)),
            Kind::Filter(filter) => hooks.filters.push((id, filter)),
            Kind::Service(service) => is_replaced = hooks.service.replace((id, service)).is_some(),
            Kind::OnChannel(listener) => hooks.listeners.push((id, listener)),
            Kind::OnSubscription(listener) => hooks.subscription_listeners.push((id, listener)),
        }
        self.update();
        Ok((id, is_replaced))
    }

    /// Removes a hook. False if there is none with this identity.
    pub(crate) fn remove(&mut self, id: HookId) -> bool {
        self.retain(|hooks| hooks.remove(id)) > 0
    }

    /// Removes the hooks of exactly this channel, pattern or template. Returns their number.
    pub(crate) fn clear(&mut self, pattern: &str) -> usize {
        self.retain(|hooks| {
            if *hooks.pattern == *pattern {
                *hooks = ChannelHooks::new(pattern);
            }
        })
    }

    /// Removes hooks, and what has none left. Returns the number of those that are gone.
    fn retain(&mut self, mut remove: impl FnMut(&mut ChannelHooks)) -> usize {
        let mut removed = 0;
        self.channels.retain(|hooks| {
            let (before, seen_before) = (hooks.len(), hooks.seen());
            remove(hooks);
            removed += before - hooks.len();
            self.revision += u64::from(hooks.seen() != seen_before);
            hooks.len() > 0
        });
        self.update();
        removed
    }

    fn update(&mut self) {
        self.counts = self.channels.values().any(ChannelHooks::counts);
        self.follows = self.channels.values().any(|hooks| !hooks.subscription_listeners.is_empty());
    }

    /// The hooks of a channel whose subscribers have to be known.
    pub(crate) fn counted(&self, channel: &str) -> Option<Found<'_, ChannelHooks>> {
        let found = self.counts.then(|| self.channels.of(channel))?;
        found.iter().any(|hooks| hooks.counts()).then_some(found)
    }

    /// The service that answers calls of this channel, the closest one, and its channel, pattern or template.
    pub(crate) fn service(&self, channel: &str) -> Option<(&str, &AnswerCall)> {
        let found = self.channels.of(channel).into_iter().rev();
        found.into_iter().find_map(|hooks| Some((&*hooks.pattern, &hooks.service.as_ref()?.1)))
    }

    /// The channels, patterns and templates with authorizers, in the order of their names.
    pub(crate) fn authorized(&self) -> Vec<String> {
        let named = self.channels.named().into_iter().filter(|(_, hooks)| hooks.has_authorizer());
        named.map(|(name, _)| name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Grant;

    fn authorizer() -> ChannelHook {
        ChannelHook::authorize(|_: &Access| Grant::Grant)
    }

    #[test]
    fn a_removed_hook_leaves_nothing_behind() {
        let mut table = Table::default();
        let mut add = |pattern: &str, hook| table.add(pattern, hook).expect("a hook").0;
        let (service, other) = (add("/service/x", ChannelHook::service(async || ())), add("/a/{b}", authorizer()));
        let last = add("/a/{b}", ChannelHook::on_subscription(|_: &SubscriptionEvent, _: &mut Actions| {}));
        assert!(table.service("/service/x").is_some() && table.counts && table.follows);
        assert!(table.remove(service) && !table.remove(service));
        assert!(table.service("/service/x").is_none());
        assert_eq!(table.channels.values().count(), 1, "the entry of the service is gone, too");
        assert!(table.remove(other) && !table.counts && table.follows);
        assert!(table.remove(last) && !table.follows);
        assert_eq!(table.channels.values().count(), 0);
    }

    #[test]
    fn a_channel_is_cleared_of_all_its_hooks_and_no_other_one() {
        let mut table = Table::default();
        for pattern in ["/service/a", "/service/a", "/service/*", "/service/{x}"] {
            table.add(pattern, authorizer()).expect("a hook");
        }
        table.add("/service/a", ChannelHook::service(async || ())).expect("a hook");
        assert_eq!((table.clear("/service/a"), table.clear("/service/a"), table.clear("no name")), (3, 0, 0));
        assert_eq!(table.authorized(), ["/service/*", "/service/{x}"]);
    }

    #[test]
    fn a_service_replaces_the_one_of_its_name_whose_identity_removes_nothing_any_more() {
        let mut table = Table::default();
        let mut add = || table.add("/service/a", ChannelHook::service(async || ())).expect("a service");
        let ((first, is_second), (second, is_replaced)) = (add(), add());
        assert!(!is_second && is_replaced);
        assert!(!table.remove(first) && table.remove(second));
    }
}
