//! Tests of the delivery alone.

use std::collections::HashMap;
use std::io::IoSlice;

use super::*;
use crate::application::NoApplication;
use crate::channels::Subscriber;
use crate::clients::owners::Revoked;
use crate::events::{ExchangeId, HttpTransport, Response};
use crate::id::{Id, kernel_entropy};
use crate::opener::Opener;
use crate::rights::policy::Policy;
use crate::rights::table::Entry;
use crate::rights::{Client, May, Rights, Wish};
use crate::settings::SlowConsumer;
use crate::side::Side;

const NOW: Now = Now { ms: 1_000, wall_ms: 1_700_000_000_000 };

/// A kernel that notes what each socket got, a text for each write.
#[derive(Default)]
struct Kernel(HashMap<SocketKey, Vec<String>>);

impl Wire for Kernel {
    fn write(&mut self, socket: SocketKey, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.0.entry(socket).or_default().push(String::from_utf8_lossy(&bytes).into_owned());
        Ok(bytes.len())
    }
}

fn delivery(settings: Settings) -> Delivery {
    let settings = InForce::new(Arc::new(settings));
    let memory = Arc::new(SessionsMemory::new(1));
    Delivery::new(0, &settings, Arc::new(Histories::new(1)), memory, Arc::default(), NOW)
}

fn open(delivery: &mut Delivery, acknowledges: bool) -> SessionKey {
    let id = Id::new(0, &mut kernel_entropy());
    let protocol = bayeux::Session::new(NOW.ms, &delivery.terms);
    let (mut settings, revoked) = (InForce::new(delivery.settings.clone()), Revoked::default());
    let (settings, policy) = (&mut settings, Policy::default());
    let mut rights = Rights { settings, application: &NoApplication, revoked: &revoked, policy, wall_ms: NOW.wall_ms };
    match rights.may(Entry::Handshake, &Client::Newcomer(None), &Wish::default(), None) {
        May::Granted(granted) => {
            let session = delivery.open(granted, id, None, protocol, Speaks::Bayeux { acknowledges, replays: None });
            // The first connect is not held.
            assert!(delivery.connect(session, None, None, true).is_some());
            session
        }
        other => panic!("{other:?}"),
    }
}

fn on_socket(delivery: &mut Delivery) -> (SessionKey, SocketKey) {
    let (session, socket) = (open(delivery, false), delivery.open_socket(Opener::Program));
    delivery.attach(session, socket);
    (session, socket)
}

/// Publishes to these sessions, without a history. Returns those that are given up.
fn publish(delivery: &mut Delivery, data: &str, sessions: &[SessionKey], policy: SlowConsumer) -> Vec<GivenUp> {
    let payload = format!(r#"{{"channel":"/a","data":{data}}}"#);
    let frames =
        delivery.encoder().publication(payload.len(), false, |bytes| bytes.extend_from_slice(payload.as_bytes()));
    let channel = bayeux::ChannelName::known("/a");
    let (rule, position, token, side) = (None, None, None, Side::Server);
    let fan_out = FanOut { channel, frames: &frames, messages: 1, side, is_lazy: false, rule, position, token };
    let manner = Manner { except: None, lazy_due_ms: None, active_ms: None, room: delivery.capacity, policy };
    let subscribers: Vec<_> = sessions.iter().map(|key| Subscriber { session: key.index, slot: 0 }).collect();
    delivery.fan_out(&fan_out, &manner, [(&subscribers[..], false)].into_iter(), false, &|_, _| true)
}

/// Writes everything. Returns the sessions whose connects are due.
fn written(delivery: &mut Delivery, kernel: &mut Kernel) -> Vec<SessionKey> {
    let mut writes = Writes::default();
    std::iter::from_fn(|| delivery.write(kernel, &mut || false, &mut writes)).collect()
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: 0, number }
}

/// Connects by a request, which is held.
fn hold(delivery: &mut Delivery, session: SessionKey, number: u64) {
    let connected = delivery.connect(session, None, None, true).expect("it lives");
    assert!(matches!(connected.verdict, bayeux::session::Verdict::Hold { .. }), "{connected:?}");
    let on = ReplyTo::Request(exchange(number), HttpTransport::LongPolling);
    delivery.hold(session, on, HeldConnect { id: None, timesync: None });
}

/// Answers the held connect. Returns the body of the response.
fn answer(delivery: &mut Delivery, session: SessionKey) -> String {
    let Some((ReplyTo::Request(exchange, transport), _)) = delivery.take_held(session) else { panic!("none is held") };
    delivery.respond_with(exchange, &transport, Some(session), true, b"{}", None);
    match effects(delivery).pop() {
        Some(Effect::Respond(to, Response { body, .. })) if to == exchange => {
            String::from_utf8_lossy(&body).into_owned()
        }
        other => panic!("no response: {other:?}"),
    }
}

fn effects(delivery: &mut Delivery) -> Vec<Effect> {
    let mut effects = Vec::new();
    delivery.move_effects(&mut effects);
    effects
}

#[test]
fn a_flush_writes_a_session_once_whatever_it_got() {
    let (mut delivery, mut kernel) = (delivery(Settings::default()), Kernel::default());
    let (first, on_first) = on_socket(&mut delivery);
    let (second, on_second) = on_socket(&mut delivery);
    for data in ["1", "2", "3"] {
        assert_eq!(publish(&mut delivery, data, &[first, second], SlowConsumer::Disconnect), []);
    }
    assert_eq!(written(&mut delivery, &mut kernel), []);
    for socket in [on_first, on_second] {
        let writes = &kernel.0[&socket];
        assert!(writes.len() == 1 && writes[0].matches("\"data\"").count() == 3, "{writes:?}");
    }
    assert!(delivery.is_settled());
}

#[test]
fn a_session_gets_a_publication_once_by_two_lists() {
    let (mut delivery, mut kernel) = (delivery(Settings::default()), Kernel::default());
    let (session, socket) = on_socket(&mut delivery);
    publish(&mut delivery, "1", &[session, session], SlowConsumer::Disconnect);
    written(&mut delivery, &mut kernel);
    assert_eq!(kernel.0[&socket][0].matches("\"data\"").count(), 1);
}

#[test]
fn messages_wait_for_the_next_connection_of_a_session() {
    let (mut delivery, mut kernel) = (delivery(Settings::default()), Kernel::default());
    let (session, socket) = on_socket(&mut delivery);
    delivery.detach(session);
    publish(&mut delivery, "1", &[session], SlowConsumer::Disconnect);
    assert_eq!(written(&mut delivery, &mut kernel), []);
    assert!(kernel.0.is_empty() && delivery.is_open(socket));
    let other = delivery.open_socket(Opener::Program);
    delivery.attach(session, other);
    written(&mut delivery, &mut kernel);
    assert!(kernel.0[&other][0].contains("\"data\":1") && !kernel.0.contains_key(&socket));
}

#[test]
fn a_held_connect_is_returned_when_a_message_comes_and_its_response_has_the_message() {
    let (mut delivery, mut kernel) = (delivery(Settings::default()), Kernel::default());
    let session = open(&mut delivery, false);
    hold(&mut delivery, session, 1);
    assert_eq!(written(&mut delivery, &mut kernel), []);
    publish(&mut delivery, "1", &[session], SlowConsumer::Disconnect);
    assert_eq!(written(&mut delivery, &mut kernel), [session]);
    let body = answer(&mut delivery, session);
    assert!(body.contains("\"data\":1") && body.ends_with(",{}]"), "{body}");
    assert_eq!(delivery.sizes().exchanges, 1, "its outcome is not known");
    delivery.delivered(exchange(1), true);
    assert_eq!((delivery.sizes().exchanges, delivery.session(session).map(Session::queued)), (0, Some((0, 0))));
}

#[test]
fn messages_of_a_failed_response_come_before_newer_ones() {
    let mut delivery = delivery(Settings::default());
    let session = open(&mut delivery, false);
    hold(&mut delivery, session, 1);
    publish(&mut delivery, "1", &[session], SlowConsumer::Disconnect);
    assert!(answer(&mut delivery, session).contains("\"data\":1"));
    publish(&mut delivery, "2", &[session], SlowConsumer::Disconnect);
    hold(&mut delivery, session, 2);
    delivery.delivered(exchange(1), false);
    let body = answer(&mut delivery, session);
    let at = |data: &str| body.find(data).expect("it comes");
    assert!(at("\"data\":1") < at("\"data\":2"), "{body}");
}

#[test]
fn a_request_that_is_abandoned_leaves_its_messages_in_the_queue() {
    let mut delivery = delivery(Settings::default());
    let session = open(&mut delivery, false);
    hold(&mut delivery, session, 1);
    publish(&mut delivery, "1", &[session], SlowConsumer::Disconnect);
    delivery.abandon(exchange(1));
    let seen = delivery.session(session).expect("it lives");
    assert!(seen.is_away() && seen.queued().0 == 1 && delivery.sizes().exchanges == 0);
}

#[test]
fn a_slow_session_is_given_up_or_loses_its_oldest_messages_by_the_policy() {
    let mut delivery = delivery(Settings { outbox_messages_max: 4, ..Settings::default() });
    let session = open(&mut delivery, false);
    for data in ["1", "2", "3", "4"] {
        assert_eq!(publish(&mut delivery, data, &[session], SlowConsumer::Disconnect), []);
    }
    assert_eq!(publish(&mut delivery, "5", &[session], SlowConsumer::DropOldest), []);
    assert_eq!(delivery.session(session).map(|session| session.queued().0), Some(4));
    let given_up = publish(&mut delivery, "6", &[session], SlowConsumer::Disconnect);
    assert_eq!(given_up, [GivenUp::Session(session)]);
    assert!(delivery.has(session), "its owner ends it");
    let acknowledging = open(&mut delivery, true);
    (0..4).for_each(|_| assert!(publish(&mut delivery, "1", &[acknowledging], SlowConsumer::DropOldest).is_empty()));
    let given_up = publish(&mut delivery, "1", &[acknowledging], SlowConsumer::DropOldest);
    assert_eq!(given_up, [GivenUp::Session(acknowledging)], "it was promised every message");
}

#[test]
fn a_socket_whose_client_reads_no_replies_is_given_up() {
    let mut delivery = delivery(Settings { outbox_bytes_max: 4_096, ..Settings::default() });
    let (_, socket) = on_socket(&mut delivery);
    let reply = [b'x'; 1_000];
    let mut replies = (0..10).map(|_| delivery.reply_on_socket(socket, None, &reply));
    assert_eq!(replies.find(Result::is_err), Some(Err(GivenUp::Socket(socket))));
}

#[test]
fn a_closed_session_leaves_its_queue_to_its_socket_and_no_memory_behind() {
    let (mut delivery, mut kernel) = (delivery(Settings::default()), Kernel::default());
    let before = delivery.held_bytes();
    let (session, socket) = on_socket(&mut delivery);
    let id = *delivery.session(session).expect("it lives").id();
    publish(&mut delivery, "1", &[session], SlowConsumer::Disconnect);
    assert!(delivery.held_bytes() > before);
    assert_eq!((delivery.close(session), delivery.find(&id)), (Some(id), None));
    written(&mut delivery, &mut kernel);
    assert!(kernel.0[&socket][0].contains("\"data\":1"));
    delivery.socket_is_gone(socket);
    assert_eq!((delivery.held_bytes(), delivery.sizes().sessions, delivery.sizes().sockets), (before, 0, 0));
}

#[test]
fn a_socket_without_a_session_is_closed_after_a_while() {
    let settings = Settings::default();
    let due_ms = NOW.ms + settings.handshake_timeout_ms + 2 * crate::SLOT_MS;
    let (mut delivery, mut kernel) = (delivery(settings), Kernel::default());
    let socket = delivery.open_socket(Opener::Program);
    delivery.set_time(Now { ms: due_ms, ..NOW });
    assert_eq!(delivery.due(), [Holder::Socket(socket)]);
    delivery.socket_due(socket);
    written(&mut delivery, &mut kernel);
    assert!(kernel.0[&socket][0].contains("no session"));
    assert!(matches!(effects(&mut delivery)[..], [Effect::Close(closed)] if closed == socket));
}

impl Socket {
    /// True if it holds no memory for frames.
    pub(crate) fn has_no_frames(&self) -> bool {
        self.own.is_none()
    }
}

impl Delivery {
    /// The number of slots for WebSockets, empty or occupied.
    pub(crate) fn socket_slots(&self) -> usize {
        self.sockets.slots()
    }
}
