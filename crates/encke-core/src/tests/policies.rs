//! The policy that has admitted a session: a reload and a refresh of credentials change it, and a start compares it.

use std::future::pending;
use std::sync::{Arc, Mutex};

use super::{NOW, Rig};
use crate::application::{Answer, Application, Caller, Handshake, Refusal};
use crate::decision::Resolved;
use crate::events::{Effect, ShardMessage, SocketKey};
use crate::identity::Identity;
use crate::rights::policy::Policy;
use crate::saved::Saved;
use crate::settings::Settings;

/// An application whose settings change.
#[derive(Clone)]
struct Reloaded(Arc<Mutex<&'static str>>);

impl Application for Reloaded {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(Some(Identity::of_user("ann"))))
    }

    fn refresh(&self, _: &Caller<'_>, _: &str) -> Answer<Result<Identity, Refusal>> {
        Answer::Later(Box::pin(pending()))
    }

    fn policy(&self) -> Policy {
        Policy::default().authenticated_by(*self.0.lock().expect("no panic"))
    }
}

impl Reloaded {
    fn reload(&self, rig: &mut Rig, policy: &'static str) {
        *self.0.lock().expect("no panic") = policy;
        rig.shard.message(NOW, ShardMessage::Settings(Arc::default()));
    }
}

/// The number of sessions that a start with this policy restores.
fn restored_under(policy: &'static str, saved: &Saved) -> u64 {
    let application = Reloaded(Arc::new(Mutex::new(policy)));
    let mut next = Rig::new(1, Settings::default(), Box::new(application));
    next.shard.restore(NOW, saved);
    next.shard.metrics().restored.get()
}

#[test]
fn a_reload_of_the_policy_concerns_the_sessions_that_are_admitted_after_it() {
    let application = Reloaded(Arc::new(Mutex::new("old")));
    let mut rig = Rig::new(1, Settings::default(), Box::new(application.clone()));
    rig.opened("{}");
    for policy in ["old", "new"] {
        application.reload(&mut rig, policy);
    }
    rig.opened("{}");
    rig.opened("{}");
    application.reload(&mut rig, "newest");
    let saved = rig.shard.save(NOW);
    assert_eq!(["old", "new", "newest", "other"].map(|policy| restored_under(policy, &saved)), [1, 2, 0, 0]);
}

#[test]
fn a_session_has_the_policy_under_which_its_refresh_was_asked_for() {
    let application = Reloaded(Arc::new(Mutex::new("old")));
    let mut rig = Rig::new(1, Settings::default(), Box::new(application.clone()));
    rig.opened("{}");
    let (socket, client) = rig.opened("{}");
    application.reload(&mut rig, "new");
    let text = format!(r#"{{"channel":"/service/auth/refresh","clientId":"{client}","data":{{}},"id":"1"}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    let wait = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Await(key, _) => Some(key),
        _ => None,
    });
    application.reload(&mut rig, "newest");
    let refreshed = Resolved::Refresh(Ok(Identity::of_user("ann")));
    rig.shard.message(NOW, ShardMessage::Resolved(wait.expect("a refresh"), refreshed));
    let saved = rig.shard.save(NOW);
    assert_eq!(["old", "new", "newest"].map(|policy| restored_under(policy, &saved)), [1, 1, 0]);
}

/// Notes what it hears of the subscribers of channels.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

impl Listener {
    fn note(&self, what: &str, channel: &str, shard: usize) {
        self.0.lock().expect("no panic").push(format!("{what} {channel} {shard}"));
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

impl Application for Listener {
    fn first_subscribed(&self, channel: &str, shard: usize) {
        self.note("first", channel, shard);
    }

    fn last_unsubscribed(&self, channel: &str, shard: usize) {
        self.note("last", channel, shard);
    }

    fn has_subscribers(&self, channel: &str, shard: usize) {
        self.note("has", channel, shard);
    }
}

#[test]
fn an_application_that_changes_learns_which_channels_have_subscribers() {
    let listener = Listener::default();
    let mut rig = Rig::new(2, Settings::default(), Box::new(listener.clone()));
    let sessions = [rig.opened("{}"), rig.opened("{}")];
    let mut send = |meta: &str, (socket, client): &(_, String), name: &str| {
        let text = format!(r#"{{"channel":"/meta/{meta}","clientId":"{client}","subscription":"{name}"}}"#);
        rig.shard.socket_text(NOW, *socket, &text);
    };
    for session in &sessions {
        send("subscribe", session, "/a");
    }
    send("subscribe", &sessions[0], "/b/*");
    assert_eq!(listener.taken(), ["first /a 0", "first /b/* 0"]);
    for session in &sessions {
        send("unsubscribe", session, "/a");
    }
    assert_eq!(listener.taken(), ["last /a 0"]);
    rig.shard.message(NOW, ShardMessage::Application);
    assert_eq!(listener.taken(), ["has /b/* 0"]);
}

/// An application whose authorizer comes and goes, as `Hooks::add` and `Hooks::remove` do.
#[derive(Clone, Default)]
struct Changing(Arc<Mutex<(bool, usize)>>);

impl Application for Changing {
    fn subscribe(&self, _: &crate::application::Subscribing<'_>) -> Answer<crate::application::Decision> {
        let mut state = self.0.lock().expect("no panic");
        state.1 += usize::from(state.0);
        match state.0 {
            // As authorizers that may wait.
            true => Answer::Later(Box::pin(pending())),
            false => Answer::Now(crate::application::Decision::Allow),
        }
    }

    fn policy(&self) -> Policy {
        match self.0.lock().expect("no panic").0 {
            true => Policy::default().decided_by("/secret"),
            false => Policy::default(),
        }
    }
}

impl Changing {
    fn with_authorizer(is_there: bool) -> Changing {
        Changing(Arc::new(Mutex::new((is_there, 0))))
    }

    fn change(&self, rig: &mut Rig, is_there: bool) {
        self.0.lock().expect("no panic").0 = is_there;
        rig.shard.message(NOW, ShardMessage::Application);
    }

    /// The number of subscribers after a restart with the authorizer, or without.
    fn restored(&self, rig: &mut Rig) -> usize {
        let saved = rig.shard.save(NOW);
        let mut next = Rig::new(1, Settings::default(), Box::new(self.clone()));
        next.shard.restore(NOW, &saved);
        next.shard.subscribers_of("/secret")
    }
}

fn subscribe(rig: &mut Rig, (socket, client): &(SocketKey, String)) {
    let text = format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/secret"}}"#);
    rig.shard.socket_text(NOW, *socket, &text);
}

/// Answers the subscribe that waits: it is allowed.
fn granted(rig: &mut Rig) {
    let wait = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Await(key, _) => Some(key),
        _ => None,
    });
    let allowed = Resolved::Subscribe(crate::application::Decision::Allow);
    rig.shard.message(NOW, ShardMessage::Resolved(wait.expect("a question"), allowed));
}

#[test]
fn an_authorizer_that_came_back_is_asked_about_what_was_subscribed_without_it() {
    let application = Changing::with_authorizer(true);
    let mut rig = Rig::new(1, Settings::default(), Box::new(application.clone()));
    let session = rig.opened("{}");
    application.change(&mut rig, false);
    subscribe(&mut rig, &session);
    application.change(&mut rig, true);
    assert_eq!(application.restored(&mut rig), 0, "asked {} times", application.0.lock().expect("no panic").1);
}

#[test]
fn a_subscription_is_restored_unasked_only_if_the_policy_of_its_session_was_asked() {
    for (changes, restored) in [([true, true], 1), ([false, true], 0), ([true, false], 0)] {
        let application = Changing::with_authorizer(changes[0]);
        let mut rig = Rig::new(1, Settings::default(), Box::new(application.clone()));
        let session = rig.opened("{}");
        application.change(&mut rig, true);
        subscribe(&mut rig, &session);
        application.change(&mut rig, changes[1]);
        granted(&mut rig);
        application.change(&mut rig, true);
        assert_eq!(application.restored(&mut rig), restored, "{changes:?}");
    }
}
