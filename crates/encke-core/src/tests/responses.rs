//! Responses are bounded, individually and in total, and a client that is receiving one is not silent.

use crate::application::NoApplication;
use crate::events::{Effect, ExchangeId, Response, ShardMessage};
use crate::id::Id;
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::tests::{NOW, Rig, member_of};

/// Many sessions that connect and never read.
struct Clients {
    rig: Rig,
    ids: Vec<String>,
    /// The responses on their way.
    responses: Vec<(ExchangeId, Response)>,
}

/// Settings without cookies.
fn trusting() -> Settings {
    Settings { trust_client_session: true, ..Settings::default() }
}

/// A long-polling session that subscribes to `/a` and has connected once.
fn poller(rig: &mut Rig, ext: &str) -> String {
    let exchange = rig.request(format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{ext}}}"#));
    let client = member_of(&rig.response(exchange).expect("a response"), "clientId");
    let exchange = rig.request(format!(
        r#"[{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"/a"}},{{"channel":"/meta/connect","clientId":"{client}"}}]"#
    ));
    rig.response(exchange).expect("a response");
    client
}

/// The numbers of the messages in a response.
fn numbers(text: &str) -> Vec<usize> {
    let starts = text.split("\"data\":\"").skip(1);
    starts.map(|rest| rest.split(' ').next().unwrap_or_default().parse().expect("a number")).collect()
}

fn publish(rig: &mut Rig, number: usize, bytes: usize) {
    let data = format!("\"{number} {}\"", "x".repeat(bytes));
    rig.shard.publish_now("/a", &data);
}

/// Connects and acknowledges this batch.
fn connect(rig: &mut Rig, client: &str, ack: usize) -> ExchangeId {
    rig.request(format!(r#"{{"channel":"/meta/connect","clientId":"{client}","ext":{{"ack":{ack}}}}}"#))
}

/// The responses made so far, with their bodies.
fn responses(rig: &mut Rig) -> Vec<(ExchangeId, Response)> {
    rig.shard.flush(NOW, &mut rig.kernel, &mut || false);
    let respond = |effect| match effect {
        Effect::Respond(exchange, response) => Some((exchange, response)),
        _ => None,
    };
    rig.shard.take_effects().into_iter().filter_map(respond).collect()
}

#[test]
fn a_response_has_a_size_and_the_next_connect_gets_the_rest_at_once() {
    for ext in ["{}", r#"{"ack":true}"#] {
        let mut rig = Rig::new(1, Settings { response_bytes_max: 2_000, ..trusting() }, Box::new(NoApplication));
        let client = poller(&mut rig, ext);
        (0..10).for_each(|number| publish(&mut rig, number, 500));
        publish(&mut rig, 10, 5_000);
        let mut received = Vec::new();
        for ack in 1..=5 {
            let exchange = connect(&mut rig, &client, ack);
            let text = rig.response(exchange).expect("an immediate answer");
            rig.shard.delivered(NOW, exchange, true);
            let found = numbers(&text);
            assert!(text.len() < 2_500 || found == [10], "{} bytes: {ext}", text.len());
            received.extend(found);
        }
        assert_eq!(received, (0..=10).collect::<Vec<_>>(), "{ext}");
        connect(&mut rig, &client, 6);
        assert_eq!(rig.shard.holds(&Id::parse(&client).expect("an id")), Some(true), "nothing is left: {ext}");
    }
}

impl Clients {
    /// This many sessions, each with the same 2 MB queued, connect twice; nobody reads.
    fn new(sessions: usize, ext: &str) -> Clients {
        let settings = Settings { responses_bytes_max: BODIES_MAX, ..trusting() };
        let mut rig = Rig::new(1, settings, Box::new(NoApplication));
        let ids: Vec<String> = (0..sessions).map(|_| poller(&mut rig, ext)).collect();
        (0..40).for_each(|number| publish(&mut rig, number, 50_000));
        let mut clients = Clients { rig, ids, responses: Vec::new() };
        for _ in 0..2 {
            for client in &clients.ids {
                connect(&mut clients.rig, client, 0);
                clients.responses.extend(responses(&mut clients.rig));
            }
        }
        clients
    }

    fn body_bytes(&self) -> usize {
        self.responses.iter().map(|(_, response)| response.body.len()).sum()
    }
}

/// The limit for all bodies in these tests, in bytes.
const BODIES_MAX: usize = 4 << 20;

#[test]
fn responses_that_are_never_read_are_bounded_in_total_and_waiting_connects_are_answered_when_there_is_room() {
    for ext in ["{}", r#"{"ack":true}"#] {
        let mut clients = Clients::new(200, ext);
        // A single message may exceed the limit, because each response holds at least one.
        assert!(clients.body_bytes() < BODIES_MAX + 60_000, "{} bytes: {ext}", clients.body_bytes());
        assert!(clients.rig.shard.machines.env.shared.memory.body_bytes() <= BODIES_MAX + 60_000);
        assert!(clients.rig.shard.metrics().responses_delayed.get() > 0);
        let waiting = clients.rig.shard.machines.delivery.sizes().connects;
        assert!(waiting > 50 && clients.rig.shard.metrics().held.get() >= waiting as u64, "{waiting} wait: {ext}");
        // All sessions resume when other responses have been taken.
        let mut answered = std::collections::HashSet::new();
        let mut rounds = 0;
        while !clients.responses.is_empty() {
            for (exchange, response) in std::mem::take(&mut clients.responses) {
                answered.extend(response.confirm.map(|_| exchange));
                drop(response);
                clients.rig.shard.delivered(NOW, exchange, true);
            }
            clients.rig.shard.advance(Now { ms: NOW.ms + 1, ..NOW });
            clients.responses.extend(responses(&mut clients.rig));
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!(clients.rig.shard.machines.env.shared.memory.body_bytes(), 0);
        assert!(
            answered.len() >= 200 && clients.rig.shard.machines.delivery.sizes().connects == 0,
            "{} of 200: {ext}",
            answered.len()
        );
    }
}

#[test]
fn a_client_that_receives_a_response_is_not_silent_until_it_has_it() {
    for ext in ["{}", r#"{"ack":true}"#] {
        for taken in [true, false] {
            let mut rig = Rig::new(1, trusting(), Box::new(NoApplication));
            let client = poller(&mut rig, ext);
            publish(&mut rig, 1, 10_000);
            let exchange = connect(&mut rig, &client, 0);
            assert!(rig.response(exchange).is_some());
            let at = |ms| Now { ms: NOW.ms + ms, ..NOW };
            (0..60).for_each(|second| rig.shard.advance(at(second * 1_000)));
            assert_eq!(rig.shard.sessions(), 1, "it reads on: {ext}");
            rig.shard.delivered(at(60_000), exchange, taken);
            rig.shard.advance(at(69_900));
            assert_eq!(rig.shard.sessions(), 1, "{ext}");
            rig.shard.advance(at(70_100));
            assert_eq!(rig.shard.sessions(), 0, "{ext}");
        }
    }
}

/// The kernels of both sides take a response at once, and the client reads 4 KB/s.
#[test]
fn a_client_that_reads_a_large_response_slowly_is_not_silent() {
    for ext in ["{}", r#"{"ack":true}"#] {
        let mut rig = Rig::new(1, trusting(), Box::new(NoApplication));
        let client = poller(&mut rig, ext);
        publish(&mut rig, 1, 260_000);
        let exchange = connect(&mut rig, &client, 0);
        let response = rig.response(exchange).expect("a response");
        rig.shard.delivered(NOW, exchange, true);
        let ends_ms = response.len() as u64 / 4 + Settings::default().max_interval_ms;
        let mut alive_at = |ms| {
            (0..=ms).step_by(1_000).for_each(|ms| rig.shard.advance(Now { ms: NOW.ms + ms, ..NOW }));
            rig.shard.sessions() == 1
        };
        assert!(response.len() > 260_000 && alive_at(ends_ms - 1_000), "{ext}");
        assert!(!alive_at(ends_ms + 1_000), "one that reads nothing ends: {ext}");
    }
}

/// The reply to its connect waits behind messages that the client reads slowly.
#[test]
fn a_websocket_whose_client_reads_slowly_is_neither_silent_nor_idle() {
    let settings = Settings { websocket_idle_timeout_ms: 100_000, ..Settings::default() };
    let mut rig = Rig::new(1, settings, Box::new(NoApplication));
    let (key, client) = rig.socket();
    rig.shard.socket_text(NOW, key, &format!(r#"{{"channel":"/meta/connect","clientId":"{client}"}}"#));
    rig.kernel.room = 0;
    (0..400).for_each(|_| rig.shard.publish_now("/a", &format!("\"{}\"", "x".repeat(10_000))));
    let mut now = NOW;
    // 4 MB at 8 KB/s. The kernel takes more when a part of its buffer is free.
    for _ in 0..30 {
        (0..16).for_each(|second| {
            rig.shard.advance(Now { ms: now.ms + second * 1_000, ..now });
            rig.shard.flush(Now { ms: now.ms + second * 1_000, ..now }, &mut rig.kernel, &mut || false);
        });
        now.ms += 16_000;
        rig.kernel.room = 128_000;
        rig.shard.socket_writable(now, key);
        rig.shard.flush(now, &mut rig.kernel, &mut || false);
        assert_eq!((rig.shard.sessions(), rig.shard.metrics().timeouts.get()), (1, 0), "at {} ms", now.ms);
    }
    // Then it reads nothing more.
    (0..90).for_each(|second| rig.shard.advance(Now { ms: now.ms + second * 1_000, ..now }));
    assert_eq!(rig.shard.sessions(), 0);
}

#[test]
fn a_session_ended_by_the_server_gets_all_queued_messages_before_the_last_reply() {
    let mut rig = Rig::new(1, Settings { response_bytes_max: 2_000, ..trusting() }, Box::new(NoApplication));
    let client = poller(&mut rig, "{}");
    (0..10).for_each(|number| publish(&mut rig, number, 500));
    rig.shard.message(NOW, ShardMessage::Disconnect(Id::parse(&client).expect("an id"), None));
    let (mut received, mut said) = (Vec::new(), String::new());
    while rig.shard.sessions() > 0 {
        assert!(!said.contains("/meta/disconnect") && !said.contains("unknown"), "{said}");
        let exchange = connect(&mut rig, &client, 0);
        said = rig.response(exchange).expect("an immediate answer");
        rig.shard.delivered(NOW, exchange, true);
        received.extend(numbers(&said));
    }
    assert_eq!(received, (0..10).collect::<Vec<_>>());
    assert!(said.contains("/meta/disconnect") && said.contains("\"reconnect\":\"none\""), "{said}");
}

#[test]
fn an_ending_session_cannot_subscribe() {
    for ext in ["{}", r#"{"ack":true}"#, r#"{"replay":true}"#] {
        let mut rig = Rig::new(1, Settings { response_bytes_max: 2_000, ..trusting() }, Box::new(NoApplication));
        let client = poller(&mut rig, ext);
        (0..10).for_each(|number| publish(&mut rig, number, 500));
        rig.shard.message(NOW, ShardMessage::Disconnect(Id::parse(&client).expect("an id"), None));
        let mut received = String::new();
        for name in ["/a", "/b"] {
            let subscribe =
                format!(r#"{{"channel":"/meta/subscribe","clientId":"{client}","subscription":"{name}","id":"1"}}"#);
            let exchange = rig.request(subscribe);
            let said = rig.response(exchange).expect("a response");
            rig.shard.delivered(NOW, exchange, true);
            assert!(said.contains("\"403:session_ending:subscribe_denied\""), "{ext}: {said}");
            received += &said;
        }
        assert_eq!(rig.shard.metrics().subscriptions.get(), 0, "{ext}");
        publish(&mut rig, 10, 500);
        rig.shard.publish_now("/b", "11");
        let (mut connects, mut batch) = (0, 0);
        while rig.shard.sessions() > 0 {
            connects += 1;
            assert!(connects < 20, "{ext}: it ends");
            let exchange = connect(&mut rig, &client, batch);
            let said = rig.response(exchange).expect("an immediate answer");
            rig.shard.delivered(NOW, exchange, true);
            let reported = said.rsplit_once("\"ack\":").and_then(|(_, rest)| rest.split('}').next()?.parse().ok());
            batch = reported.unwrap_or(batch);
            received += &said;
        }
        assert_eq!(numbers(&received), (0..10).collect::<Vec<_>>(), "{ext}");
        assert!(!received.contains("\"channel\":\"/b\""), "{ext}: {received}");
    }
}

#[test]
fn messages_whose_client_never_connects_again_count_when_its_session_expires() {
    for (ext, reconnects, unread) in [("{}", false, 1), ("{}", true, 0), (r#"{"ack":true}"#, false, 0)] {
        let mut rig = Rig::new(1, trusting(), Box::new(NoApplication));
        let client = poller(&mut rig, ext);
        publish(&mut rig, 7, 10);
        let exchange = connect(&mut rig, &client, 1);
        assert_eq!(numbers(&rig.response(exchange).expect("a response")), [7]);
        // The kernel has it, and the connection breaks.
        rig.shard.delivered(NOW, exchange, true);
        if reconnects {
            let exchange = connect(&mut rig, &client, 2);
            rig.shard.abandoned(NOW, exchange);
        }
        for seconds in 0..120 {
            rig.shard.advance(Now { ms: NOW.ms + seconds * 1_000, ..NOW });
        }
        let metrics = rig.shard.metrics();
        assert_eq!((metrics.expired.get(), metrics.unread.get()), (1, unread), "{ext} {reconnects}");
    }
}
