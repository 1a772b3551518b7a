//! Tests of the requests of a shard alone.

use bayeux::BayeuxError;

use super::*;
use crate::events::{HttpTransport, Peer, Persisted, SessionKey, SocketKey};
use crate::limits::shares::{Amount, Budget};
use crate::protocol::batch::{Batch, Outcome, Via};

const SESSION: SessionKey = SessionKey { index: 1, generation: 1 };
const SOCKET: SocketKey = SocketKey { index: 2, generation: 1 };
const BUDGET: Budget = Budget::new(4, 1 << 20);

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: 0, number }
}

fn over_http(number: u64) -> Via {
    let (transport, peer) = (HttpTransport::LongPolling, Peer::default());
    Via::Http { exchange: exchange(number), transport, browser: None, peer, head: None }
}

fn batch(via: Via) -> Batch {
    Batch::new(via, 0, false, Some(SESSION), Vec::new())
}

/// A request with two publications of an earlier token, between two replies that are known.
fn unanswered(requests: &mut Requests, via: Via) -> Batch {
    let text = r#"[{"channel":"/a","id":"1"},{"channel":"/a","id":"2"}]"#;
    let messages = bayeux::parse_batch(text, &bayeux::Limits::default()).expect("messages");
    let (mut batch, token) = (batch(via), requests.owed.new_token());
    for message in &messages {
        requests.owed.owe(token, &mut batch, message, SESSION, None);
        if !batch.replies.is_empty() {
            batch.replies.push(b',');
        }
        batch.replies.extend_from_slice(b"{}");
    }
    batch
}

fn answer(number: u64, batch: Batch) -> Answer {
    Answer { batch, exchange: exchange(number), transport: HttpTransport::LongPolling }
}

fn settled(requests: &mut Requests, number: u64) -> Vec<Due> {
    requests
        .owed
        .settle(Persisted { number, is_persisted: true }, None, BayeuxError::not_stored)
        .expect("it waits")
        .due
        .into_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_request_without_publications_is_answered_at_once() {
    let mut requests = Requests::default();
    let answered = requests.owed.answer(answer(1, batch(over_http(1))));
    assert!(answered.is_some_and(|answer| answer.exchange == exchange(1)));
}

#[test]
fn a_response_waits_for_the_disk_and_has_its_replies_in_order() {
    let mut requests = Requests::default();
    let batch = unanswered(&mut requests, over_http(1));
    assert!(requests.owed.answer(answer(1, batch)).is_none());
    assert_eq!(requests.pending().replies, 2);
    let due = settled(&mut requests, 1);
    let [Due::Response(answer)] = &due[..] else { panic!("{} replies", due.len()) };
    let replies = text(&answer.batch.replies);
    let at = |part: &str| replies.find(part).expect(part);
    assert!(at("\"id\":\"1\"") < at("{}") && at("{}") < at("\"id\":\"2\""), "{replies}");
    assert!(requests.pending().replies == 0 && !requests.owed.has_late_replies());
}

#[test]
fn a_connect_does_not_wait_for_the_disk() {
    let mut requests = Requests::default();
    let mut batch = unanswered(&mut requests, over_http(1));
    batch.comes_to(Outcome::Connected);
    assert!(requests.owed.answer(answer(1, batch)).is_some());
    let due = settled(&mut requests, 1);
    assert!(matches!(due[..], [Due::Session(SESSION, _), Due::Session(SESSION, _)]));
    assert!(!requests.owed.has_late_replies());
}

#[test]
fn replies_for_one_websocket_leave_together() {
    let mut requests = Requests::default();
    unanswered(&mut requests, Via::Socket(SOCKET));
    let due = settled(&mut requests, 1);
    let [Due::Socket(OnSocket { socket: SOCKET, session: SESSION, text: replies, count: 2 })] = &due[..] else {
        panic!("{} replies", due.len())
    };
    assert_eq!(text(replies).matches("\"successful\":true").count(), 2);
    assert!(
        requests.owed.settle(Persisted { number: 1, is_persisted: true }, None, BayeuxError::not_stored).is_none(),
        "a token is settled once"
    );
}

#[test]
fn what_was_not_stored_is_an_error() {
    let mut requests = Requests::default();
    unanswered(&mut requests, Via::Socket(SOCKET));
    let settled = requests
        .owed
        .settle(Persisted { number: 1, is_persisted: false }, Some("now"), BayeuxError::not_stored)
        .expect("it waits");
    assert_eq!((&*settled.channel, settled.publications), ("/a", 2));
    let Due::Socket(replies) = &settled.due[0] else { panic!("not for the socket") };
    let replies = text(&replies.text);
    assert!(replies.contains("\"successful\":false") && !replies.contains("now"), "{replies}");
}

#[test]
fn waits_are_limited_by_owner_and_end_once() {
    let mut requests = Requests::default();
    let payer = Payer::User(7);
    let mut keys = Vec::new();
    while requests.waits.admits_batch(&BUDGET, &payer, &batch(Via::Socket(SOCKET))) {
        keys.push(requests.waits.add(Wait::Batch(Box::new(batch(Via::Socket(SOCKET)))), payer, 1_000));
    }
    assert!(!keys.is_empty() && requests.waits.used()[0].count == keys.len() && requests.waits.has_batch_of(SESSION));
    for key in &keys {
        assert_eq!(requests.waits.due_ms(*key), Some(1_000));
        requests.waits.armed(*key, 1_008);
        assert!(requests.waits.remove(*key).is_some_and(|(_, armed_ms)| armed_ms == 1_008));
        assert!(requests.waits.remove(*key).is_none() && requests.waits.due_ms(*key).is_none());
    }
    assert!(requests.pending().waits == 0 && !requests.waits.has_batch_of(SESSION));
    assert_eq!(requests.waits.used(), [Amount::default(); 2]);
}

#[test]
fn an_abandoned_request_is_known_while_its_batch_waits() {
    let mut requests = Requests::default();
    assert!(!requests.waits.abandon(&exchange(1)));
    let key = requests.waits.add(Wait::Batch(Box::new(batch(over_http(1)))), Payer::Origin(1), 1_000);
    assert!(requests.waits.abandon(&exchange(1)));
    requests.waits.remove(key);
    assert!(!requests.waits.abandon(&exchange(1)));
}

#[test]
fn a_forwarded_request_ends_once() {
    let mut requests = Requests::default();
    requests.forward(exchange(1), 3);
    assert_eq!(requests.pending().forwarded, 1);
    assert_eq!(requests.end_forwarded(&exchange(1)), Some(3));
    assert_eq!(requests.end_forwarded(&exchange(1)), None);
}

#[test]
fn the_room_for_replies_is_used_again() {
    let mut requests = Requests::default();
    requests.reuse(Vec::with_capacity(100));
    assert!(requests.take_room().capacity() >= 100);
    requests.reuse(Vec::with_capacity(1 << 20));
    assert_eq!(requests.take_room().capacity(), 0);
}
