//! Sessions of a node of a cluster: searches for those of other nodes, their coming and going, and reports of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::application::{Actions, Application, Caller, EndReason, NoApplication};
use crate::delivery::Received;
use crate::events::{
    Effect, ExchangeId, NOT_HERE, OTHER_NODES, Persisted, Request, Response, Searched, ShardMessage, SocketKey,
};
use crate::id::{Id, NodeTag, kernel_entropy};
use crate::node_messages::{ForNodes, FromNodes, Given, Release, Restored, Searcher};
use crate::now::Now;
use crate::opener::Opener;
use crate::saved::Saved;
use crate::settings::{ChannelRule, Settings};
use crate::shard::Shared;
use crate::shard::tests::{NOW, Rig, post};

pub(super) fn rig_with(settings: Settings, application: Box<dyn Application>) -> Rig {
    let mut shared = Shared::new(1, application);
    shared.node = Some(NodeTag::new(&mut kernel_entropy()));
    Rig::with(shared, settings)
}

pub(super) fn rig() -> Rig {
    rig_with(Settings::default(), Box::new(NoApplication))
}

/// A session with this `ext` on a WebSocket, connected and subscribed to `/a`.
pub(super) fn opened(rig: &mut Rig, ext: &str) -> (SocketKey, Id) {
    let (socket, client) = rig.opened(ext);
    let text = format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    rig.subscribe(socket, &client);
    rig.flushed(socket);
    (socket, Id::parse(&client).expect("an id"))
}

/// Messages of the shard for the cluster, later.
pub(super) fn reports_of(rig: &mut Rig, after_ms: u64) -> Vec<ForNodes> {
    rig.shard.advance(Now { ms: NOW.ms + after_ms, ..NOW });
    let reports_of = |effect| match effect {
        Effect::SendToShard(shard, ShardMessage::ForNodes(message)) if shard == usize::from(OTHER_NODES) => {
            Some(message)
        }
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(reports_of).collect()
}

pub(super) fn tell(rig: &mut Rig, message: FromNodes) {
    rig.shard.message(NOW, ShardMessage::FromNodes(message));
}

pub(super) fn release(rig: &mut Rig, id: Id, bytes_max: usize, is_urgent: bool) -> Given {
    tell(rig, FromNodes::Release(id, Release { number: 7, bytes_max, is_urgent, opener: Opener::Program }));
    let released = reports_of(rig, 0).into_iter().find_map(|message| match message {
        ForNodes::Released(7, given) => Some(given),
        _ => None,
    });
    released.expect("an answer")
}

pub(super) fn restore(rig: &mut Rig, id: Id, saved: Saved, is_whole: bool) {
    restore_since(rig, id, saved, is_whole, false);
}

pub(super) fn restore_since(rig: &mut Rig, id: Id, saved: Saved, is_whole: bool, has_mark: bool) {
    tell(rig, FromNodes::Restore(id, Box::new(Restored { saved, is_whole, has_mark, origins: [0, 5] })));
}

pub(super) fn given(given: Given) -> Saved {
    match given {
        Given::Session(saved) => *saved,
        other => panic!("no session: {other:?}"),
    }
}

/// The record of the only session that is reported.
pub(super) fn reported(rig: &mut Rig) -> Saved {
    let mut reported = reports_of(rig, 1_000).into_iter().filter_map(|message| match message {
        ForNodes::Changed { saved, .. } => Some(*saved),
        _ => None,
    });
    let saved = reported.next().expect("a record");
    assert!(reported.next().is_none());
    saved
}

pub(super) fn connect(rig: &mut Rig, client: &Id) -> SocketKey {
    let socket = rig.shard.socket_opened(NOW, None);
    let text = post_connect(client);
    assert_eq!(rig.shard.socket_text(NOW, socket, &text), Received::Here);
    socket
}

/// A connect with terms, which are in its record.
fn post_connect(client: &Id) -> String {
    format!(r#"{{"channel":"/meta/connect","clientId":"{client}","advice":{{"timeout":0}}}}"#)
}

fn request(rig: &mut Rig, exchange: ExchangeId, body: &str, searched: Searched) -> Vec<Effect> {
    rig.shard.request(NOW, Request { searched, ..post(exchange, body.to_owned()) });
    rig.shard.take_effects()
}

#[test]
fn a_request_for_a_session_of_another_node_waits_for_the_search_and_is_then_answered_here() {
    let mut rig = rig();
    let stranger = Id::of_node(0, NodeTag::new(&mut kernel_entropy()), &mut kernel_entropy());
    let connect = format!(r#"{{"channel":"/meta/connect","clientId":"{stranger}"}}"#);
    for (body, is_alone) in [(connect.clone(), true), (format!("[{connect},{connect}]"), false)] {
        let exchange = ExchangeId { shard: 0, number: 1 };
        let mut effects = request(&mut rig, exchange, &body, Searched::Nobody);
        let [Effect::SendToShard(_, ShardMessage::ForNodes(ForNodes::Search { session, waiting, .. }))] =
            &mut effects[..]
        else {
            panic!("{effects:?}")
        };
        let Searcher::Request { request: asked, is_connect } = waiting else { panic!("a request") };
        assert_eq!((*session, *is_connect), (stranger, is_alone));
        let searched = Request::clone(asked).searched();
        rig.shard.message(NOW, ShardMessage::Request(Box::new(searched)));
        assert!(rig.response(exchange).expect("a response").contains("402::session_unknown"));
        assert_eq!(rig.shard.machines.requests.pending().forwarded, 0);
    }
}

#[test]
fn the_response_of_another_node_reaches_the_request_and_an_abandoned_one_is_abandoned_there() {
    let mut rig = rig();
    let stranger = Id::of_node(0, NodeTag::new(&mut kernel_entropy()), &mut kernel_entropy());
    let body = format!(r#"{{"channel":"/meta/connect","clientId":"{stranger}"}}"#);
    let exchange = ExchangeId { shard: 0, number: 1 };
    request(&mut rig, exchange, &body, Searched::Nobody);
    rig.shard.abandoned(NOW, exchange);
    let abandoned = rig.shard.take_effects();
    let home = usize::from(OTHER_NODES);
    assert!(
        matches!(abandoned[..], [Effect::SendToShard(to, ShardMessage::Abandoned(of))] if (to, of) == (home, exchange))
    );
    // One that another shard has read goes back to it.
    let exchange = ExchangeId { shard: 3, number: 2 };
    request(&mut rig, exchange, &body, Searched::Nobody);
    rig.shard.message(NOW, ShardMessage::Response(exchange, Response::with_status(200)));
    let effects = rig.shard.take_effects();
    assert!(matches!(effects[..], [Effect::SendToShard(3, ShardMessage::Response(of, _))] if of == exchange));
}

#[test]
fn another_node_learns_that_a_session_is_not_here_and_is_served_if_it_is() {
    let mut rig = rig();
    let (_, id) = opened(&mut rig, "{}");
    let exchange = ExchangeId { shard: OTHER_NODES, number: 1 };
    let status = |effects: Vec<Effect>| match &effects[..] {
        [Effect::SendToShard(_, ShardMessage::Response(of, response))] if *of == exchange => response.status,
        other => panic!("{other:?}"),
    };
    rig.shard.take_effects();
    let stranger = Id::new(0, &mut kernel_entropy());
    for (session, expected) in [(stranger, NOT_HERE), (id, 200)] {
        let body = format!(r#"{{"channel":"/b","clientId":"{session}","data":1}}"#);
        let effects = request(&mut rig, exchange, &body, Searched::ByNode);
        let of_request = |effect: &Effect| !matches!(effect, Effect::SendToNodes(_));
        assert_eq!(status(effects.into_iter().filter(of_request).collect()), expected);
    }
}

#[test]
fn a_websocket_is_not_read_until_its_session_was_searched_for() {
    let mut rig = rig();
    let stranger = Id::new(0, &mut kernel_entropy());
    let socket = rig.shard.socket_opened(NOW, None);
    let text = format!(r#"{{"channel":"/meta/connect","clientId":"{stranger}"}}"#);
    assert_eq!(rig.shard.socket_text(NOW, socket, &text), Received::Searches);
    assert!(
        matches!(&reports_of(&mut rig, 0)[..], [ForNodes::Search { waiting: Searcher::Socket(of, _), .. }] if *of == socket)
    );
    tell(&mut rig, FromNodes::Searched(socket));
    assert!(matches!(rig.shard.take_effects()[..], [Effect::Continue(of)] if of == socket));
    assert_eq!(rig.shard.socket_text(NOW, socket, &text), Received::Here);
    assert!(rig.flushed(socket).contains("402::session_unknown"));
    // Each session is searched for.
    assert_eq!(rig.shard.socket_text(NOW, socket, &text), Received::Searches);
    tell(&mut rig, FromNodes::Unsearched(socket));
    assert!(rig.flushed(socket).contains("its node cannot be asked"));
}

#[test]
fn sessions_are_reported_when_they_have_connected_and_when_something_of_them_has_changed() {
    let mut rig = rig();
    let (socket, client) = rig.opened("{}");
    assert!(reports_of(&mut rig, 1_000).is_empty(), "it has not connected");
    rig.connect(&client);
    let saved = reported(&mut rig);
    assert!(saved.messages.is_empty() && saved.sessions[0].subscriptions.is_empty());
    assert_eq!(saved.sessions[0].id.node(), rig.shard.machines.env.shared.node.expect("a node"));
    assert!(reports_of(&mut rig, 2_000).is_empty());
    rig.subscribe(socket, &client);
    rig.publish(1);
    rig.shard.advance(Now { ms: NOW.ms + 3_000, ..NOW });
    let saved = reports_of(&mut rig, 3_000);
    let [ForNodes::Changed { saved, .. }] = &saved[..] else { panic!("{saved:?}") };
    assert_eq!((saved.messages.len(), &*saved.sessions[0].subscriptions), (0, &["/a".into()][..]));
    rig.shard.socket_text(NOW, socket, &format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#));
    assert!(
        matches!(&reports_of(&mut rig, 4_000)[..], [ForNodes::Ended { session, binds: true, .. }] if session.is(&client))
    );
}

#[test]
fn a_copy_that_ends_reports_subscriptions_that_no_record_may_have() {
    let mut rig = rig();
    let (socket, id) = opened(&mut rig, "{}");
    let subscribed = |reports: Vec<ForNodes>| match &reports[..] {
        [] => None,
        [ForNodes::Changed { session, has_subscribed, .. }] if *session == id => Some(*has_subscribed),
        other => panic!("{other:?}"),
    };
    assert_eq!(subscribed(reports_of(&mut rig, 1_000)), Some(true));
    rig.shard.socket_text(NOW, socket, &post_connect(&id));
    assert_eq!(subscribed(reports_of(&mut rig, 2_000)), Some(false));
    let text = format!(r#"{{"channel":"/meta/unsubscribe","clientId":"{id}","subscription":"/a"}}"#);
    rig.shard.socket_text(NOW, socket, &text);
    rig.flushed(socket);
    tell(&mut rig, FromNodes::Leave(id));
    let mut reports = reports_of(&mut rig, 2_000);
    reports.retain(|report| matches!(report, ForNodes::Changed { .. }));
    assert_eq!((subscribed(reports), rig.shard.sessions()), (Some(true), 0));
}

#[derive(Default)]
struct CountsEnds(Arc<AtomicUsize>);

impl Application for CountsEnds {
    fn ended(&self, _: &Caller<'_>, _: EndReason, _: &mut Actions) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_session_moves_with_all_that_waits_and_the_application_hears_of_no_end() {
    let ends = Arc::default();
    let mut rig = rig_with(Settings::default(), Box::new(CountsEnds(Arc::clone(&ends))));
    let (socket, id) = opened(&mut rig, "{}");
    rig.shard.socket_closed(NOW, socket);
    (1..=3).for_each(|number| rig.publish(number));
    let saved = given(release(&mut rig, id, 1 << 20, false));
    assert_eq!((saved.messages.len(), rig.shard.sessions(), ends.load(Ordering::Relaxed)), (3, 0, 0));
    assert!(reports_of(&mut rig, 1_000).is_empty(), "it has not ended");
    let mut other = self::rig();
    restore(&mut other, id, saved, true);
    assert_eq!(other.shard.metrics().taken_from_nodes.get(), 1);
    other.publish(4);
    let socket = connect(&mut other, &id);
    let text = other.flushed(socket);
    let offsets: Vec<_> = (1..=4).map(|number| text.find(&format!("\"data\":{number}"))).collect();
    assert!(offsets.iter().all(Option::is_some) && offsets.is_sorted(), "{text}");
}

#[test]
fn a_session_that_was_promised_each_message_stays() {
    let mut rig = rig();
    let (_, id) = opened(&mut rig, r#"{"ack":true}"#);
    assert_eq!(release(&mut rig, id, 1 << 20, true), Given::Stays);
    assert_eq!(rig.shard.sessions(), 1);
    let (_, client) = rig.opened(r#"{"ack":true}"#);
    given(release(&mut rig, Id::parse(&client).expect("an id"), 1 << 20, false));
}

#[test]
fn a_session_on_a_websocket_leaves_it() {
    let mut rig = rig();
    let (socket, id) = opened(&mut rig, "{}");
    given(release(&mut rig, id, 1 << 20, false));
    assert!(rig.flushed(socket).contains("session moved"));
    let (socket, id) = opened(&mut rig, "{}");
    rig.publish(1);
    tell(&mut rig, FromNodes::Leave(id));
    let text = rig.flushed(socket);
    assert!(text.contains("session moved") && rig.shard.sessions() == 0, "{text}");
    assert_eq!((rig.shard.metrics().left_to_nodes.get(), rig.shard.metrics().given_to_nodes.get()), (1, 1));
    assert!(matches!(release(&mut rig, id, 1 << 20, false), Given::Unknown));
}

#[test]
fn a_session_with_a_response_on_its_way_stays_unless_it_is_urgent_and_a_large_one_stays() {
    let mut rig = rig();
    let (socket, id) = opened(&mut rig, "{}");
    rig.shard.socket_closed(NOW, socket);
    rig.publish(1);
    let exchange = rig.connect(id.as_str());
    assert!(rig.response(exchange).expect("a response").contains("\"data\":1"));
    rig.publish(2);
    assert_eq!(release(&mut rig, id, 1 << 20, false), Given::Busy);
    assert_eq!(release(&mut rig, id, 10, true), Given::TooLarge);
    let saved = given(release(&mut rig, id, 1 << 20, true));
    assert_eq!(saved.messages.len(), 1, "the first one counts as delivered: {:?}", saved.messages);
}

#[test]
fn a_record_gives_no_session_that_was_promised_the_messages_which_are_lost() {
    for (ext, subscribes, is_taken) in
        [("{}", true, true), (r#"{"ack":true}"#, false, true), (r#"{"ack":true}"#, true, false)]
    {
        let mut rig = rig();
        let (socket, client) = rig.opened(ext);
        rig.connect(&client);
        if subscribes {
            rig.subscribe(socket, &client);
        }
        let saved = reported(&mut rig);
        let id = saved.sessions[0].id;
        let mut other = self::rig();
        restore(&mut other, id, saved, false);
        assert_eq!(other.shard.sessions(), usize::from(is_taken), "{ext} {subscribes}");
        let ended = reports_of(&mut other, 0)
            .iter()
            .any(|message| matches!(message, ForNodes::Ended { session, reply: None, .. } if *session == id));
        assert_eq!(ended, !is_taken);
        if is_taken {
            let socket = connect(&mut other, &id);
            let text = other.flushed(socket);
            assert!(text.contains("\"successful\":true"), "{text}");
            // Above all numbers that its client may have seen.
            assert_eq!(text.contains("\"ack\":42949672"), ext.contains("ack"), "{text}");
        }
    }
}

#[test]
fn a_session_comes_within_sessions_max_and_with_its_policy_only() {
    let mut rig = rig();
    opened(&mut rig, "{}");
    let saved = reported(&mut rig);
    let id = saved.sessions[0].id;
    let mut full = rig_with(Settings { sessions_max: 1, ..Settings::default() }, Box::new(NoApplication));
    opened(&mut full, "{}");
    restore(&mut full, id, saved.clone(), false);
    assert_eq!(full.shard.sessions(), 1);
    let other_policy = Saved { policy: crate::Policy::default().authenticated_by("tokens"), ..saved.clone() };
    let mut other = self::rig();
    restore(&mut other, id, other_policy, false);
    assert_eq!((other.shard.sessions(), other.shard.metrics().unrestored.get()), (0, 1));
    restore(&mut other, id, saved.clone(), false);
    restore(&mut other, id, saved, false);
    assert_eq!(other.shard.sessions(), 1, "once");
}

#[test]
fn without_a_cluster_nothing_is_searched_for_and_nothing_reported() {
    let mut rig = crate::shard::tests::rig();
    let (_, id) = opened(&mut rig, "{}");
    assert!(reports_of(&mut rig, 1_000).is_empty());
    let stranger = Id::new(0, &mut kernel_entropy());
    let body = format!(r#"{{"channel":"/meta/connect","clientId":"{stranger}"}}"#);
    let effects = request(&mut rig, ExchangeId { shard: 0, number: 9 }, &body, Searched::Nobody);
    assert!(matches!(effects[..], [Effect::Respond(..)]) && id != stranger);
}

#[test]
fn a_session_of_a_browser_does_not_leave_for_another_one() {
    let mut rig = rig();
    let browser = Id::new(0, &mut kernel_entropy());
    let socket = rig.shard.socket_opened(NOW, Some(browser));
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
    let id = Id::parse(&crate::shard::tests::member_of(&rig.flushed(socket), "clientId")).expect("an id");
    let stranger = Id::new(0, &mut kernel_entropy());
    for (opener, is_given) in
        [(Opener::Page, false), (Opener::Browser(stranger), false), (Opener::Browser(browser), true)]
    {
        tell(&mut rig, FromNodes::Release(id, Release { number: 7, bytes_max: 1 << 20, is_urgent: false, opener }));
        let is_refused =
            reports_of(&mut rig, 0).iter().any(|message| matches!(message, ForNodes::Released(7, Given::Refused)));
        assert_eq!((is_refused, rig.shard.sessions() == 0), (!is_given, is_given), "{opener:?}");
    }
}

#[test]
fn the_reply_to_a_disconnect_waits_until_no_node_goes_on_with_the_session() {
    for is_http in [false, true] {
        let mut rig = rig();
        let (socket, client) = rig.opened("{}");
        rig.connect(&client);
        rig.flushed(socket);
        let text = format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#);
        let exchange = if is_http {
            rig.request(text)
        } else {
            rig.shard.socket_text(NOW, socket, &text);
            ExchangeId { shard: 0, number: 0 }
        };
        let effects = rig.shard.take_effects();
        let number = effects.iter().find_map(|effect| match effect {
            Effect::SendToShard(_, ShardMessage::ForNodes(ForNodes::Ended { reply, .. })) => *reply,
            _ => None,
        });
        let is_answered = |effect: &Effect| matches!(effect, Effect::Respond(of, _) if *of == exchange);
        assert!(!effects.iter().any(is_answered) && rig.flushed(socket).is_empty() && rig.shard.sessions() == 0);
        rig.shard.message(NOW, ShardMessage::InterestKnown(vec![number.expect("a token")]));
        let reply = if is_http { rig.response(exchange).expect("a response") } else { rig.flushed(socket) };
        assert!(reply.contains("/meta/disconnect") && reply.contains("\"successful\":true"), "{reply}");
    }
}

#[test]
fn a_session_of_another_node_goes_on_when_publications_for_it_arrive() {
    let mut rig = rig();
    opened(&mut rig, "{}");
    let saved = reported(&mut rig);
    let id = saved.sessions[0].id;
    let mut other = self::rig();
    restore(&mut other, id, saved, false);
    let effects = other.shard.take_effects();
    let awaited = effects.iter().find_map(|effect| match effect {
        Effect::AwaitInterest(names, token) => Some((names.clone(), token.number)),
        _ => None,
    });
    let (names, number) = awaited.expect("a wait");
    let is_restored = |effect: &Effect| matches!(effect, Effect::SendToShard(_, ShardMessage::ForNodes(ForNodes::Restored(of))) if *of == id);
    assert!(names == ["/a".into()] && !effects.iter().any(is_restored));
    other.shard.message(NOW, ShardMessage::InterestKnown(vec![number]));
    assert!(other.shard.take_effects().iter().any(is_restored));
}

#[test]
fn publications_on_a_channel_with_a_history_go_to_the_cluster_and_their_replies_wait_for_it() {
    let rule = ChannelRule { pattern: "/a".into(), history_messages: 10, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], ..Settings::default() };
    let mut rig = rig_with(settings, Box::new(NoApplication));
    let (socket, client) = opened(&mut rig, "{}");
    let mut publish = |id: u64, is_persisted| {
        let text = format!(r#"{{"channel":"/a","clientId":"{client}","data":1,"id":"{id}"}}"#);
        rig.shard.socket_text(NOW, socket, &text);
        let recorded = |effect| match effect {
            Effect::SendToShard(shard, ShardMessage::Record(publications)) if shard == usize::from(OTHER_NODES) => {
                publications.token
            }
            Effect::SendToNodes(_) => panic!("the cluster delivers it"),
            _ => None,
        };
        let token = rig.shard.take_effects().into_iter().find_map(recorded).expect("a token");
        assert_eq!(rig.flushed(socket), "", "neither delivered nor answered");
        let persisted = Persisted { number: token.number, is_persisted };
        rig.shard.message(NOW, ShardMessage::Persisted(vec![persisted]));
        rig.flushed(socket)
    };
    let (stored, refused) = (publish(1, true), publish(2, false));
    assert!(stored.contains(r#""id":"1""#) && stored.contains(r#""successful":true"#), "{stored}");
    assert!(refused.contains(r#""id":"2""#) && refused.contains("503:/a:history_not_replicated"), "{refused}");
}

#[test]
fn the_channels_of_reported_sessions_count_and_the_rest_is_reported_later_in_turn() {
    const SESSIONS: usize = 6;
    const CHANNELS: usize = 4_000;
    let settings = Settings { subscriptions_max: 2 * CHANNELS, ..Settings::default() };
    let mut rig = rig_with(settings, Box::new(NoApplication));
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let (socket, id) = opened(&mut rig, "{}");
        for number in 1..CHANNELS {
            let text = format!(
                r#"{{"channel":"/meta/subscribe","clientId":"{}","subscription":"/many/{number}"}}"#,
                id.as_str()
            );
            rig.shard.socket_text(NOW, socket, &text);
        }
        rig.flushed(socket);
        sessions.push((socket, id));
    }
    let mut reported = Vec::new();
    for round in 1..=2 {
        // Those that change each time take no other's turn.
        for (socket, id) in &sessions[..SESSIONS - 1] {
            let text = format!(
                r#"{{"channel":"/meta/subscribe","clientId":"{}","subscription":"/again/{round}"}}"#,
                id.as_str()
            );
            rig.shard.socket_text(NOW, *socket, &text);
        }
        let before = rig.shard.steps();
        let ids = reports_of(&mut rig, round * 1_000).into_iter().filter_map(|message| match message {
            ForNodes::Changed { session, .. } => Some(session),
            _ => None,
        });
        let ids: Vec<Id> = ids.collect();
        let (steps, names) = (rig.shard.steps() - before, ids.len() * CHANNELS);
        assert!(steps as usize >= names && names < 6 * CHANNELS, "{steps} steps for {names} channels");
        reported.extend(ids);
    }
    assert!(sessions.iter().all(|(_, id)| reported.contains(id)), "{} of {SESSIONS}", reported.len());
}
