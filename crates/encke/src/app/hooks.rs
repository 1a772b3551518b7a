//! Everything that a program has registered with the builder, before the start.

use std::sync::Arc;

use super::call::{Need, States};
use super::channel_hooks::{ChannelHook, Table};
use super::events::OnSession;
use super::handlers::AnyAuthenticate;
use super::patterns::Patterns;
use super::route::Route;
use super::template::name_of;
use crate::error::HookError;

/// The hooks that a builder was given.
#[derive(Default)]
pub(crate) struct BuilderHooks {
    pub(crate) authenticator: Option<Arc<dyn AnyAuthenticate>>,
    pub(crate) table: Table,
    pub(crate) routes: Patterns<Route>,
    pub(crate) sessions: Vec<OnSession>,
    pub(crate) states: States,
    /// The states that hooks need, with a description of the hook.
    needs: Vec<(String, Need)>,
    /// The mistakes of the program, in order.
    errors: Vec<HookError>,
}

impl BuilderHooks {
    /// Adds a hook for a channel, a pattern or a template. The start reports a mistake.
    pub(crate) fn add(&mut self, pattern: &str, hook: ChannelHook) {
        self.needs(&hook.described(pattern), hook.needs().to_vec());
        match self.table.add(pattern, hook) {
            Ok((_, is_replaced)) => self.errors.extend(is_replaced.then(|| HookError::TwoServices(pattern.into()))),
            Err(error) => self.errors.push(error),
        }
    }

    /// Adds a listener for sessions.
    pub(crate) fn on_session(&mut self, listener: OnSession, needs: Vec<Need>) {
        self.needs_no_parameters("a listener for sessions", needs);
        self.sessions.push(listener);
    }

    pub(crate) fn authenticate(&mut self, authenticator: Arc<dyn AnyAuthenticate>) {
        self.needs_no_parameters("the authenticator", authenticator.needs());
        if self.authenticator.replace(authenticator).is_some() {
            self.errors.push(HookError::TwoAuthenticators);
        }
    }

    pub(crate) fn route(&mut self, path: &str, route: Route) {
        let hook = format!("the route {path}");
        let name = name_of(path).map_err(|error| match error {
            HookError::Pattern(path) => HookError::Path(path),
            error => error,
        });
        let name = match name {
            Ok(name) => name,
            Err(error) => return self.errors.push(error),
        };
        match name.has_parameters() {
            true => self.needs(&hook, route.needs.clone()),
            false => self.needs_no_parameters(&hook, route.needs.clone()),
        }
        let mut is_first = false;
        let new = || {
            is_first = true;
            route
        };
        match self.routes.entry(&name, new).map(|_| ()) {
            Err(other) => self.errors.push(HookError::TwoTemplates(other.into(), path.into())),
            Ok(()) => self.errors.extend((!is_first).then(|| HookError::TwoRoutes(path.into()))),
        }
    }

    /// Notes the states that a hook needs.
    fn needs(&mut self, hook: &str, needs: Vec<Need>) {
        self.needs.extend(needs.into_iter().map(|need| (hook.to_owned(), need)));
    }

    /// Notes the states that a hook without a template needs.
    fn needs_no_parameters(&mut self, hook: &str, needs: Vec<Need>) {
        if needs.iter().any(Need::is_parameters) {
            self.errors.push(HookError::NoParameters { hook: hook.into() });
        }
        self.needs(hook, needs);
    }

    /// The patterns and templates of a single level with authorizers below which channels are open to everybody: those of `/room/*`
    /// or `/room/{id}` do not decide about `/room/a/b`, and no others do.
    pub(crate) fn open_below(&self) -> Vec<String> {
        let authorized = self.table.authorized();
        let Ok(decided) = encke_core::Patterns::new(&authorized) else { return Vec::new() };
        let is_open = |name: &&String| {
            let level = name.rsplit_once('/').filter(|(_, last)| *last == "*" || last.starts_with('{'));
            level.is_some_and(|(above, _)| !decided.allow(&format!("{above}/**")))
        };
        authorized.iter().filter(is_open).cloned().collect()
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
