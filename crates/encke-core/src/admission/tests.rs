//! Tests of the admission of a shard alone.

use std::sync::Arc;

use super::*;
use crate::admission::account::MailboxAccount;
use crate::events::{EncodedPublications, HttpTransport, Peer, Request};
use crate::side::Side;

const CAPACITY: Capacity = Capacity { messages_max: 40, bytes_max: 1 << 20 };
const NOW: Now = Now { ms: 1_000, wall_ms: 0 };

fn envelope(message: ShardMessage) -> Envelope {
    Envelope { message, charge: Arc::<MailboxAccount>::default().charge(0) }
}

fn publication(channel: &str, bytes: usize) -> Envelope {
    let account = Arc::<MailboxAccount>::default();
    envelope(ShardMessage::Publication(Arc::new(EncodedPublications {
        charge: account.charge(0),
        channel: channel.into(),
        frames: vec![0; bytes].into(),
        messages: 1,
        side: Side::Server,
        is_lazy: false,
        except: None,
        position: None,
        token: None,
        publisher: None,
    })))
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: 0, number }
}

fn request(number: u64, bytes: usize) -> Envelope {
    envelope(ShardMessage::Request(Box::new(Request {
        exchange: exchange(number),
        transport: HttpTransport::LongPolling,
        body: "x".repeat(bytes),
        browser: None,
        peer: Peer::default(),
        head: None,
        searched: Default::default(),
    })))
}

/// An admission whose budget is spent.
fn spent() -> Admission {
    let mut admission = Admission::default();
    for weight in [Weight::Light, Weight::Heavy] {
        admission.weight = weight;
        admission.spend(CAPACITY.messages_max, 10, 10);
    }
    admission
}

fn arrive(admission: &mut Admission, envelope: Envelope) -> Turn {
    admission.arrive(envelope, 1, &CAPACITY, |_| None)
}

fn channel(envelope: &Envelope) -> &str {
    match &envelope.message {
        ShardMessage::Publication(publication) => &publication.channel,
        _ => "",
    }
}

#[test]
fn messages_come_at_once_while_the_budget_lasts() {
    let mut admission = Admission::default();
    assert!(matches!(arrive(&mut admission, publication("/a", 10)), Turn::Now(_)));
    assert_eq!((admission.waiting(), admission.weight()), (0, Weight::Heavy));
    let mut admission = spent();
    assert!(matches!(arrive(&mut admission, publication("/a", 10)), Turn::Later));
    assert!(matches!(arrive(&mut admission, envelope(ShardMessage::Drain)), Turn::Now(_)), "it never waits");
    assert_eq!(admission.waiting(), 1);
}

#[test]
fn what_waits_comes_when_the_budget_is_renewed_and_light_messages_pass() {
    let mut admission = spent();
    for name in ["/a", "/a", "/b"] {
        assert!(matches!(arrive(&mut admission, publication(name, 10)), Turn::Later));
    }
    assert!(admission.next(false, &CAPACITY).is_none());
    admission.renew(NOW, false, &CAPACITY);
    assert!(admission.may_serve(&CAPACITY));
    assert!(matches!(arrive(&mut admission, publication("/c", 10)), Turn::Now(_)), "a light one passes");
    let mut served = Vec::new();
    while let Some((envelope, turn)) = admission.next(false, &CAPACITY) {
        served.push(channel(&envelope).to_string());
        admission.served(turn);
    }
    assert_eq!((served.join(" "), admission.waiting()), ("/a /b /a".into(), 0));
}

#[test]
fn a_flow_that_causes_much_work_comes_after_others() {
    let mut admission = spent();
    for name in ["/busy", "/busy", "/quiet", "/quiet"] {
        arrive(&mut admission, publication(name, 10));
    }
    let mut served = Vec::new();
    while let Some((envelope, turn)) = admission.next(true, &CAPACITY) {
        served.push(channel(&envelope).to_string());
        admission.add_work(if channel(&envelope) == "/busy" { 1 << 20 } else { 1 });
        admission.served(turn);
    }
    assert_eq!(served.join(" "), "/busy /quiet /quiet /busy");
}

#[test]
fn the_end_of_a_request_stays_behind_it() {
    let mut admission = spent();
    assert!(matches!(arrive(&mut admission, request(1, 10)), Turn::Later));
    assert!(matches!(arrive(&mut admission, envelope(ShardMessage::Abandoned(exchange(1)))), Turn::Behind));
    assert!(matches!(arrive(&mut admission, envelope(ShardMessage::Abandoned(exchange(2)))), Turn::Now(_)));
    assert!(admission.has_request(&exchange(1)));
    let next = |admission: &mut Admission| admission.next(true, &CAPACITY).expect("it waits").0.message;
    assert!(matches!(next(&mut admission), ShardMessage::Request(_)));
    assert!(matches!(next(&mut admission), ShardMessage::Abandoned(_)) && !admission.has_request(&exchange(1)));
}

#[test]
fn small_requests_pass_large_ones() {
    let mut admission = spent();
    arrive(&mut admission, request(1, LIGHT_BYTES_MAX + 1));
    arrive(&mut admission, request(2, 10));
    let (envelope, _served) = admission.next(true, &CAPACITY).expect("it waits");
    assert!(matches!(envelope.message, ShardMessage::Request(request) if request.exchange == exchange(2)));
}

#[test]
fn the_clients_of_waiting_requests_are_known() {
    let mut admission = spent();
    let id = Id::new(0, &mut crate::kernel_entropy());
    admission.arrive(request(1, 10), 0, &CAPACITY, |_| Some(id));
    admission.arrive(request(2, 10), 0, &CAPACITY, |_| None);
    assert_eq!(admission.clients(), [id]);
}

#[test]
fn edges_and_other_shards_take_turns() {
    let mut admission = spent();
    for _ in 0..2 {
        assert!(!admission.admits(Weight::Heavy, (0, 0), &CAPACITY, true, || true));
        assert!(admission.let_edges_go_first());
        assert!(!admission.admits(Weight::Heavy, (0, 0), &CAPACITY, true, || true));
        assert!(!admission.let_edges_go_first());
    }
    admission.renew(NOW, false, &CAPACITY);
    assert!(admission.admits(Weight::Heavy, (0, 0), &CAPACITY, true, || true));
    assert!(!admission.admits(Weight::Heavy, (0, 0), &CAPACITY, false, || true), "no memory");
    assert!(!admission.admits(Weight::Heavy, (0, 0), &CAPACITY, true, || false), "no room between shards");
}
