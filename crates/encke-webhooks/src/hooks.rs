//! The webhooks as a part of the application of a server: each hook asks the backends that want its event.
//!
//! They stand in front of another application, whose decisions come first: it may refuse, or change a message, before a backend is
//! asked. Services that no webhook wants are the other application's.

use std::sync::Arc;

use encke_core::{
    Actions, Answer as Later, Application, Attributes, Caller, Decision, EndReason, Handshake, Identity, Pending,
    Policy, Publishing, Refusal, Replacement, Service, SessionOwner, Subscribing, Verdict,
};

use crate::answer::{Answer, Answered};
use crate::backend::Backend;
use crate::perform;
use crate::settings::EventKind;

/// The error that a client gets for a decision without an answer of the backend.
const UNAVAILABLE: &str = "backend_unavailable";
/// The time after which a client whose handshake was refused for this reason tries again, in milliseconds.
const RETRY_MS: u64 = 5_000;

/// An application whose events go to backends.
pub(crate) struct Hooks {
    /// The backends that want an event, by the kind of event.
    by_kind: Vec<Vec<Arc<Backend>>>,
    inner: Box<dyn Application>,
}

/// A session with its owner and its attributes, which wait with a decision.
struct Owner {
    id: Arc<str>,
    identity: Option<Arc<Identity>>,
    attributes: Option<Arc<Attributes>>,
    counted_for: Option<SessionOwner>,
}

impl Owner {
    fn of(caller: &Caller<'_>) -> Owner {
        let (identity, attributes) = (caller.identity.cloned(), caller.attributes.cloned());
        Owner { id: caller.id.into(), identity, attributes, counted_for: caller.counted_for }
    }

    fn caller(&self) -> Caller<'_> {
        let caller = Caller::new(&self.id, self.identity.as_ref()).with_attributes(self.attributes.as_ref());
        caller.with_owner(self.counted_for)
    }
}

impl Hooks {
    pub(crate) fn new(backends: &[Arc<Backend>], inner: Box<dyn Application>) -> Hooks {
        let wanting = |kind: &EventKind| backends.iter().filter(|backend| backend.wants(*kind)).cloned().collect();
        Hooks { by_kind: EventKind::ALL.iter().map(wanting).collect(), inner }
    }

    fn wanting(&self, kind: EventKind) -> &[Arc<Backend>] {
        &self.by_kind[kind as usize]
    }

    fn notify(&self, kind: EventKind, caller: &Caller<'_>, reason: Option<EndReason>) {
        for backend in self.wanting(kind) {
            let mut event = backend.event(kind).caller(caller);
            if let Some(reason) = reason {
                event = event.text("reason", reason.as_str());
            }
            backend.notify(caller, event.finish());
        }
    }
}

impl Hooks {
    fn notify_subscription(&self, kind: EventKind, caller: &Caller<'_>, channel: &str) {
        for backend in self.wanting(kind).iter().filter(|backend| backend.concerns(channel)) {
            backend.notify(caller, backend.event(kind).caller(caller).text("channel", channel).finish());
        }
    }
}

impl Application for Hooks {
    fn handshake(&self, handshake: &Handshake<'_>) -> Later<Result<Option<Identity>, Refusal>> {
        let Some(backend) = self.wanting(EventKind::Handshake).first() else { return self.inner.handshake(handshake) };
        let mut event = backend.event(EventKind::Handshake).text("transport", &handshake.transport.to_string());
        if let Some(peer) = handshake.peer {
            event = event.text("peer", &peer.to_string());
        }
        if let Some(head) = handshake.head {
            event = event.head(head);
        }
        let event = event.raw("ext", handshake.ext).raw("fields", handshake.fields).finish();
        let owner = backend.owner_of_address(handshake.peer);
        let (asked, backend) = (backend.ask(None, owner, event), backend.clone());
        Later::Later(Box::pin(async move {
            match asked.await {
                Ok(Answered { answer: Answer::Identity(identity), .. }) => identity.map(Some),
                Err(without) if backend.allows(EventKind::Handshake, without) => Ok(None),
                _ => Err(unavailable()),
            }
        }))
    }

    fn refresh(&self, caller: &Caller<'_>, credentials: &str) -> Later<Result<Identity, Refusal>> {
        let Some(backend) = self.wanting(EventKind::Refresh).first() else {
            return self.inner.refresh(caller, credentials);
        };
        let event = backend.event(EventKind::Refresh).caller(caller).raw("credentials", Some(credentials)).finish();
        let owner = Owner::of(caller);
        let asked = backend.ask(Some(&owner.id), backend.owner_of(caller), event);
        let backend = backend.clone();
        Later::Later(Box::pin(async move {
            match (asked.await, owner.identity) {
                (Ok(Answered { answer: Answer::Identity(identity), .. }), _) => identity,
                // It stays as it is.
                (Err(without), Some(identity)) if backend.allows(EventKind::Refresh, without) => {
                    Ok((*identity).clone())
                }
                _ => Err(unavailable()),
            }
        }))
    }

    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Later<Decision> {
        let first = self.inner.subscribe(subscribing);
        let backends =
            self.wanting(EventKind::Subscribe).iter().filter(|backend| backend.concerns(subscribing.channel));
        let backends: Vec<Arc<Backend>> = backends.cloned().collect();
        if backends.is_empty() || matches!(first, Later::Now(Decision::Deny(_))) {
            return first;
        }
        let owner = Owner::of(&subscribing.caller);
        let (channel, ext) = (subscribing.channel.to_string(), subscribing.ext.map(String::from));
        let ask = move |backend: &Arc<Backend>| {
            let event = backend.event(EventKind::Subscribe).caller(&owner.caller());
            let event = event.text("channel", &channel).raw("ext", ext.as_deref()).finish();
            backend.ask(Some(&owner.id), backend.owner_of(&owner.caller()), event)
        };
        // The first backend is asked before anything waits, if anybody waits.
        let is_asked = matches!(first, Later::Now(_)) && !subscribing.is_held;
        let mut asked = is_asked.then(|| ask(&backends[0]));
        Later::Later(Box::pin(async move {
            if let decision @ Decision::Deny(_) = decided(first).await {
                return decision;
            }
            for backend in backends {
                match asked.take().unwrap_or_else(|| ask(&backend)).await {
                    Ok(Answered { answer: Answer::Decision(Decision::Allow), .. }) => {}
                    Ok(Answered { answer: Answer::Decision(decision), .. }) => return decision,
                    Err(without) if backend.allows(EventKind::Subscribe, without) => {}
                    _ => return Decision::deny(UNAVAILABLE),
                }
            }
            Decision::Allow
        }))
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Later<Verdict> {
        let first = self.inner.publish(publishing);
        let backends = self.wanting(EventKind::Publish).iter().filter(|backend| backend.concerns(publishing.channel));
        let backends: Vec<Arc<Backend>> = backends.cloned().collect();
        if backends.is_empty() || matches!(first, Later::Now(Verdict::Delete | Verdict::Deny(_))) {
            return first;
        }
        let owner = Owner::of(&publishing.caller);
        let (channel, ext) = (publishing.channel.to_string(), publishing.ext.map(String::from));
        let data = publishing.data.map(String::from);
        let ask = move |backend: &Arc<Backend>, replaced: &Replacement| {
            let event = backend.event(EventKind::Publish).caller(&owner.caller()).text("channel", &channel);
            let data = replaced.data.as_deref().or(data.as_deref());
            let ext = replaced.ext.as_deref().or(ext.as_deref());
            let event = event.raw("data", data).raw("ext", ext).finish();
            backend.ask(Some(&owner.id), backend.owner_of(&owner.caller()), event)
        };
        // The first backend is asked before anything waits.
        let mut asked = match &first {
            Later::Now(verdict) => Some(ask(&backends[0], &replacement_of(verdict.clone()).unwrap_or_default())),
            Later::Later(_) => None,
        };
        Later::Later(Box::pin(async move {
            // The `data` and the `ext` of the last ones who replaced them.
            let mut replaced = match replacement_of(decided(first).await) {
                Ok(replacement) => replacement,
                Err(verdict) => return verdict,
            };
            for backend in backends {
                match asked.take().unwrap_or_else(|| ask(&backend, &replaced)).await {
                    Ok(Answered { answer: Answer::Verdict(verdict), .. }) => match replacement_of(verdict) {
                        Ok(Replacement { data, ext }) => {
                            replaced.data = data.or(replaced.data);
                            replaced.ext = ext.or(replaced.ext);
                        }
                        Err(verdict) => return verdict,
                    },
                    Err(without) if backend.allows(EventKind::Publish, without) => {}
                    _ => return Verdict::deny(UNAVAILABLE),
                }
            }
            match replaced {
                Replacement { data: None, ext: None } => Verdict::Forward,
                Replacement { data: Some(data), ext: None } => Verdict::Replace(data),
                replaced => Verdict::ReplaceMessage(Box::new(replaced)),
            }
        }))
    }

    fn call(&self, message: &Publishing<'_>) -> Later<Decision> {
        self.inner.call(message)
    }

    fn serves(&self, channel: &str) -> bool {
        let wanting = self.wanting(EventKind::Service);
        wanting.iter().any(|backend| backend.covers(channel)) || self.inner.serves(channel)
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let wanting = self.wanting(EventKind::Service);
        let Some(backend) = wanting.iter().find(|backend| backend.covers(message.channel)) else {
            return self.inner.service(message, actions);
        };
        let mut event = backend.event(EventKind::Service).caller(&message.caller).text("channel", message.channel);
        if let Some(id) = message.id {
            event = event.text("message_id", id);
        }
        let event = event.raw("data", message.data).raw("ext", message.ext).finish();
        let owner = backend.owner_of(&message.caller);
        let asked = backend.ask(Some(&message.caller.id.into()), owner, event);
        let backend = backend.clone();
        Some(Box::pin(async move {
            let mut actions = Actions::default();
            match asked.await {
                Ok(answered) => {
                    answered.actions.into_iter().for_each(|action| perform::with_reply(action, &mut actions));
                    if let Answer::Call(Some(reply)) = answered.answer {
                        if reply.successful {
                            actions.reply(reply.data);
                        } else {
                            actions.fail(reply.data);
                        }
                    }
                }
                Err(without) if backend.allows(EventKind::Service, without) => {}
                Err(_) => actions.fail(format!("{UNAVAILABLE:?}")),
            }
            actions
        }))
    }

    fn opened(&self, caller: &Caller<'_>, actions: &mut Actions) {
        self.notify(EventKind::Opened, caller, None);
        self.inner.opened(caller, actions);
    }

    fn ended(&self, caller: &Caller<'_>, reason: EndReason, actions: &mut Actions) {
        self.notify(EventKind::Ended, caller, Some(reason));
        self.inner.ended(caller, reason, actions);
    }

    fn subscribed(&self, caller: &Caller<'_>, channel: &str) {
        self.notify_subscription(EventKind::Subscribed, caller, channel);
        self.inner.subscribed(caller, channel);
    }

    fn unsubscribed(&self, caller: &Caller<'_>, channel: &str) {
        self.notify_subscription(EventKind::Unsubscribed, caller, channel);
        self.inner.unsubscribed(caller, channel);
    }

    fn first_subscribed(&self, channel: &str, shard: usize) {
        self.inner.first_subscribed(channel, shard);
    }

    fn last_unsubscribed(&self, channel: &str, shard: usize) {
        self.inner.last_unsubscribed(channel, shard);
    }

    fn has_subscribers(&self, channel: &str, shard: usize) {
        self.inner.has_subscribers(channel, shard);
    }

    fn policy(&self) -> Policy {
        let mut policy = self.inner.policy();
        for backend in self.wanting(EventKind::Handshake) {
            policy = policy.authenticated_by(&backend.policy(EventKind::Handshake));
        }
        for backend in self.wanting(EventKind::Subscribe) {
            policy = policy.decided_by(&backend.policy(EventKind::Subscribe));
        }
        policy
    }

    fn reads_heads(&self) -> bool {
        !self.wanting(EventKind::Handshake).is_empty() || self.inner.reads_heads()
    }
}

async fn decided<T>(answer: Later<T>) -> T {
    match answer {
        Later::Now(answer) => answer,
        Later::Later(pending) => pending.await,
    }
}

/// The parts that a verdict replaces; the verdict itself if the message does not go on.
fn replacement_of(verdict: Verdict) -> Result<Replacement, Verdict> {
    match verdict {
        Verdict::Forward => Ok(Replacement::default()),
        Verdict::Replace(data) => Ok(Replacement { data: Some(data), ext: None }),
        Verdict::ReplaceMessage(replacement) => Ok(*replacement),
        verdict => Err(verdict),
    }
}

fn unavailable() -> Refusal {
    Refusal::new(503, UNAVAILABLE).retry_after_ms(RETRY_MS)
}
