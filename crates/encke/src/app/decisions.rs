//! The hooks of a program as the core's application: finds the hooks of a channel, runs those that answer at once on
//! the spot, and passes on the futures of those that wait.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bayeux::channel::META_HANDSHAKE;
use encke_core::{
    Actions, Answer, Application, Decision, EndReason, Identity, Pending, Policy, Refusal, Service, Verdict,
};

use super::access::Operation;
use super::authenticate::Handshake;
use super::call::{Calling, Context};
use super::caller::Caller;
use super::channel_hooks::{ChannelHooks, Table};
use super::events::{ChannelEvent, OnSession, SessionEvent, SubscriptionEvent};
use super::filter::Publishing;
use super::handlers::AnyAuthenticate;
use super::hook::poll_once;
use super::hooks::BuilderHooks;
use super::params::INVALID_PARAMETERS;
use super::passage::{Concerned, Next, Passage, Said};
use super::patterns::Found;
use super::reply::Failure;
use super::running::Hooks;
use super::subscribers::Subscribers;

/// The application that a builder makes.
#[derive(Clone)]
pub(crate) struct Decisions(Arc<Inner>);

struct Inner {
    authenticator: Option<Arc<dyn AnyAuthenticate>>,
    sessions: Vec<OnSession>,
    hooks: Hooks,
    context: Arc<Context>,
    subscribers: Subscribers,
    /// True if clients have certificates. Without an authenticator, one that names a user is the identity.
    has_certificates: bool,
    runtime: tokio::runtime::Handle,
}

impl Decisions {
    /// The application with these hooks. Futures are polled in the context of this runtime.
    pub(crate) fn new(hooks: BuilderHooks, runtime: tokio::runtime::Handle, has_certificates: bool) -> Decisions {
        let BuilderHooks { authenticator, sessions, table, states, .. } = hooks;
        let context = Arc::new(Context::new(states));
        let (hooks, subscribers) = (Hooks::new(table, context.clone()), Subscribers::default());
        Decisions(Arc::new(Inner { authenticator, sessions, hooks, context, subscribers, has_certificates, runtime }))
    }

    /// The data that handlers share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    /// The hooks for channels, to which the program may add others.
    pub(crate) fn hooks(&self) -> &Hooks {
        &self.0.hooks
    }

    /// Polls a future once, in the context of the runtime.
    fn poll_once<T: Send + 'static>(&self, future: impl FnOnce() -> Pending<T>) -> Answer<T> {
        let _entered = self.0.runtime.enter();
        caught(|| poll_once(future()))
    }

    /// Runs a listener. Its panic is logged and changes nothing else.
    fn notify(&self, listener: impl FnOnce() -> Result<(), Failure>) {
        match catch_unwind(AssertUnwindSafe(listener)) {
            Ok(Ok(())) => {}
            // Clients name channels.
            Ok(Err(failure)) if failure.class() == INVALID_PARAMETERS => {}
            Ok(Err(failure)) => tracing::error!(failure = failure.data(), "a listener did not run"),
            Err(_) => tracing::error!("a listener panicked"),
        }
    }

    fn notify_channel(&self, found: &Found<'_, ChannelHooks>, channel: &str, event: ChannelEvent<'_>) {
        let mut actions = Actions::default();
        for hooks in found {
            let calling = Calling::of_nobody(channel, None, &self.0.context).of_hook(&hooks.pattern);
            hooks.listeners().for_each(|listener| self.notify(|| listener(&event, &mut actions, &calling)));
        }
        self.act(actions);
    }

    /// Runs the listeners for the subscriptions of each session.
    fn notify_subscription(&self, caller: &encke_core::Caller<'_>, channel: &str, has_begun: bool) {
        let table = self.0.hooks.table();
        if !table.follows {
            return;
        }
        let (mut actions, caller) = (Actions::default(), Caller::from(caller));
        let event = match has_begun {
            true => SubscriptionEvent::Subscribed { caller: caller.clone(), channel },
            false => SubscriptionEvent::Unsubscribed { caller: caller.clone(), channel },
        };
        for hooks in table.channels.of(channel) {
            let calling = Calling::of_session(&caller, channel, &self.0.context).of_hook(&hooks.pattern);
            hooks
                .subscription_listeners()
                .for_each(|listener| self.notify(|| listener(&event, &mut actions, &calling)));
        }
        self.act(actions);
    }

    fn act(&self, actions: Actions) {
        if let Some(handle) = self.0.context.handle().filter(|_| !actions.as_slice().is_empty()) {
            handle.act(actions);
        }
    }

    fn notify_session(&self, event: &SessionEvent<'_>, caller: &Caller<'_>, actions: &mut Actions) {
        let calling = Calling::of_session(caller, "", &self.0.context);
        for listener in &self.0.sessions {
            self.notify(|| listener(event, actions, &calling));
        }
    }

    /// Decides about an operation. Nothing is allocated or copied unless a hook waits. Then the operation goes on with these hooks.
    fn decide<T: Send + 'static>(
        &self,
        table: &Arc<Table>,
        concerned: &Concerned<'_>,
        mut passage: Passage<'_>,
        then: fn(Verdict) -> T,
    ) -> Answer<T> {
        caught(|| match passage.go_on(concerned, &self.0.context, &self.0.runtime) {
            Next::Decided(verdict) => Answer::Now(then(verdict)),
            Next::Waits(waits) => {
                let (inner, table, passage) = (self.0.clone(), table.clone(), passage.into_owned());
                Answer::Later(Box::pin(async move { then(inner.finish(&table, passage, waits).await) }))
            }
        })
    }
}

/// Runs hooks. A panic is passed on to those who run futures: they treat all panics alike.
fn caught<T: Send + 'static>(hooks: impl FnOnce() -> Answer<T>) -> Answer<T> {
    catch_unwind(AssertUnwindSafe(hooks))
        .unwrap_or_else(|panic| Answer::Later(Box::pin(async move { resume_unwind(panic) })))
}

impl Inner {
    /// Decides about an operation of which a hook waits.
    async fn finish(&self, table: &Table, mut passage: Passage<'static>, mut waits: Pending<Said>) -> Verdict {
        loop {
            if let Some(verdict) = passage.take(waits.await) {
                return verdict;
            }
            let concerned = passage.concerned(&table.channels);
            match passage.go_on(&concerned, &self.context, &self.runtime) {
                Next::Decided(verdict) => return verdict,
                Next::Waits(next) => waits = next,
            }
        }
    }

    /// True if a channel exists, as [`Operation::Create`] means it.
    fn exists(&self, channel: &str) -> bool {
        self.subscribers.has(channel) || self.context.handle().is_some_and(|handle| handle.knows(channel))
    }
}

impl Application for Decisions {
    fn handshake(&self, handshake: &encke_core::Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let Some(authenticator) = self.0.authenticator.clone() else {
            let user = handshake.head.and_then(|head| head.certificate());
            return Answer::Now(Ok(user.map(Identity::of_user)));
        };
        let owned = Handshake::from(handshake);
        let calling = Calling::of_nobody(META_HANDSHAKE, handshake.ext, &self.0.context);
        self.poll_once(|| {
            let identity = authenticator.authenticate(owned, &calling);
            Box::pin(async move {
                // A session without an identity costs less.
                identity.await.map(|identity| (identity != Identity::default()).then_some(identity))
            })
        })
    }

    fn refresh(&self, caller: &encke_core::Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        let Some(authenticator) = self.0.authenticator.clone() else {
            return Answer::Now(Err(Refusal::new(403, "refresh_unsupported")));
        };
        self.poll_once(|| authenticator.refresh(Caller::from(caller).into_owned(), credentials.into()))
    }

    fn subscribe(&self, subscribing: &encke_core::Subscribing<'_>) -> Answer<Decision> {
        let table = self.0.hooks.table();
        let concerned = Concerned::of(&table.channels, subscribing.channel);
        if !concerned.has_authorizer() {
            return Answer::Now(Decision::Allow);
        }
        let message = Publishing::of(&subscribing.caller, subscribing.channel, None, subscribing.ext);
        // Whoever has a subscription does not create its channel.
        let creates = !subscribing.is_held && !self.0.exists(subscribing.channel);
        self.decide(&table, &concerned, Passage::new(Operation::Subscribe, message, creates, false), decision_of)
    }

    fn publish(&self, publishing: &encke_core::Publishing<'_>) -> Answer<Verdict> {
        let table = self.0.hooks.table();
        let concerned = Concerned::of(&table.channels, publishing.channel);
        if concerned.is_empty() {
            return Answer::Now(Verdict::Forward);
        }
        let creates = concerned.has_authorizer() && !self.0.exists(publishing.channel);
        let message = Publishing::of(&publishing.caller, publishing.channel, publishing.data, publishing.ext);
        self.decide(&table, &concerned, Passage::new(Operation::Publish, message, creates, true), |verdict| verdict)
    }

    fn call(&self, message: &encke_core::Publishing<'_>) -> Answer<Decision> {
        let table = self.0.hooks.table();
        let concerned = Concerned::of(&table.channels, message.channel);
        if !concerned.has_authorizer() {
            return Answer::Now(Decision::Allow);
        }
        let message = Publishing::of(&message.caller, message.channel, message.data, message.ext);
        // Nobody creates the channel of a service.
        self.decide(&table, &concerned, Passage::new(Operation::Publish, message, false, false), decision_of)
    }

    fn serves(&self, channel: &str) -> bool {
        self.0.hooks.table().service(channel).is_some()
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let inner = &self.0;
        let table = inner.hooks.table();
        let (pattern, service) = table.service(message.channel)?;
        let call = Calling::new(message, pattern, &inner.context);
        let _entered = inner.runtime.enter();
        let answer = caught(|| service(&call));
        match answer {
            Answer::Now(now) => {
                *actions = now;
                None
            }
            Answer::Later(later) => Some(later),
        }
    }

    fn opened(&self, caller: &encke_core::Caller<'_>, actions: &mut Actions) {
        let caller = Caller::from(caller);
        self.notify_session(&SessionEvent::Opened { caller: caller.clone() }, &caller, actions);
    }

    fn ended(&self, caller: &encke_core::Caller<'_>, reason: EndReason, actions: &mut Actions) {
        let caller = Caller::from(caller);
        self.notify_session(&SessionEvent::Ended { caller: caller.clone(), reason }, &caller, actions);
    }

    fn subscribed(&self, caller: &encke_core::Caller<'_>, channel: &str) {
        self.notify_subscription(caller, channel, true);
    }

    fn unsubscribed(&self, caller: &encke_core::Caller<'_>, channel: &str) {
        self.notify_subscription(caller, channel, false);
    }

    fn first_subscribed(&self, channel: &str, shard: usize) {
        let table = self.0.hooks.table();
        let Some(found) = table.counted(channel) else { return };
        let event = ChannelEvent::FirstSubscribed { channel };
        self.0.subscribers.add(channel, shard, || self.notify_channel(&found, channel, event));
    }

    fn last_unsubscribed(&self, channel: &str, shard: usize) {
        // Also if no hook needs it any more: another one may be added.
        self.0.subscribers.remove(channel, shard, || {
            let table = self.0.hooks.table();
            let event = ChannelEvent::LastUnsubscribed { channel };
            table.counted(channel).iter().for_each(|found| self.notify_channel(found, channel, event));
        });
    }

    fn has_subscribers(&self, channel: &str, shard: usize) {
        if self.0.hooks.table().counted(channel).is_some() {
            self.0.subscribers.add(channel, shard, || {});
        }
    }

    fn policy(&self) -> Policy {
        let mut policy = Policy::default();
        if self.0.has_certificates {
            policy = policy.authenticated_by("certificates");
        }
        if let Some(authenticator) = &self.0.authenticator {
            policy = policy.authenticated_by(&authenticator.policy());
        }
        self.0.hooks.table().authorized().iter().fold(policy, |policy, name| policy.decided_by(name))
    }

    fn reads_heads(&self) -> bool {
        self.0.authenticator.is_some() || self.0.has_certificates
    }
}

/// The decision of authorizers.
fn decision_of(verdict: Verdict) -> Decision {
    match verdict {
        Verdict::Deny(reason) => Decision::Deny(reason),
        _ => Decision::Allow,
    }
}
