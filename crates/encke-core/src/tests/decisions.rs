//! Tests of decisions and answers that come later.

use std::future::pending;

use super::{NOW, Rig};
use crate::application::{
    Actions, Answer, Application, Decision, Handshake, Pending, Publishing, Refusal, Service, Subscribing, Verdict,
};
use crate::decision::{Resolved, WaitKey};
use crate::delivery::Received;
use crate::events::{Effect, ExchangeId, ShardMessage, SocketKey};
use crate::id::Id;
use crate::identity::Identity;
use crate::now::Now;
use crate::settings::{ChannelRule, Settings};

/// Decides everything later that has `slow` in its name.
struct Slow;

fn is_slow(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.contains("slow"))
}

impl Application for Slow {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        if is_slow(handshake.ext) { Answer::Later(Box::pin(pending())) } else { Answer::Now(Ok(None)) }
    }

    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        if is_slow(Some(subscribing.channel)) {
            Answer::Later(Box::pin(pending()))
        } else {
            Answer::Now(Decision::Allow)
        }
    }

    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        if is_slow(publishing.data) { Answer::Later(Box::pin(pending())) } else { Answer::Now(Verdict::Forward) }
    }

    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        actions.publish("/a", "\"called\"");
        is_slow(message.data).then(|| Box::pin(pending()) as Pending<Actions>)
    }
}

fn rig(settings: Settings) -> Rig {
    Rig::new(1, settings, Box::new(Slow))
}

fn later(ms: u64) -> Now {
    Now { ms: NOW.ms + ms, wall_ms: NOW.wall_ms + ms }
}

impl Rig {
    fn send(&mut self, socket: SocketKey, client: &str, messages: &[&str]) -> Received {
        let messages = messages.iter().map(|fields| format!(r#"{{"clientId":"{client}",{fields}}}"#));
        self.shard.socket_text(NOW, socket, &format!("[{}]", messages.collect::<Vec<_>>().join(",")))
    }

    /// The effects that concern waits since the last call.
    fn waits(&mut self) -> (Vec<WaitKey>, Vec<WaitKey>, Vec<SocketKey>) {
        let (mut awaited, mut cancelled, mut continued) = (Vec::new(), Vec::new(), Vec::new());
        for effect in self.shard.take_effects() {
            match effect {
                Effect::Await(key, _) => awaited.push(key),
                Effect::Cancel(key) => cancelled.push(key),
                Effect::Continue(socket) => continued.push(socket),
                _ => {}
            }
        }
        (awaited, cancelled, continued)
    }

    fn resolve(&mut self, key: WaitKey, resolved: Resolved) {
        self.shard.message(NOW, ShardMessage::Resolved(key, resolved));
    }

    fn waiting(&self) -> usize {
        self.shard.holdings().iter().find(|(name, _)| name.contains("waits")).map_or(0, |(_, waits)| *waits)
    }
}

const PUBLISH: &str = r#""channel":"/a","data":"first","id":"1""#;
const SLOW: &str = r#""channel":"/a","data":"slow","id":"2""#;
const LAST: &str = r#""channel":"/a","data":"last","id":"3""#;

/// The positions of texts in another, in this order.
fn order(text: &str, parts: &[&str]) -> Vec<usize> {
    let mut at = 0;
    let find = |part: &&str| {
        at += text[at..].find(part).unwrap_or_else(|| panic!("{part} is not in the rest of {text}"));
        at
    };
    parts.iter().map(find).collect()
}

#[test]
fn a_batch_waits_for_a_decision_and_continues_in_order() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    assert_eq!(rig.send(socket, &client, &[PUBLISH, SLOW, LAST]), Received::Waits);
    let text = rig.flushed(socket);
    order(&text, &[r#""data":"first""#, r#""id":"1""#]);
    assert!(!text.contains(r#""id":"2""#) && !text.contains("last"), "{text}");
    let (awaited, ..) = rig.waits();
    rig.resolve(awaited[0], Resolved::Publish(Verdict::Replace("\"changed\"".into())));
    let text = rig.flushed(socket);
    order(&text, &[r#""data":"changed""#, r#""data":"last""#, r#""id":"2""#, r#""id":"3""#]);
    assert_eq!((rig.waits().2, rig.waiting()), (vec![socket], 0));
}

#[test]
fn every_kind_of_refusal_reaches_the_client() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    for (resolved, error) in [
        (Resolved::Publish(Verdict::deny("no")), "403:no:publish_denied"),
        (Resolved::Publish(Verdict::Delete), "404::message_deleted"),
        (Resolved::Failed, "503::decision_failed"),
        (Resolved::Subscribe(Decision::Allow), "503::decision_failed"),
    ] {
        rig.send(socket, &client, &[SLOW, LAST]);
        let (awaited, ..) = rig.waits();
        rig.resolve(awaited[0], resolved);
        let text = rig.flushed(socket);
        assert!(text.contains(error) && text.contains(r#""data":"last""#) && !text.contains("slow"), "{text}");
    }
}

#[test]
fn a_decision_that_does_not_come_refuses_its_message_only() {
    let mut rig = rig(Settings { decision_timeout_ms: 1_000, ..Settings::default() });
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[SLOW, LAST]);
    let (awaited, ..) = rig.waits();
    rig.shard.advance(later(900));
    assert_eq!(rig.waiting(), 1);
    rig.shard.advance(later(1_100));
    let (_, cancelled, continued) = rig.waits();
    assert_eq!((cancelled, continued), (awaited.clone(), vec![socket]));
    let text = rig.flushed(socket);
    order(
        &text,
        &[r#""data":"last""#, r#""id":"2","successful":false,"error":"503::decision_timeout""#, r#""id":"3""#],
    );
    // The late result changes nothing, even if another wait has the same index.
    rig.send(socket, &client, &[SLOW]);
    rig.resolve(awaited[0], Resolved::Publish(Verdict::Forward));
    assert_eq!(rig.waiting(), 1);
    assert!(!rig.flushed(socket).contains("slow"));
}

#[test]
fn a_handshake_that_waits_opens_its_session_when_it_is_decided() {
    let mut rig = rig(Settings::default());
    let socket = rig.shard.socket_opened(NOW, None);
    let text = r#"{"channel":"/meta/handshake","ext":{"k":"slow"},"id":"1"}"#;
    assert_eq!(rig.shard.socket_text(NOW, socket, text), Received::Waits);
    assert_eq!((rig.shard.sessions(), rig.flushed(socket)), (0, String::new()));
    let (awaited, ..) = rig.waits();
    rig.resolve(awaited[0], Resolved::Handshake(Ok(Some(Identity::of_user("ann")))));
    assert!(rig.flushed(socket).contains(r#""successful":true"#));
    let owners =
        rig.shard.machines.delivery.keys().into_iter().filter_map(|key| rig.shard.machines.clients.identity(key));
    assert_eq!(owners.map(|identity| &*identity.user).collect::<Vec<_>>(), ["ann"]);
    // A refusal, and a decision that fails.
    for (resolved, error, advice) in [
        (Resolved::Handshake(Err(Refusal::new(401, "expired"))), "401:expired:handshake_denied", "none"),
        (Resolved::Failed, "503::decision_failed", "handshake"),
    ] {
        let socket = rig.shard.socket_opened(NOW, None);
        rig.shard.socket_text(NOW, socket, text);
        let (awaited, ..) = rig.waits();
        rig.resolve(awaited[0], resolved);
        let text = rig.flushed(socket);
        assert!(text.contains(error) && text.contains(&format!(r#""reconnect":"{advice}""#)), "{text}");
    }
    assert_eq!(rig.shard.sessions(), 1);
}

#[test]
fn a_subscribe_of_several_names_does_nothing_before_all_are_decided() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    let names = r#""channel":"/meta/subscribe","subscription":["/b","/slow/1","/a","/slow/2","/c"],"id":"1""#;
    assert_eq!(rig.send(socket, &client, &[names, LAST]), Received::Waits);
    let subscriptions = |rig: &Rig| rig.shard.holdings()[3].1;
    for _ in 0..2 {
        assert_eq!(subscriptions(&rig), 1);
        let (awaited, ..) = rig.waits();
        rig.resolve(awaited[0], Resolved::Subscribe(Decision::Allow));
    }
    assert_eq!(subscriptions(&rig), 5);
    let text = rig.flushed(socket);
    order(&text, &[r#""channel":"/meta/subscribe","id":"1","successful":true"#, r#""id":"3""#]);
    // A denied name ends the subscribe: nothing after it happens.
    let names = r#""channel":"/meta/subscribe","subscription":["/d","/slow/3","/e"],"id":"1""#;
    rig.send(socket, &client, &[names]);
    let (awaited, ..) = rig.waits();
    rig.resolve(awaited[0], Resolved::Subscribe(Decision::deny("no")));
    assert!(rig.flushed(socket).contains("403:no:subscribe_denied"));
    assert_eq!((subscriptions(&rig), rig.waits().0), (6, Vec::new()));
}

/// Each decision about one of its names reads the message again.
#[test]
fn a_large_subscribe_of_many_names_that_are_decided_later_is_refused() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    let names: Vec<String> = (0..500).map(|number| format!(r#""/slow/{number}""#)).collect();
    let mut rounds = |bytes: usize| {
        let (names, text) = (names.join(","), "x".repeat(bytes));
        let fields = format!(r#""channel":"/meta/subscribe","subscription":[{names}],"ext":{{"a":"{text}"}}"#);
        assert_eq!(rig.send(socket, &client, &[&fields]), Received::Waits);
        let rounds = (1..).take_while(|_| match rig.waits().0[..] {
            [key] => {
                rig.resolve(key, Resolved::Subscribe(Decision::Allow));
                true
            }
            _ => false,
        });
        (rounds.count(), rig.flushed(socket))
    };
    let (count, reply) = rounds(500_000);
    assert!(count < 150 && reply.contains("413::subscription_names_max"), "{count} {reply}");
    let (count, reply) = rounds(10);
    assert!(count == 500 && reply.contains(r#""successful":true"#), "{count}");
}

#[test]
fn messages_that_come_while_a_subscribe_with_positions_waits_come_once() {
    let rule = ChannelRule { pattern: "/slow/*".into(), history_messages: 10, ..ChannelRule::default() };
    let mut rig = rig(Settings { channels: vec![rule], ..Settings::default() });
    let (socket, client) = rig.opened(r#"{"replay":true}"#);
    let subscribe = |rig: &mut Rig| {
        let fields = r#""channel":"/meta/subscribe","subscription":"/slow/1","ext":{"replay":{"/slow/1":-2}}"#;
        assert_eq!(rig.send(socket, &client, &[fields]), Received::Waits);
        rig.waits().0[0]
    };
    let first = subscribe(&mut rig);
    rig.resolve(first, Resolved::Subscribe(Decision::Allow));
    rig.flushed(socket);
    let again = subscribe(&mut rig);
    rig.shard.publish_now("/slow/1", r#"{"n":7}"#);
    assert_eq!(rig.flushed(socket), "", "the decision may bring it again");
    rig.resolve(again, Resolved::Subscribe(Decision::Allow));
    rig.shard.publish_now("/slow/1", r#"{"n":8}"#);
    let text = rig.flushed(socket);
    assert_eq!((text.matches(r#""n":7"#).count(), text.matches(r#""n":8"#).count()), (1, 1), "{text}");
    // One that is refused, or gets no decision, ends the wait as well.
    let refused = subscribe(&mut rig);
    rig.shard.publish_now("/slow/1", r#"{"n":9}"#);
    rig.resolve(refused, Resolved::Failed);
    assert!(rig.flushed(socket).contains(r#""n":9"#));
}

#[test]
fn a_request_waits_with_its_whole_response() {
    let mut rig = rig(Settings { trust_client_session: true, ..Settings::default() });
    let (socket, client) = rig.socket();
    rig.shard.socket_closed(NOW, socket);
    rig.shard.take_effects();
    let exchange = rig.request(format!(r#"[{{"clientId":"{client}",{PUBLISH}}},{{"clientId":"{client}",{SLOW}}}]"#));
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    let effects = rig.shard.take_effects();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Respond(..))), "{effects:?}");
    let awaited = effects.iter().find_map(|effect| if let Effect::Await(key, _) = effect { Some(*key) } else { None });
    rig.resolve(awaited.expect("it waits"), Resolved::Publish(Verdict::Forward));
    let text = rig.response(exchange).expect("a response");
    order(&text, &[r#""id":"1","successful":true"#, r#""id":"2","successful":true"#]);
}

/// A client that has gone gets no session, and its held connect holds nothing; what it has published arrives.
#[test]
fn a_client_that_goes_while_its_batch_waits_has_published_and_not_connected() {
    for by_request in [false, true] {
        let mut rig = rig(Settings { trust_client_session: true, ..Settings::default() });
        let (reader, _) = rig.socket();
        let (socket, client) = rig.socket();
        let connect = r#""channel":"/meta/connect","id":"4""#;
        if by_request {
            rig.shard.socket_closed(NOW, socket);
            let messages = [SLOW, LAST, connect].map(|fields| format!(r#"{{"clientId":"{client}",{fields}}}"#));
            let exchange = rig.request(format!("[{}]", messages.join(",")));
            rig.shard.abandoned(NOW, exchange);
        } else {
            rig.send(socket, &client, &[SLOW, LAST, connect]);
            rig.shard.socket_closed(NOW, socket);
        }
        let (awaited, ..) = rig.waits();
        rig.flushed(reader);
        rig.resolve(awaited[0], Resolved::Publish(Verdict::Forward));
        order(&rig.flushed(reader), &[r#""data":"slow""#, r#""data":"last""#]);
        let key = rig.shard.machines.delivery.find(&Id::parse(&client).expect("an id")).expect("it lives");
        let session = rig.shard.machines.delivery.session(key).expect("it lives");
        assert!(session.is_away(), "held for a client that has gone");
        assert_eq!(rig.waiting(), 0);
    }
    let mut rig = rig(Settings::default());
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","ext":{"k":"slow"}}"#);
    rig.shard.socket_closed(NOW, socket);
    let (awaited, ..) = rig.waits();
    rig.resolve(awaited[0], Resolved::Handshake(Ok(None)));
    assert_eq!((rig.shard.sessions(), rig.waiting()), (0, 0));
}

#[test]
fn a_client_that_waits_for_the_application_does_not_expire() {
    let settings = Settings {
        decision_timeout_ms: 60_000,
        max_interval_ms: 2_000,
        handshake_timeout_ms: 1_000,
        websocket_idle_timeout_ms: 1_000,
        ..Settings::default()
    };
    let mut rig = rig(settings);
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[SLOW]);
    let stranger = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_text(NOW, stranger, r#"{"channel":"/meta/handshake","ext":{"k":"slow"}}"#);
    let mut effects = Vec::new();
    for seconds in 1..60 {
        rig.shard.advance(later(seconds * 1_000));
        effects.extend(rig.shard.take_effects());
    }
    assert_eq!(rig.shard.sessions(), 1);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Close(_) | Effect::Reset(_))), "{effects:?}");
    // After the time-out the usual limits apply.
    for seconds in 61..80 {
        rig.shard.advance(later(seconds * 1_000));
        rig.flushed(socket);
        rig.flushed(stranger);
        effects.extend(rig.shard.take_effects());
    }
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Close(_) | Effect::Reset(_))), "{effects:?}");
}

#[test]
fn too_many_waits_are_refused() {
    let mut settings = Settings { decisions_waiting_max: 2, ..Settings::default() };
    for bound in ["number", "bytes"] {
        let mut rig = rig(settings.clone());
        let sessions: Vec<_> = (0..3).map(|_| rig.socket()).collect();
        let data = format!(r#""channel":"/a","data":"slow{}","id":"2""#, "x".repeat(1_000));
        let received: Vec<_> = sessions.iter().map(|(socket, client)| rig.send(*socket, client, &[&data])).collect();
        assert_eq!(received, [Received::Waits, Received::Waits, Received::Here], "{bound}");
        let text = rig.flushed(sessions[2].0);
        assert!(text.contains("503::decisions_waiting_max"), "{text}");
        assert_eq!((rig.shard.metrics().decisions_refused.get(), rig.waiting()), (1, 2));
        settings = Settings { decisions_waiting_bytes_max: 3_200, ..Settings::default() };
    }
}

#[test]
fn a_call_is_accepted_at_once_and_answered_later() {
    let mut rig = rig(Settings {
        calls_waiting_per_session_max: 2,
        call_timeout_ms: 70_000,
        max_interval_ms: 100_000,
        ..Settings::default()
    });
    let (socket, client) = rig.socket();
    let call = |id: u32| format!(r#""channel":"/service/x","data":"slow","id":"{id}""#);
    for id in 1..=3 {
        assert_eq!(rig.send(socket, &client, &[&call(id)]), Received::Here);
    }
    let text = rig.flushed(socket);
    order(&text, &["called", r#""id":"1","successful":true"#, r#""id":"2","successful":true"#]);
    order(&text, &[r#""id":"3","successful":false,"error":"503::calls_waiting_max""#]);
    let (awaited, ..) = rig.waits();
    // The second answer comes first.
    let mut actions = Actions::default();
    actions.reply("42");
    rig.resolve(awaited[1], Resolved::Service(actions));
    let text = rig.flushed(socket);
    assert!(text.contains(r#""data":42"#) && text.contains(r#""id":"2""#), "{text}");
    rig.resolve(awaited[0], Resolved::Failed);
    order(&rig.flushed(socket), &[r#""message":"503::call_failed""#]);
    // A call whose answer does not come, beyond one turn of the timer wheel.
    rig.send(socket, &client, &[&call(4)]);
    let (awaited, ..) = rig.waits();
    for seconds in [10, 40, 69] {
        rig.send(socket, &client, &[PUBLISH]);
        rig.shard.advance(later(seconds * 1_000));
        assert_eq!(rig.waiting(), 1, "after {seconds} s");
    }
    rig.shard.advance(later(71_000));
    assert_eq!((rig.waits().1, rig.waiting()), (awaited, 0));
    order(&rig.flushed(socket), &[r#""message":"503::call_timeout""#]);
}

#[test]
fn an_answer_for_a_session_that_has_ended_still_publishes() {
    let mut rig = rig(Settings::default());
    let (reader, _) = rig.socket();
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[r#""channel":"/service/x","data":"slow","id":"1""#]);
    rig.send(socket, &client, &[r#""channel":"/meta/disconnect""#]);
    let (awaited, ..) = rig.waits();
    let mut actions = Actions::default();
    actions.reply("1");
    actions.publish("/a", "\"done\"");
    rig.resolve(awaited[0], Resolved::Service(actions));
    assert!(rig.flushed(reader).contains("done"));
    assert!(!rig.flushed(socket).contains(r#""data":1"#));
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn a_session_that_ends_while_its_batch_waits_is_unknown_to_the_rest() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[SLOW, LAST]);
    let (awaited, ..) = rig.waits();
    let id = crate::id::Id::parse(&client).expect("an id");
    rig.shard.message(NOW, ShardMessage::Disconnect(id, None));
    rig.resolve(awaited[0], Resolved::Publish(Verdict::Forward));
    assert_eq!((rig.shard.sessions(), rig.waiting()), (0, 0));
}

#[test]
fn a_connect_that_waited_does_not_take_the_session_from_a_newer_connection() {
    let mut rig = rig(Settings { trust_client_session: true, ..Settings::default() });
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[SLOW, r#""channel":"/meta/connect","id":"9""#]);
    let (awaited, ..) = rig.waits();
    let newer = rig.shard.socket_opened(NOW, None);
    rig.send(newer, &client, &[r#""channel":"/meta/connect","id":"10""#]);
    rig.resolve(awaited[0], Resolved::Publish(Verdict::Forward));
    let key = rig.shard.machines.delivery.keys()[0];
    let session = rig.shard.machines.delivery.session(key).expect("it lives");
    assert_eq!((session.socket(), session.is_held()), (Some(newer), true));
    let text = rig.flushed(socket);
    assert!(text.contains(r#""id":"2","successful":true"#) && !text.contains(r#""id":"9""#), "{text}");
}

#[test]
fn messages_are_read_again_as_they_were() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    let odd = [
        SLOW,
        r#""channel":"/a","data":{"n":12345678901234567890.10,"t":"\u2028\"\\"},"id":7,"x":{"y":[1]}"#,
        r#""channel":"a","data":1,"id":"8""#,
        r#""channel":"/a","data":1,"id":"9 é""#,
        r#""channel":"/a","data":null,"id":"10","ext":1"#,
    ];
    let texts: Vec<String> = [0, 1]
        .map(|from| {
            let batch: Vec<&str> = if from == 0 { odd.to_vec() } else { odd[1..].to_vec() };
            rig.send(socket, &client, &batch);
            let awaited = rig.waits().0;
            if from == 0 {
                rig.flushed(socket);
                rig.resolve(awaited[0], Resolved::Publish(Verdict::Delete));
            }
            rig.flushed(socket)
                .replace(r#"{"channel":"/a","id":"2","successful":false,"error":"404::message_deleted"},"#, "")
        })
        .to_vec();
    let end = |text: &str| text.split_once(r#"[{"channel":"/a","id":"7""#).map(|(_, end)| end.to_owned());
    assert!(end(&texts[0]).is_some() && end(&texts[0]) == end(&texts[1]), "{texts:#?}");
    assert!(texts[0].contains(r#""data":{"n":12345678901234567890.10,"t":"\u2028\"\\"}"#), "{texts:#?}");
}

#[test]
fn a_restart_drops_waits_and_saves_their_sessions() {
    let mut rig = rig(Settings::default());
    let (socket, client) = rig.socket();
    rig.send(socket, &client, &[PUBLISH, SLOW, LAST]);
    rig.send(socket, &client, &[r#""channel":"/service/x","data":"slow","id":"1""#]);
    let saved = rig.shard.save(NOW);
    assert_eq!(saved.sessions.len(), 1);
    assert!(!saved.messages.iter().any(|message| message.contains("last")), "{:?}", saved.messages);
}

/// A request that was forwarded and abandoned while its batch waits.
#[test]
fn abandoning_a_request_twice_is_harmless() {
    let mut rig = rig(Settings { trust_client_session: true, ..Settings::default() });
    let exchange = rig.request(r#"{"channel":"/meta/handshake","ext":{"k":"slow"}}"#.into());
    rig.shard.abandoned(NOW, exchange);
    rig.shard.abandoned(NOW, ExchangeId { number: 99, ..exchange });
    let (awaited, ..) = rig.waits();
    rig.resolve(awaited[0], Resolved::Handshake(Ok(None)));
    rig.resolve(awaited[0], Resolved::Handshake(Ok(None)));
    assert_eq!((rig.shard.sessions(), rig.waiting(), rig.shard.metrics().results_late.get()), (0, 0, 1));
}
