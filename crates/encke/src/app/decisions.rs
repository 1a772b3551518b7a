//! The hooks of a program as the core's application: finds the hooks of a channel, runs those that answer at once on
//! the spot, and passes on the futures of those that wait.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use encke_core::{Actions, Answer, Application, Decision, EndReason, Identity, Pending, Refusal, Service, Verdict};

use super::access::{Access, Authorizer, Grant, Operation};
use super::authenticate::Handshake;
use super::call::{Call, Context};
use super::caller::Caller;
use super::events::{ChannelEvent, SessionEvent};
use super::filter::{Filter, Publishing};
use super::hooks::{ChannelHooks, Hooks};
use super::patterns::Found;
use super::reply::{Failure, IntoReply};
use super::subscribers::Subscribers;

/// The application that a builder makes.
#[derive(Clone)]
pub(crate) struct Decisions(Arc<Inner>);

struct Inner {
    hooks: Hooks,
    context: Arc<Context>,
    subscribers: Subscribers,
    /// True if some channel has an authorizer or a listener: its subscribers are counted then.
    counts: bool,
    runtime: tokio::runtime::Handle,
}

impl Decisions {
    /// The application with these hooks. Futures are polled in the context of this runtime.
    pub(crate) fn new(mut hooks: Hooks, runtime: tokio::runtime::Handle) -> Decisions {
        let context = Arc::new(Context::new(std::mem::take(&mut hooks.states)));
        let counts = hooks.channels.values().any(|hooks| !hooks.authorizers.is_empty() || !hooks.listeners.is_empty());
        let subscribers = Subscribers::default();
        Decisions(Arc::new(Inner { hooks, context, subscribers, counts, runtime }))
    }

    /// The data that handlers share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    /// Polls a future once. What need not wait is answered without leaving the thread.
    fn poll_once<T: Send + 'static>(&self, future: impl FnOnce() -> Pending<T>) -> Answer<T> {
        let _entered = self.0.runtime.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut future = future();
            match future.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Answer::Now(answer),
                Poll::Pending => Answer::Later(future),
            }
        }));
        polled.unwrap_or_else(again)
    }

    /// Runs a listener. Its panic is logged and changes nothing else.
    fn notify(&self, listener: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(listener)).is_err() {
            tracing::error!("a listener panicked");
        }
    }

    fn notify_channel(&self, found: &Found<'_, ChannelHooks>, event: ChannelEvent<'_>) {
        let mut actions = Actions::default();
        for listener in found.iter().flat_map(|hooks| &hooks.listeners) {
            self.notify(|| listener.0(&event, &mut actions));
        }
        if let Some(handle) = self.0.context.handle() {
            handle.act(actions);
        }
    }
}

/// A panic, passed on to those who run futures: they treat all panics alike.
fn again<T>(panic: Box<dyn std::any::Any + Send>) -> Answer<T> {
    Answer::Later(Box::pin(async move { resume_unwind(panic) }))
}

impl Inner {
    /// The answer of all authorizers together.
    async fn authorize(&self, found: &Found<'_, ChannelHooks>, access: &Access<'_>) -> Grant {
        let (mut any, mut granted) = (false, false);
        for authorizer in found.iter().flat_map(|hooks| &hooks.authorizers) {
            let answer = match authorizer {
                Authorizer::Now(authorizer) => authorizer(access),
                Authorizer::Later(authorizer) => authorizer(access.clone().into_owned()).await,
            };
            match answer {
                Grant::Deny(reason) => return Grant::Deny(reason),
                Grant::Grant => granted = true,
                Grant::Ignore => {}
            }
            any = true;
        }
        if any && !granted { Grant::Deny(Cow::Borrowed(NOT_GRANTED)) } else { Grant::Grant }
    }

    /// The answer to an operation, and before it to the creation of the channel if it does not exist.
    async fn authorize_both(&self, found: &Found<'_, ChannelHooks>, access: &mut Access<'_>) -> Grant {
        if !has_authorizer(found) {
            return Grant::Grant;
        }
        if !self.exists(&access.channel) {
            let operation = std::mem::replace(&mut access.operation, Operation::Create);
            let created = self.authorize(found, access).await;
            access.operation = operation;
            if created != Grant::Grant {
                return created;
            }
        }
        self.authorize(found, access).await
    }

    async fn decide_publish(&self, found: &Found<'_, ChannelHooks>, publishing: Publishing<'_>) -> Verdict {
        let Publishing { caller, channel, data, ext } = publishing;
        let mut access = Access { operation: Operation::Publish, caller, channel, data, ext };
        if let Grant::Deny(reason) = self.authorize_both(found, &mut access).await {
            return Verdict::Deny(reason);
        }
        let Access { caller, channel, data, ext, .. } = access;
        let mut publishing = Publishing { caller, channel, data, ext };
        let mut is_changed = false;
        for filter in found.iter().flat_map(|hooks| &hooks.filters) {
            let verdict = match filter {
                Filter::Now(filter) => filter(&publishing),
                Filter::Later(filter) => filter(publishing.clone().into_owned()).await,
            };
            match verdict {
                Verdict::Forward => {}
                Verdict::Replace(data)
                    if bayeux::json::validate(&data, bayeux::Limits::default().json_depth_max).is_err() =>
                {
                    tracing::error!(channel = &*publishing.channel, "a filter returned data that is no JSON");
                    return Verdict::Deny(Cow::Borrowed("filter_error"));
                }
                Verdict::Replace(data) => {
                    publishing.data = Some(Cow::Owned(data));
                    is_changed = true;
                }
                refusal => return refusal,
            }
        }
        match publishing.data {
            Some(data) if is_changed => Verdict::Replace(data.into_owned()),
            _ => Verdict::Forward,
        }
    }

    /// True if a channel exists, as [`Operation::Create`] means it.
    fn exists(&self, channel: &str) -> bool {
        self.subscribers.has(channel) || self.context.handle().is_some_and(|handle| handle.knows(channel))
    }
}

fn has_authorizer(found: &Found<'_, ChannelHooks>) -> bool {
    found.iter().any(|hooks| !hooks.authorizers.is_empty())
}

/// Runs a decision of hooks that answer at once.
fn at_once<T>(decision: impl Future<Output = T>) -> Answer<T> {
    let polled = catch_unwind(AssertUnwindSafe(|| pin!(decision).poll(&mut TaskContext::from_waker(Waker::noop()))));
    match polled {
        Ok(Poll::Ready(answer)) => Answer::Now(answer),
        Ok(Poll::Pending) => unreachable!("no hook of this decision waits"),
        Err(panic) => again(panic),
    }
}

impl Application for Decisions {
    fn handshake(&self, handshake: &encke_core::Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let Some(authenticator) = self.0.hooks.authenticator.clone() else { return Answer::Now(Ok(None)) };
        let handshake = Handshake::from(handshake);
        self.poll_once(|| {
            let identity = authenticator.authenticate(handshake);
            Box::pin(async move {
                // A session without an identity costs less.
                identity.await.map(|identity| (identity != Identity::default()).then_some(identity))
            })
        })
    }

    fn refresh(&self, caller: &encke_core::Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        let Some(authenticator) = self.0.hooks.authenticator.clone() else {
            return Answer::Now(Err(Refusal::new(403, "refresh_unsupported")));
        };
        self.poll_once(|| authenticator.refresh(Caller::from(caller).into_owned(), credentials.into()))
    }

    fn subscribe(&self, subscribing: &encke_core::Subscribing<'_>) -> Answer<Decision> {
        let found = self.0.hooks.channels.of(subscribing.channel);
        if !has_authorizer(&found) {
            return Answer::Now(Decision::Allow);
        }
        let mut access = Access {
            operation: Operation::Subscribe,
            caller: Caller::from(&subscribing.caller),
            channel: subscribing.channel.into(),
            data: None,
            ext: subscribing.ext.map(Cow::Borrowed),
        };
        let decision = |grant| match grant {
            Grant::Deny(reason) => Decision::Deny(reason),
            Grant::Grant | Grant::Ignore => Decision::Allow,
        };
        if !found.iter().any(|hooks| hooks.authorizers.iter().any(Authorizer::waits)) {
            return at_once(async { decision(self.0.authorize_both(&found, &mut access).await) });
        }
        let (inner, mut access) = (self.0.clone(), access.into_owned());
        self.poll_once(|| {
            Box::pin(async move {
                let found = inner.hooks.channels.of(&access.channel);
                decision(inner.authorize_both(&found, &mut access).await)
            })
        })
    }

    fn publish(&self, publishing: &encke_core::Publishing<'_>) -> Answer<Verdict> {
        let found = self.0.hooks.channels.of(publishing.channel);
        if found.is_empty() {
            return Answer::Now(Verdict::Forward);
        }
        let publishing = Publishing {
            caller: Caller::from(&publishing.caller),
            channel: publishing.channel.into(),
            data: publishing.data.map(Cow::Borrowed),
            ext: publishing.ext.map(Cow::Borrowed),
        };
        if !found.iter().any(|hooks| hooks.waits()) {
            return at_once(self.0.decide_publish(&found, publishing));
        }
        let (inner, publishing) = (self.0.clone(), publishing.into_owned());
        self.poll_once(|| {
            Box::pin(async move {
                let found = inner.hooks.channels.of(&publishing.channel);
                inner.decide_publish(&found, publishing.clone()).await
            })
        })
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let service = self.0.hooks.services.closest(message.channel)?.as_ref()?;
        let found = self.0.hooks.channels.of(message.channel);
        let answer = if has_authorizer(&found) {
            let (inner, call) = (self.0.clone(), Call::of(message, &self.0.context));
            self.poll_once(|| Box::pin(async move { inner.authorized_call(call).await }))
        } else {
            self.poll_once(|| service.answer(Call::of(message, &self.0.context)))
        };
        match answer {
            Answer::Now(now) => {
                *actions = now;
                None
            }
            Answer::Later(later) => Some(later),
        }
    }

    fn opened(&self, caller: &encke_core::Caller<'_>, actions: &mut Actions) {
        for listener in &self.0.hooks.sessions {
            let event = SessionEvent::Opened { caller: Caller::from(caller) };
            self.notify(|| listener.0(&event, actions));
        }
    }

    fn ended(&self, caller: &encke_core::Caller<'_>, reason: EndReason, actions: &mut Actions) {
        for listener in &self.0.hooks.sessions {
            let event = SessionEvent::Ended { caller: Caller::from(caller), reason };
            self.notify(|| listener.0(&event, actions));
        }
    }

    fn subscribed(&self, _: &encke_core::Caller<'_>, channel: &str) {
        let Some(found) = self.counted(channel) else { return };
        self.0.subscribers.add(channel, || self.notify_channel(&found, ChannelEvent::FirstSubscribed { channel }));
    }

    fn unsubscribed(&self, _: &encke_core::Caller<'_>, channel: &str) {
        let Some(found) = self.counted(channel) else { return };
        self.0.subscribers.remove(channel, || self.notify_channel(&found, ChannelEvent::LastUnsubscribed { channel }));
    }

    fn reads_heads(&self) -> bool {
        self.0.hooks.authenticator.is_some()
    }
}

impl Inner {
    /// Answers a call if the authorizers of its channel allow it.
    async fn authorized_call(&self, call: Call) -> Actions {
        let found = self.hooks.channels.of(call.channel());
        let access = Access {
            operation: Operation::Publish,
            caller: call.caller(),
            channel: call.channel().into(),
            data: call.data().map(Cow::Borrowed),
            ext: call.ext().map(Cow::Borrowed),
        };
        // A service that is registered exists.
        if let Grant::Deny(reason) = self.authorize(&found, &access).await {
            return Failure::new("denied", &reason).into_reply();
        }
        let Some(Some(service)) = self.hooks.services.closest(call.channel()) else { return Actions::default() };
        service.answer(call.clone()).await
    }
}

impl Decisions {
    /// The hooks of a channel whose subscribers are counted.
    fn counted(&self, channel: &str) -> Option<Found<'_, ChannelHooks>> {
        let found = self.0.counts.then(|| self.0.hooks.channels.of(channel))?;
        let counts = |hooks: &&ChannelHooks| !hooks.authorizers.is_empty() || !hooks.listeners.is_empty();
        found.iter().any(counts).then_some(found)
    }
}

/// CometD's reason if authorizers matched and none granted.
const NOT_GRANTED: &str = "denied_by_not_granting";
