//! Sessions that move to another node: the limits and rights that go with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::application::{Answer, Application, Caller, Decision, Handshake, Refusal, Subscribing};
use crate::events::{PublishToken, ShardMessage, SocketKey};
use crate::id::Id;
use crate::identity::Identity;
use crate::settings::Settings;
use crate::shard::tests::nodes::{connect, given, opened, release, reported, restore, rig_with};
use crate::shard::tests::{NOW, Rig};

/// Everybody is ann.
struct OneUser;

impl Application for OneUser {
    fn handshake(&self, _: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(Some(Identity::of_user("ann"))))
    }

    fn refresh(&self, _: &Caller<'_>, _: &str) -> Answer<Result<Identity, Refusal>> {
        Answer::Now(Ok(Identity::of_user("ann")))
    }
}

fn nodes(settings: &Settings) -> [Rig; 2] {
    [0; 2].map(|_| rig_with(settings.clone(), Box::new(OneUser)))
}

/// Moves a session to another node, where its client connects. It comes there like one from a record, which may move again at once.
fn moved(from: &mut Rig, to: &mut Rig, id: &Id) -> SocketKey {
    let saved = given(release(from, *id, 1 << 20, true));
    restore(to, *id, saved, false);
    let socket = connect(to, id);
    to.flushed(socket);
    socket
}

/// The messages that succeed out of ten.
fn accepted(rig: &mut Rig, socket: SocketKey, id: &Id, fields: &str) -> usize {
    let text = format!(r#"{{{fields},"clientId":"{id}"}}"#);
    let mut succeeds = || {
        rig.shard.socket_text(NOW, socket, &text);
        rig.flushed(socket).contains(r#""successful":true"#)
    };
    (0..10).filter(|_| succeeds()).count()
}

#[test]
fn a_session_takes_what_it_has_used_of_its_rates_along_to_another_node() {
    let a_refresh = r#""channel":"/service/auth/refresh","data":{}"#;
    for (settings, fields, most) in [
        // The first one is its subscribe.
        (Settings { session_messages_per_s_max: 5, ..Settings::default() }, r#""channel":"/b","data":1"#, 4),
        (Settings { session_bytes_per_s_max: 1_000, ..Settings::default() }, r#""channel":"/b","data":1"#, 13),
        (Settings { session_refreshes_per_s_max: 2, ..Settings::default() }, a_refresh, 2),
    ] {
        let mut nodes = nodes(&settings);
        let (mut socket, id) = opened(&mut nodes[0], "{}");
        let mut sum = 0;
        for _ in 0..5 {
            let [here, there] = &mut nodes;
            sum += accepted(here, socket, &id, fields);
            socket = moved(here, there, &id);
            nodes.swap(0, 1);
        }
        assert!(sum > 0 && sum <= most, "{fields}: {sum} instead of {most}");
    }
}

#[test]
fn sessions_that_have_not_connected_are_limited_for_each_address_when_they_come_from_another_node() {
    let settings = Settings { unconnected_per_address_max: 3, ..Settings::default() };
    let [mut here, mut there] = nodes(&settings);
    for number in 1..=5 {
        let (_, client) = here.opened("{}");
        let id = Id::parse(&client).expect("an id");
        let saved = given(release(&mut here, id, 1 << 20, true));
        // All of them from one address.
        restore(&mut there, id, saved, true);
        assert_eq!(there.shard.sessions(), number.min(3));
    }
    assert_eq!(there.shard.metrics().unused_ended.get(), 2);
}

#[test]
fn the_limits_of_a_user_refuse_no_session_that_comes_from_another_node_and_count_it() {
    for is_whole in [true, false] {
        let settings = Settings { user_sessions_max: 1, user_subscriptions_max: 1, ..Settings::default() };
        let [mut here, mut there] = nodes(&settings);
        let ((_, id), (_, own)) = (opened(&mut here, "{}"), opened(&mut there, "{}"));
        let saved = given(release(&mut here, id, 1 << 20, true));
        restore(&mut there, id, saved, is_whole);
        let (socket, next) = (connect(&mut there, &id), there.shard.socket_opened(NOW, None));
        there.flushed(socket);
        assert_eq!(there.shard.sessions(), 2, "its client was admitted");
        let mut says = |socket, text: &str| {
            there.shard.socket_text(NOW, socket, text);
            there.flushed(socket)
        };
        let refused = says(next, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
        assert!(refused.contains("user_sessions_max"), "{refused}");
        let refused =
            says(socket, &format!(r#"{{"channel":"/meta/subscribe","clientId":"{id}","subscription":"/b"}}"#));
        assert!(refused.contains("user_subscriptions_max"), "{refused}");
        let shared = there.shard.machines.env.shared.clone();
        let counts = || {
            let mut counts = Vec::new();
            shared.limits.users_of_nodes.take(|_, has, _| counts.push((has.sessions, has.subscriptions)));
            counts
        };
        assert_eq!(counts(), [(2, 2)], "the other nodes learn of it");
        for id in [id, own] {
            there.request(format!(r#"{{"channel":"/meta/disconnect","clientId":"{id}"}}"#));
        }
        assert_eq!(counts(), [(0, 0)]);
    }
}

/// Refuses subscriptions to `/secret`, unless it is open.
#[derive(Clone, Default)]
struct Guard(Arc<AtomicBool>);

impl Application for Guard {
    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        let is_open = self.0.load(Ordering::Relaxed) || subscribing.channel != "/secret";
        Answer::Now(if is_open { Decision::Allow } else { Decision::deny("guard") })
    }
}

fn subscribe_by_server(rig: &mut Rig, id: &Id) {
    let token = PublishToken { shard: PublishToken::HANDLES, number: 1 };
    rig.shard.message(NOW, ShardMessage::Subscribe(*id, "/secret".into(), token));
}

/// The reply to a subscribe or unsubscribe of the client.
fn client_says(rig: &mut Rig, socket: SocketKey, id: &Id, what: &str) -> String {
    let text = format!(r#"{{"channel":"/meta/{what}","clientId":"{id}","subscription":"/secret"}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    rig.flushed(socket)
}

#[test]
fn a_subscription_by_the_server_asks_for_no_right_of_the_client_when_its_session_goes_on_elsewhere() {
    let guard = || rig_with(Settings::default(), Box::new(Guard::default()));
    let (mut here, mut there) = (guard(), guard());
    let (socket, id) = opened(&mut here, "{}");
    assert!(client_says(&mut here, socket, &id, "subscribe").contains("403:guard:subscribe_denied"));
    subscribe_by_server(&mut here, &id);
    let record = reported(&mut here);
    // Twice, so that the mark goes along.
    moved(&mut here, &mut there, &id);
    let socket = moved(&mut there, &mut here, &id);
    here.shard.publish_now("/secret", "7");
    assert!(here.flushed(socket).contains(r#"{"channel":"/secret","data":7}"#));
    // A restart, and a record of a node that is gone.
    let saved = here.shard.save(NOW);
    for (mut saved, is_taken) in [(saved.clone(), true), (record, true), (saved, false)] {
        assert_eq!(&*saved.sessions[0].subscriptions, ["/a".into(), "/secret".into()]);
        if !is_taken {
            // The saved form of an older version.
            saved.sessions[0].by_server.clear();
        }
        let mut next = guard();
        restore(&mut next, id, saved, true);
        assert_eq!(next.shard.sessions(), usize::from(is_taken));
    }
}

#[test]
fn a_subscription_that_ends_and_is_made_again_by_the_client_needs_its_right() {
    let (open, mut there) = (Guard::default(), rig_with(Settings::default(), Box::new(Guard::default())));
    open.0.store(true, Ordering::Relaxed);
    for (is_ended, taken) in [(false, 1), (true, 1)] {
        let mut here = rig_with(Settings::default(), Box::new(open.clone()));
        let (socket, id) = opened(&mut here, "{}");
        subscribe_by_server(&mut here, &id);
        // With an interval it is in another list.
        let text = format!(
            r#"{{"channel":"/meta/subscribe","clientId":"{id}","subscription":"/secret","ext":{{"min_interval_ms":500}}}}"#
        );
        here.shard.socket_text(NOW, socket, &text);
        if is_ended {
            client_says(&mut here, socket, &id, "unsubscribe");
            client_says(&mut here, socket, &id, "subscribe");
        }
        let saved = given(release(&mut here, id, 1 << 20, true));
        assert_eq!(saved.sessions[0].intervals.is_empty(), is_ended);
        restore(&mut there, id, saved, true);
        assert_eq!(there.shard.sessions(), taken, "{is_ended}");
    }
}
