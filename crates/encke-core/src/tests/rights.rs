//! Tests of rights: walks the table of ways in, and asks on each for every one who may refuse.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::{NOW, Rig, member_of, post};
use crate::application::{Answer, Application, Caller, Decision, Handshake, Publishing, Refusal, Subscribing, Verdict};
use crate::decision::{Awaited, Resolved};
use crate::events::{Effect, ExchangeId, HttpTransport, PublishToken, Request, ShardMessage, SocketKey};
use crate::id::Id;
use crate::identity::{Identity, Patterns};
use crate::now::Now;
use crate::rights::policy::Policy;
use crate::rights::table::{Entry, Right, ServerEntry};
use crate::rights::{Client, May, Wish};
use crate::saved::Saved;
use crate::settings::{ChannelRule, Publishers, Settings};

/// The one who refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refuser {
    /// All is allowed.
    None,
    /// The credentials, which have expired.
    Credentials,
    /// The patterns of the identity, which are none.
    Patterns,
    /// The rule for the channel.
    Rule,
    /// An authorizer, at once.
    Authorizer,
    /// A webhook, later.
    Webhook,
}

const REFUSERS: [Refuser; 6] =
    [Refuser::None, Refuser::Credentials, Refuser::Patterns, Refuser::Rule, Refuser::Authorizer, Refuser::Webhook];

/// The transport of a message.
#[derive(Clone, Copy, Debug)]
enum Transport {
    WebSocket,
    LongPolling,
    CallbackPolling,
}

const TRANSPORTS: [Transport; 3] = [Transport::WebSocket, Transport::LongPolling, Transport::CallbackPolling];

/// The channel that everything is about. The history has one message.
const CHANNEL: &str = "/c";

/// The service that is called.
const SERVICE: &str = "/service/x";

/// An application that gives identities, and refuses as its refuser does.
#[derive(Clone)]
struct Judge {
    refuser: Arc<Mutex<Refuser>>,
    asked: Arc<Mutex<Vec<String>>>,
    policy: Policy,
}

impl Judge {
    fn new(refuser: Refuser) -> Judge {
        let policy = Policy::default().authenticated_by("judge").decided_by("judge");
        Judge { refuser: Arc::new(Mutex::new(refuser)), asked: Arc::default(), policy }
    }

    fn refuser(&self) -> Refuser {
        *self.refuser.lock().expect("no panic")
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }

    fn answer<T: Send + 'static>(&self, channel: &str, yes: T, no: T) -> Answer<T> {
        self.asked.lock().expect("no panic").push(channel.into());
        let is_refused = [CHANNEL, SERVICE].contains(&channel);
        match self.refuser() {
            Refuser::Authorizer if is_refused => Answer::Now(no),
            Refuser::Webhook if is_refused => Answer::Later(Box::pin(ready(no))),
            Refuser::Webhook => Answer::Later(Box::pin(ready(yes))),
            _ => Answer::Now(yes),
        }
    }

    fn identity(&self) -> Identity {
        match self.refuser() {
            Refuser::Credentials => Identity { expires_ms: Some(NOW.wall_ms + 1_000), ..Identity::of_user("ann") },
            Refuser::Patterns => {
                let none = Some(Patterns::default());
                Identity { subscribe: none.clone(), publish: none, ..Identity::of_user("ann") }
            }
            _ => {
                let all = Patterns::new(["/**"]).ok();
                Identity { subscribe: all.clone(), publish: all, ..Identity::of_user("ann") }
            }
        }
    }
}

impl Application for Judge {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(Some(self.identity())))
    }

    fn refresh(&self, _: &Caller<'_>, _: &str) -> Answer<Result<Identity, Refusal>> {
        Answer::Now(Ok(self.identity()))
    }

    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        self.answer(subscribing.channel, Decision::Allow, Decision::deny("judge"))
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        self.answer(publishing.channel, Verdict::Forward, Verdict::deny("judge"))
    }

    fn call(&self, message: &Publishing<'_>) -> Answer<Decision> {
        self.answer(message.channel, Decision::Allow, Decision::deny("judge"))
    }

    fn policy(&self) -> Policy {
        self.policy
    }
}

/// One attempt.
struct Try {
    rig: Rig,
    judge: Judge,
    settings: Settings,
    now: Now,
}

impl Try {
    fn new(refuser: Refuser) -> Try {
        let publishers = if refuser == Refuser::Rule { Publishers::Server } else { Publishers::Anyone };
        let (pattern, history_messages) = (CHANNEL.into(), 10);
        let rule = ChannelRule { pattern, history_messages, presence: true, publishers, ..ChannelRule::default() };
        let (settings, judge) = (Settings { channels: vec![rule], ..Settings::default() }, Judge::new(refuser));
        let mut rig = Rig::new(1, settings.clone(), Box::new(judge.clone()));
        rig.shard.publish_now(CHANNEL, "\"past\"");
        Try { rig, judge, settings, now: NOW }
    }

    /// Opens a session. Its credentials end afterwards if they refuse.
    fn session(&mut self) -> (SocketKey, String) {
        let session = self.rig.opened("{}");
        self.let_credentials_end();
        session
    }

    /// Opens a session that has a subscription by a handle.
    fn subscriber(&mut self) -> (SocketKey, String) {
        let session = self.session();
        let id = Id::parse(&session.1).expect("an id");
        let token = PublishToken { shard: PublishToken::HANDLES, number: 1 };
        self.rig.shard.message(NOW, ShardMessage::Subscribe(id, CHANNEL.into(), token));
        session
    }

    /// Sends a message, and lets decisions come. Returns the replies.
    fn send(&mut self, transport: Transport, socket: SocketKey, message: &str) -> String {
        let transport = match transport {
            Transport::WebSocket => {
                self.rig.shard.socket_text(self.now, socket, message);
                self.settle();
                return self.rig.flushed(socket);
            }
            Transport::LongPolling => HttpTransport::LongPolling,
            Transport::CallbackPolling => HttpTransport::CallbackPolling("f".into()),
        };
        // The answer to a call comes with a connect, or on the socket.
        let response = self.ask(transport, message);
        response + &self.rig.flushed(socket)
    }

    /// Sends a request, and lets decisions come. Returns the body of the response.
    fn ask(&mut self, transport: HttpTransport, message: &str) -> String {
        let exchange = ExchangeId { shard: 0, number: 1 };
        self.rig.shard.request(self.now, Request { transport, ..post(exchange, message.into()) });
        self.settle().unwrap_or_default()
    }

    /// Lets all decisions come. Returns the body of a response.
    fn settle(&mut self) -> Option<String> {
        let mut body = None;
        loop {
            self.rig.shard.flush(self.now, &mut self.rig.kernel, &mut || false);
            let effects = self.rig.shard.take_effects();
            if effects.is_empty() {
                return body;
            }
            for effect in effects {
                match effect {
                    Effect::Await(key, awaited) => {
                        self.rig.shard.message(self.now, ShardMessage::Resolved(key, resolved(awaited)));
                    }
                    Effect::Respond(_, response) => body = Some(String::from_utf8_lossy(&response.body).into_owned()),
                    _ => {}
                }
            }
        }
    }

    /// The sessions after a restart.
    fn restored(mut self, judge: &Judge) -> usize {
        let mut saved: Saved = self.rig.shard.save(self.now);
        // Those by a handle need no right of the client.
        saved.sessions.iter_mut().for_each(|session| session.by_server.clear());
        let mut next = Rig::new(1, self.settings, Box::new(judge.clone()));
        next.shard.restore(self.now, &saved);
        let (restored, lost) = (next.shard.metrics().restored.get(), next.shard.metrics().unrestored.get());
        assert_eq!(restored + lost, 1);
        restored as usize
    }
}

impl Try {
    /// Lets the credentials end before anything happens, if they refuse.
    fn let_credentials_end(&mut self) {
        if self.judge.refuser() == Refuser::Credentials {
            self.now = Now { ms: NOW.ms + 1_000, wall_ms: NOW.wall_ms + 1_000 };
        }
    }

    fn say(&mut self, transport: Transport, (socket, client): &(SocketKey, String), fields: &str) -> String {
        self.send(transport, *socket, &format!(r#"[{{"clientId":"{client}",{fields}}}]"#))
    }

    /// Refreshes the credentials of a session that was allowed everything.
    fn refreshed(&mut self, transport: Transport) -> String {
        let refuser = self.judge.refuser();
        *self.judge.refuser.lock().expect("no panic") = Refuser::None;
        let session = self.subscriber();
        *self.judge.refuser.lock().expect("no panic") = refuser;
        self.let_credentials_end();
        self.say(transport, &session, r#""channel":"/service/auth/refresh","data":"new","id":"1""#)
    }

    /// Asks like a request without a session. The tests of the server do so over HTTP.
    fn is_granted(&mut self, entry: Entry) -> bool {
        let identity = Arc::new(self.judge.identity());
        self.let_credentials_end();
        let client = match entry {
            Entry::HoldHandshake => Client::Newcomer(Some(&identity)),
            _ => Client::Session(Caller::new("", Some(&identity))),
        };
        let mut decided = None;
        loop {
            match self.rig.shard.may_without_session(self.now, entry, &client, &Wish::of(CHANNEL), decided.take()) {
                May::Granted(granted) => return granted.right() == entry.right(),
                May::Denied(_) => return false,
                May::Later(later) => decided = Some(resolved(later)),
            }
        }
    }
}

fn resolved(mut awaited: Awaited) -> Resolved {
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(resolved) = std::pin::Pin::new(&mut awaited).poll(&mut cx) else {
        panic!("a decision does not come")
    };
    resolved
}

/// Tries a way in. True if it is done.
fn is_done(entry: Entry, refuser: Refuser, transport: Transport) -> bool {
    let mut one = Try::new(refuser);
    let succeeds = |text: &str| {
        assert!(text.contains("successful"), "{entry:?} {refuser:?} {transport:?}: {text}");
        !text.contains(r#""successful":false"#)
    };
    let mut tried = |fields: &str| {
        let session = one.session();
        succeeds(&one.say(transport, &session, fields))
    };
    match entry {
        Entry::Subscribe => tried(r#""channel":"/meta/subscribe","subscription":"/c""#),
        Entry::Publish => tried(r#""channel":"/c","data":1"#),
        Entry::Call => tried(r#""channel":"/service/x","data":1"#),
        Entry::RefreshCall => tried(r#""channel":"/service/auth/refresh","data":"new","id":"1""#),
        Entry::PresenceService => tried(r#""channel":"/service/presence","data":{"channel":"/c"}"#),
        Entry::Handshake => {
            one.let_credentials_end();
            let socket = one.rig.shard.socket_opened(NOW, None);
            succeeds(&one.send(transport, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#))
        }
        Entry::StreamHandshake => {
            one.let_credentials_end();
            succeeds(&one.ask(HttpTransport::Subscription, r#"{"channel":"/meta/handshake","version":"1.0"}"#))
        }
        Entry::Stream => {
            let shaken = one.ask(HttpTransport::Subscription, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
            one.let_credentials_end();
            let client = member_of(&shaken, "clientId");
            let fields = r#""channel":"/meta/subscribe","subscription":"/c","ext":{"replay":{"/c":-2}}"#;
            succeeds(&one.ask(HttpTransport::Subscription, &format!(r#"[{{"clientId":"{client}",{fields}}}]"#)))
        }
        Entry::Replay => {
            let session = one.subscriber();
            let fields = r#""channel":"/meta/subscribe","subscription":"/c","ext":{"replay":{"/c":-2}}"#;
            let text = one.say(transport, &session, fields);
            let is_done = succeeds(&text);
            assert_eq!(text.contains("\"past\"") || one.rig.flushed(session.0).contains("\"past\""), is_done, "{text}");
            is_done
        }
        Entry::Refresh => {
            let text = one.refreshed(transport);
            assert!(text.contains("expires_in_ms") || text.contains("token_expired"), "{text}");
            text.contains("expires_in_ms")
        }
        Entry::RefreshedSubscription => !one.refreshed(transport).contains(r#""unsubscribed":["/c"]"#),
        Entry::RestoredSession | Entry::RestoredSubscription => {
            let subscribes = entry == Entry::RestoredSubscription;
            let _session = if subscribes { one.subscriber() } else { one.session() };
            let judge = one.judge.clone();
            one.restored(&judge) == 1
        }
        Entry::HistoryService => tried(r#""channel":"/service/history/read","data":{"channel":"/c"}"#),
        Entry::HoldHandshake | Entry::Hold | Entry::HoldAfter | Entry::HistoryRequest => one.is_granted(entry),
    }
}

/// The table: who may refuse which way in.
fn refuses(entry: Entry, refuser: Refuser) -> bool {
    match (refuser, entry) {
        (Refuser::None, _) => false,
        // The client of a restored session hears of the end of its credentials when it is back.
        (Refuser::Credentials, Entry::RestoredSession | Entry::RestoredSubscription) => false,
        // Expired credentials are not taken in the first place.
        (Refuser::Credentials, Entry::RefreshedSubscription) => false,
        (Refuser::Credentials, _) => true,
        (Refuser::Patterns, Entry::RefreshCall) => false,
        (Refuser::Patterns, _) => entry.right() != Right::Handshake,
        (Refuser::Rule, _) => entry.right() == Right::Publish,
        (Refuser::Authorizer | Refuser::Webhook, Entry::RefreshCall) => false,
        // Nobody waits: the earlier decision holds, as long as the policy is the same.
        (Refuser::Webhook, Entry::RefreshedSubscription | Entry::RestoredSubscription) => false,
        (Refuser::Authorizer | Refuser::Webhook, _) => entry.right() != Right::Handshake,
    }
}

#[test]
fn every_way_in_asks_everyone_who_may_refuse() {
    for entry in Entry::ALL {
        for refuser in REFUSERS {
            for transport in TRANSPORTS {
                let is_done = is_done(entry, refuser, transport);
                assert_eq!(is_done, !refuses(entry, refuser), "{entry:?} {refuser:?} {transport:?}");
            }
        }
    }
    for entry in ServerEntry::ALL {
        assert_eq!(entry.may().right(), entry.right(), "the server's side has all rights");
    }
}

#[test]
fn every_right_has_a_way_in_for_clients_and_all_but_the_handshake_and_calls_for_the_server() {
    for right in [Right::Handshake, Right::Subscribe, Right::Publish, Right::Call, Right::History, Right::Presence] {
        assert!(Entry::ALL.iter().any(|entry| entry.right() == right), "{right:?}");
        let has_server = ServerEntry::ALL.iter().any(|entry| entry.right() == right);
        assert_eq!(has_server, !matches!(right, Right::Handshake | Right::Call), "{right:?}");
    }
}

#[test]
fn announcements_need_the_right_to_the_channel_that_they_are_about() {
    for refuser in [Refuser::Authorizer, Refuser::Webhook] {
        for transport in TRANSPORTS {
            let mut one = Try::new(refuser);
            let (socket, client) = one.session();
            let mut subscribe = |name: &str| {
                let message =
                    format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}"}}"#);
                let text = one.send(transport, socket, &message);
                if text.contains("\"error\"") { member_of(&text, "error") } else { String::new() }
            };
            assert_eq!(subscribe("/presence/c"), "403:judge:subscribe_denied", "{refuser:?} {transport:?}");
            assert_eq!(subscribe("/presence/d"), "", "{refuser:?} {transport:?}");
            one.judge.taken();
            let mut subscribe = |name: &str| {
                let message =
                    format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}"}}"#);
                one.send(transport, socket, &message);
                one.judge.taken()
            };
            assert_eq!(subscribe("/presence/**"), ["/presence/**", "/**"]);
            assert_eq!(subscribe("/presence/*"), ["/presence/*", "/*"]);
            assert_eq!(subscribe("/**"), ["/**"], "the name of both");
            assert_eq!(
                (subscribe("/presence"), subscribe("/presences/c")),
                (vec!["/presence".into()], vec!["/presences/c".into()])
            );
        }
    }
}

#[test]
fn patterns_of_an_identity_cover_announcements_only_with_their_channels() {
    let may = |rights: &[&str], name: &str| {
        let mut one = Try::new(Refuser::None);
        let identity = Identity { subscribe: Patterns::new(rights).ok(), ..Identity::of_user("ann") };
        let identity = Arc::new(identity);
        let client = Client::Session(Caller::new("", Some(&identity)));
        matches!(
            one.rig.shard.may_without_session(NOW, Entry::Subscribe, &client, &Wish::of(name), None),
            May::Granted(_)
        )
    };
    assert!(
        !may(&["/presence/**"], "/presence/c") && !may(&["/c"], "/presence/c") && !may(&["/c", "/d"], "/presence/**")
    );
    assert!(may(&["/presence/**", "/c"], "/presence/c") && may(&["/**"], "/presence/**"));
    assert!(!may(&["/presence/**", "/a/**"], "/presence/**") && may(&["/presence/a/**", "/a/**"], "/presence/a/*"));
}

#[test]
fn a_claim_for_channels_covers_services_but_the_refresh_of_the_own_session() {
    let called = |rights: &[&str], service: &str| {
        let mut one = Try::new(Refuser::None);
        let identity = Arc::new(Identity { publish: Patterns::new(rights).ok(), ..Identity::of_user("ann") });
        let client = Client::Session(Caller::new("", Some(&identity)));
        matches!(
            one.rig.shard.may_without_session(NOW, Entry::Call, &client, &Wish::of(service), None),
            May::Granted(_)
        )
    };
    assert!(
        !called(&[], "/service/x") && !called(&["/chat/**"], "/service/x") && !called(&["/service/y"], "/service/x")
    );
    assert!(called(&["/service/*"], "/service/x") && called(&["/**"], "/service/a/b"));
}

#[test]
fn only_sessions_that_todays_policy_admits_are_restored() {
    let restored = |change: fn(&mut Judge)| {
        let mut one = Try::new(Refuser::None);
        one.subscriber();
        let mut judge = Judge::new(Refuser::None);
        change(&mut judge);
        one.restored(&judge)
    };
    assert_eq!(restored(|_| {}), 1);
    assert_eq!(restored(|judge| judge.policy = judge.policy.authenticated_by("tokens")), 0);
    assert_eq!(restored(|judge| judge.policy = judge.policy.decided_by("webhook")), 1, "it is asked, and grants");
    let webhook: fn(&mut Judge) = |judge| *judge.refuser.lock().expect("no panic") = Refuser::Webhook;
    assert_eq!(restored(webhook), 1, "the one that has agreed");
    assert_eq!(restored(|judge| *judge.refuser.lock().expect("no panic") = Refuser::Authorizer), 0);
    let another: fn(&mut Judge) = |judge| {
        *judge = Judge { policy: judge.policy.decided_by("webhook"), ..Judge::new(Refuser::Webhook) };
    };
    assert_eq!(restored(another), 0, "another webhook, which would have to be waited for");
}
