//! Everything that a program has registered with the builder, before the start.

use std::sync::Arc;

use bayeux::{ChannelKind, ChannelName, Limits};

use super::access::Authorizer;
use super::call::{Need, States};
use super::events::{OnChannel, OnSession, OnSubscription};
use super::filter::Filter;
use super::handlers::AnyAuthenticate;
use super::patterns::Patterns;
use super::route::Route;
use super::service::Registered;
use crate::error::HookError;

/// The hooks of an application.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) authenticator: Option<Arc<dyn AnyAuthenticate>>,
    pub(crate) channels: Patterns<ChannelHooks>,
    pub(crate) services: Patterns<Option<Arc<Registered>>>,
    pub(crate) routes: Patterns<Option<Route>>,
    pub(crate) sessions: Vec<OnSession>,
    pub(crate) states: States,
    /// The states that hooks need, with a description of the hook.
    needs: Vec<(String, Need)>,
    /// The mistakes of the program, in order.
    errors: Vec<HookError>,
}

/// The hooks of one channel or pattern, each kind in the order of its registration.
#[derive(Default)]
pub(crate) struct ChannelHooks {
    pub(crate) authorizers: Vec<Authorizer>,
    pub(crate) filters: Vec<Filter>,
    pub(crate) listeners: Vec<OnChannel>,
    pub(crate) subscription_listeners: Vec<OnSubscription>,
}

impl Hooks {
    /// The hooks of a channel or pattern. None if the name is no such thing: the start reports it.
    pub(crate) fn channel(&mut self, pattern: &str) -> Option<&mut ChannelHooks> {
        let name = self.named(pattern, HookError::Pattern)?;
        Some(self.channels.entry(name))
    }

    /// Notes the states that a hook needs.
    pub(crate) fn needs(&mut self, hook: &str, needs: Vec<Need>) {
        self.needs.extend(needs.into_iter().map(|need| (hook.to_owned(), need)));
    }

    pub(crate) fn authenticate(&mut self, authenticator: Arc<dyn AnyAuthenticate>) {
        self.needs("the authenticator", authenticator.needs());
        if self.authenticator.replace(authenticator).is_some() {
            self.errors.push(HookError::TwoAuthenticators);
        }
    }

    pub(crate) fn service(&mut self, channel: &str, service: Registered) {
        let Some(name) = self.named(channel, HookError::Pattern) else { return };
        if name.kind() != ChannelKind::Service {
            return self.errors.push(HookError::NotAService(channel.into()));
        }
        self.needs(&format!("the service {channel}"), service.needs.clone());
        if self.services.entry(name).replace(Arc::new(service)).is_some() {
            self.errors.push(HookError::TwoServices(channel.into()));
        }
    }

    pub(crate) fn route(&mut self, path: &str, route: Route) {
        self.needs(&format!("the route {path}"), route.needs.clone());
        if let Some(name) = self.named(path, HookError::Path)
            && self.routes.entry(name).replace(route).is_some()
        {
            self.errors.push(HookError::TwoRoutes(path.into()));
        }
    }

    /// The name with this text. None if it is none: the start reports it.
    fn named<'n>(&mut self, text: &'n str, error: fn(String) -> HookError) -> Option<ChannelName<'n>> {
        let name = name_of(text);
        self.errors.extend(name.is_none().then(|| error(text.into())));
        name
    }

    /// The channels and patterns with authorizers, in the order of their names.
    pub(crate) fn authorized(&self) -> Vec<String> {
        let named = self.channels.named().into_iter().filter(|(_, hooks)| !hooks.authorizers.is_empty());
        named.map(|(name, _)| name.to_owned()).collect()
    }

    /// The patterns of a single level with authorizers below which channels are open to everybody: those of `/room/*` do not
    /// decide about `/room/a/b`, and no others do.
    pub(crate) fn open_below(&self) -> Vec<String> {
        let authorized = self.authorized();
        let Ok(decided) = encke_core::Patterns::new(&authorized) else { return Vec::new() };
        let is_open = |name: &String| name.ends_with("/*") && !decided.allow(&format!("{name}*"));
        authorized.iter().filter(|name| is_open(name)).cloned().collect()
    }

    /// Checks that everything can work.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn check(&self) -> Result<(), HookError> {
        if let Some(error) = self.errors.first() {
            return Err(error.clone());
        }
        let mut missing = self.needs.iter().filter_map(|(hook, need)| Some((hook, need.missing(&self.states)?)));
        let state_missing = |(hook, state): (&String, _)| HookError::StateMissing { hook: hook.clone(), state };
        missing.next().map_or(Ok(()), |found| Err(state_missing(found)))
    }
}

/// The channel or pattern with this text. Settings limit only the names of clients.
pub(crate) fn name_of(text: &str) -> Option<ChannelName<'_>> {
    let limits = Limits { channel_bytes_max: usize::MAX, channel_segments_max: usize::MAX, ..Limits::default() };
    ChannelName::parse(text, &limits).ok()
}
