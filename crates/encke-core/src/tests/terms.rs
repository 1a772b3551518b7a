//! Tests of sessions whose terms differ from the settings.

use super::{NOW, Rig, member_of};
use crate::application::{Answer, Application, Caller, Handshake, Refusal};
use crate::events::{Changed, Effect, PublishToken, Report, ShardMessage, SocketKey};
use crate::id::Id;
use crate::identity::Identity;
use crate::now::Now;
use crate::session_terms::SessionTerms;
use crate::settings::{ChannelRule, Settings};

const TOKEN: PublishToken = PublishToken { shard: PublishToken::HANDLES, number: 1 };

/// Gives each session the terms that its credentials name.
struct Landlord;

impl Application for Landlord {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(Some(tenant(handshake.ext.unwrap_or_default()))))
    }

    fn refresh(&self, _: &Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        Answer::Now(Ok(tenant(credentials)))
    }
}

/// Ann, with the terms that a text names.
fn tenant(text: &str) -> Identity {
    let default = SessionTerms::default;
    let terms = match () {
        () if text.contains("patient") => {
            SessionTerms { timeout_ms: Some(50_000), interval_ms: Some(700), ..patient() }
        }
        () if text.contains("mute") => SessionTerms { broadcast_to_publisher: Some(false), ..default() },
        () if text.contains("polling") => SessionTerms { connect_deliver_only: Some(true), ..default() },
        () if text.contains("nonsense") => SessionTerms { timeout_ms: Some(0), ..default() },
        () => return Identity::of_user("ann"),
    };
    Identity::of_user("ann").with_terms(terms)
}

fn patient() -> SessionTerms {
    SessionTerms { max_interval_ms: Some(90_000), ..SessionTerms::default() }
}

fn rig() -> Rig {
    Rig::new(1, Settings::default(), Box::new(Landlord))
}

/// A connect on the WebSocket of a session. Returns what the WebSocket gets.
fn connect(rig: &mut Rig, socket: SocketKey, client: &str) -> String {
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.flushed(socket)
}

fn refresh(rig: &mut Rig, socket: SocketKey, client: &str, credentials: &str) -> String {
    let text =
        format!(r#"{{"channel":"/service/auth/refresh","clientId":"{client}","data":"{credentials}","id":"1"}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    rig.flushed(socket)
}

fn set(rig: &mut Rig, client: &str, terms: SessionTerms) -> Changed {
    let id = Id::parse(client).expect("an id");
    rig.shard.message(NOW, ShardMessage::SetTerms(id, Box::new(terms), TOKEN));
    let outcome = rig.shard.take_effects().into_iter().find_map(|effect| match effect {
        Effect::SendToShard(_, ShardMessage::Report(Report::Changed(_, outcome))) => Some(outcome),
        _ => None,
    });
    outcome.expect("an outcome")
}

/// The first second after now at which a session is gone, if its client is silent and nothing else happens.
fn ends_after_s(rig: &mut Rig, client: &str) -> u64 {
    let id = Id::parse(client).expect("an id");
    let later = |seconds: u64| Now { ms: NOW.ms + seconds * 1_000, wall_ms: NOW.wall_ms + seconds * 1_000 };
    let is_gone = |seconds: &u64| {
        rig.shard.advance(later(*seconds));
        rig.shard.session(&id).is_none()
    };
    (0..600).find(is_gone).expect("it ends")
}

#[test]
fn a_session_has_the_times_of_its_identity_and_others_those_of_the_settings() {
    let mut rig = rig();
    let (key, client) = rig.opened(r#"{"as":"patient"}"#);
    let (other, other_client) = rig.opened("{}");
    let first = connect(&mut rig, key, &client);
    assert!(!first.contains("advice"), "the handshake has advised it: {first}");
    connect(&mut rig, other, &other_client);
    rig.shard.socket_closed(NOW, key);
    rig.shard.socket_closed(NOW, other);
    assert_eq!(ends_after_s(&mut rig, &other_client), 11);
    assert_eq!(ends_after_s(&mut rig, &client), 91);
}

#[test]
fn a_handshake_advises_the_times_of_the_session_and_its_connect_is_held_as_long() {
    let mut rig = rig();
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0","ext":{"as":"patient"}}"#);
    let reply = rig.flushed(key);
    assert!(reply.contains(r#""timeout":50000"#) && reply.contains(r#""interval":700"#), "{reply}");
    let client = member_of(&reply, "clientId");
    connect(&mut rig, key, &client);
    assert_eq!(connect(&mut rig, key, &client), "", "it is held");
    for (seconds, is_answered) in [(49, false), (51, true)] {
        rig.shard.advance(Now { ms: NOW.ms + seconds * 1_000, ..NOW });
        assert_eq!(rig.flushed(key).contains("/meta/connect"), is_answered, "after {seconds} s");
    }
}

#[test]
fn terms_out_of_range_refuse_a_handshake_and_a_refresh() {
    let mut rig = rig();
    let key = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, key, r#"{"channel":"/meta/handshake","version":"1.0","ext":{"as":"nonsense"}}"#);
    let refused = rig.flushed(key);
    assert!(refused.contains(r#""error":"503:session_terms_invalid:handshake_denied""#), "{refused}");
    let (key, client) = rig.opened(r#"{"as":"patient"}"#);
    let refused = refresh(&mut rig, key, &client, "nonsense");
    assert!(refused.contains("503:session_terms_invalid"), "{refused}");
    connect(&mut rig, key, &client);
    rig.shard.socket_closed(NOW, key);
    assert_eq!(ends_after_s(&mut rig, &client), 91, "it has the terms from before");
}

#[test]
fn a_publisher_gets_its_own_messages_or_not_as_its_terms_say_whatever_the_rules_do() {
    let rule = ChannelRule { pattern: "/a".into(), broadcast_to_publisher: Some(true), ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(Landlord));
    let (mute, client) = rig.opened(r#"{"as":"mute"}"#);
    let (other, other_client) = rig.opened("{}");
    for (key, client) in [(mute, &client), (other, &other_client)] {
        connect(&mut rig, key, client);
        rig.subscribe(key, client);
        rig.flushed(key);
    }
    let publish = |rig: &mut Rig, from: SocketKey, client: &str| {
        rig.shard.socket_text(NOW, from, &format!(r#"{{"channel":"/a","clientId":"{client}","data":"news"}}"#));
        [mute, other].map(|key| rig.flushed(key).contains("news"))
    };
    assert_eq!(publish(&mut rig, mute, &client), [false, true]);
    assert_eq!(publish(&mut rig, other, &other_client), [true, true]);
    let loud = SessionTerms { broadcast_to_publisher: Some(true), ..SessionTerms::default() };
    assert_eq!(set(&mut rig, &client, loud), Changed::Done);
    assert_eq!(publish(&mut rig, mute, &client), [true, true]);
    assert_eq!(set(&mut rig, &client, SessionTerms::default()), Changed::Done);
    assert_eq!(publish(&mut rig, mute, &client), [false, true], "those of its identity hold again");
}

#[test]
fn messages_come_with_connects_only_where_the_terms_say_so() {
    let mut rig = rig();
    let (key, client) = rig.opened(r#"{"as":"polling"}"#);
    connect(&mut rig, key, &client);
    rig.subscribe(key, &client);
    rig.flushed(key);
    rig.publish(7);
    assert_eq!(rig.flushed(key), "", "no connect is held");
    let text = connect(&mut rig, key, &client);
    assert!(text.find(r#""data":7"#) < text.find("/meta/connect") && text.contains(r#""data":7"#), "{text}");

    // On the WebSocket that it has it stays so. On the next one messages are pushed.
    let pushed = SessionTerms { connect_deliver_only: Some(false), ..SessionTerms::default() };
    assert_eq!(set(&mut rig, &client, pushed), Changed::Done);
    rig.publish(8);
    assert_eq!(rig.flushed(key), "");
    rig.shard.socket_closed(NOW, key);
    let next = rig.shard.socket_opened(NOW, None);
    assert!(connect(&mut rig, next, &client).contains(r#""data":8"#));
    rig.publish(9);
    assert!(rig.flushed(next).contains(r#""data":9"#));

    // And back, without a connect on the next WebSocket that is held.
    assert_eq!(set(&mut rig, &client, SessionTerms::default()), Changed::Done);
    rig.publish(10);
    assert!(rig.flushed(next).contains(r#""data":10"#));
    rig.shard.socket_closed(NOW, next);
    let last = rig.shard.socket_opened(NOW, None);
    connect(&mut rig, last, &client);
    rig.publish(11);
    assert!(connect(&mut rig, last, &client).contains(r#""data":11"#));
}

#[test]
fn a_refresh_gives_the_terms_of_the_new_credentials_and_leaves_those_that_were_set() {
    let mut rig = rig();
    let (key, client) = rig.opened(r#"{"as":"patient"}"#);
    connect(&mut rig, key, &client);
    refresh(&mut rig, key, &client, "nothing");
    let terms_of = |rig: &Rig| {
        let key = rig.shard.machines.delivery.find(&Id::parse(&client).expect("an id")).expect("it lives");
        rig.shard.machines.delivery.terms_of(key)
    };
    assert_eq!((terms_of(&rig).timeout_ms, terms_of(&rig).max_interval_ms), (20_000, 10_000));
    let set_terms = SessionTerms { max_interval_ms: Some(30_000), ..SessionTerms::default() };
    set(&mut rig, &client, set_terms);
    refresh(&mut rig, key, &client, "patient");
    assert_eq!((terms_of(&rig).timeout_ms, terms_of(&rig).max_interval_ms), (50_000, 30_000));
}

#[test]
fn terms_survive_a_restart_and_their_memory_is_counted() {
    let mut rig = rig();
    let (key, client) = rig.opened(r#"{"as":"patient"}"#);
    connect(&mut rig, key, &client);
    let set_terms = SessionTerms { max_interval_ms: Some(30_000), ..SessionTerms::default() };
    let (before, _) = rig.shard.memory();
    set(&mut rig, &client, set_terms);
    let (counted, walked) = rig.shard.memory();
    assert_eq!((counted, counted), (walked, before), "its terms were counted since its handshake");
    let saved = rig.shard.save(NOW);
    assert_eq!(saved.sessions[0].terms, Some(set_terms));
    let mut next = Rig::new(1, Settings { drain_spread_ms: 0, ..Settings::default() }, Box::new(Landlord));
    next.shard.restore(NOW, &saved);
    let id = Id::parse(&client).expect("an id");
    let found = next.shard.machines.delivery.find(&id).expect("restored");
    let terms = next.shard.machines.delivery.terms_of(found);
    assert_eq!((terms.timeout_ms, terms.max_interval_ms), (50_000, 30_000));
    // 30 s of silence after its pause of 0.7 s.
    assert_eq!(ends_after_s(&mut next, &client), 31);
    let (counted, walked) = next.shard.memory();
    assert_eq!(counted, walked);
    assert_eq!(set(&mut next, &client, set_terms), Changed::SessionUnknown);
}
