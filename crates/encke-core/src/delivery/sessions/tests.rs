//! The next step of a session's delivery, by its connection, by who confirms its messages, and by what waits.

use bayeux::Terms;
use websocket::Opcode;

use crate::application::{Application, NoApplication};
use crate::clients::owners::Revoked;
use crate::delivery::encoder::Encoder;
use crate::delivery::outbox::Kind;
use crate::delivery::sessions::replay::InRings;
use crate::delivery::sessions::session::{Confirmation, HeldConnect, Next, ReplyTo, Session};
use crate::delivery::sessions::table::Sessions;
use crate::delivery::sessions::unacked::Unacked;
use crate::events::{ExchangeId, HttpTransport, SessionKey, SocketKey};
use crate::id::{Id, kernel_entropy};
use crate::rights::table::Entry;
use crate::rights::{Client, May, Rights, Wish};
use crate::settings::Settings;
use crate::settings::in_force::InForce;

const SOCKET: SocketKey = SocketKey { index: 1, generation: 1 };
const TERMS: Terms = Terms { timeout_ms: 1_000, interval_ms: 0, max_interval_ms: 1_000, client_max_ms: 1_000 };

/// A table with one session.
struct Alone {
    sessions: Sessions,
    key: SessionKey,
    encoder: Encoder,
}

impl Alone {
    fn new(acknowledges: bool, with_connects: bool) -> Alone {
        let mut settings = InForce::new(Settings::default().into());
        let (revoked, application) = (Revoked::default(), NoApplication);
        let policy = application.policy();
        let mut rights =
            Rights { settings: &mut settings, application: &application, revoked: &revoked, policy, wall_ms: 0 };
        let May::Granted(granted) = rights.may(Entry::Handshake, &Client::Newcomer(None), &Wish::default(), None)
        else {
            panic!("a handshake is refused")
        };
        let unacked = acknowledges.then(|| Unacked::restored(0, std::iter::empty()));
        let confirmation = Confirmation::new(unacked, with_connects);
        let mut sessions = Sessions::default();
        let id = Id::new(0, &mut kernel_entropy());
        let protocol = bayeux::Session::new(0, &TERMS);
        let key = sessions.insert(granted, id, None, protocol, confirmation, 0);
        Alone { sessions, key, encoder: Encoder::new(256) }
    }

    fn session(&mut self) -> &mut Session {
        self.sessions.get_mut(self.key).expect("a session")
    }

    fn push(&mut self) {
        let frames = self.encoder.single(Opcode::Text, 4, |bytes| bytes.extend_from_slice(b"[{}]"));
        self.session().outbox.push(&frames, Kind::Messages);
        self.session().urgent = true;
    }

    fn hold(&mut self, on: Option<SocketKey>) {
        let reply_to = match on {
            Some(socket) => ReplyTo::Socket(socket),
            None => ReplyTo::Request(exchange(1), HttpTransport::LongPolling),
        };
        self.session().hold(reply_to, HeldConnect { id: None, timesync: None });
    }
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: 0, number }
}

#[test]
fn nothing_is_delivered_while_nothing_waits() {
    for (acknowledges, with_connects) in [(false, false), (false, true), (true, false)] {
        let mut alone = Alone::new(acknowledges, with_connects);
        assert_eq!(alone.session().next(), Next::Wait);
        alone.hold(None);
        assert_eq!((alone.session().next(), alone.session().next_on(None)), (Next::Wait, Next::Wait));
    }
}

#[test]
fn messages_wait_while_there_is_no_connection() {
    let mut alone = Alone::new(false, false);
    alone.push();
    assert_eq!((alone.session().next(), alone.session().next_on(None)), (Next::Wait, Next::Respond));
}

#[test]
fn a_websocket_pushes_unless_messages_come_with_connects_only() {
    for (acknowledges, with_connects, expected) in
        [(false, false, Next::Push), (false, true, Next::Wait), (true, false, Next::Wait)]
    {
        let mut alone = Alone::new(acknowledges, with_connects);
        alone.session().attach(SOCKET);
        alone.push();
        assert_eq!(alone.session().next(), expected);
        alone.hold(Some(SOCKET));
        let with_a_connect = if expected == Next::Push { Next::Push } else { Next::Respond };
        assert_eq!(alone.session().next(), with_a_connect);
    }
}

#[test]
fn a_connect_on_a_websocket_that_pushes_takes_nothing_along() {
    let mut alone = Alone::new(false, false);
    alone.session().attach(SOCKET);
    alone.push();
    assert_eq!((alone.session().next_on(Some(SOCKET)), alone.session().next_on(None)), (Next::Wait, Next::Respond));
}

#[test]
fn nothing_overtakes_a_response_on_its_way() {
    let mut alone = Alone::new(false, false);
    alone.push();
    assert!(alone.session().take_for_response(exchange(1), usize::MAX).is_some());
    alone.session().response_begins();
    alone.push();
    alone.hold(None);
    assert_eq!((alone.session().next(), alone.session().next_on(None)), (Next::Wait, Next::Wait));
    assert_eq!(alone.session().response_ends(exchange(1), true), 1);
    assert_eq!((alone.session().next(), alone.session().next_on(None)), (Next::Respond, Next::Respond));
}

#[test]
fn a_response_that_fails_brings_its_messages_back() {
    let mut alone = Alone::new(false, false);
    alone.push();
    assert!(alone.session().take_for_response(exchange(1), usize::MAX).is_some());
    alone.session().response_begins();
    alone.hold(None);
    assert_eq!(alone.session().next(), Next::Wait);
    assert_eq!(alone.session().response_ends(exchange(1), false), 0);
    assert_eq!(alone.session().next(), Next::Respond);
}

#[test]
fn who_acknowledges_may_have_two_responses_at_once() {
    let mut alone = Alone::new(true, false);
    alone.push();
    for responses in 0..3 {
        let expected = if responses < 2 { Next::Respond } else { Next::Wait };
        assert_eq!(alone.session().next_on(None), expected, "{responses} responses");
        assert_eq!(alone.session().next_on(Some(SOCKET)), Next::Respond);
        alone.session().response_begins();
    }
}

impl Session {
    /// The number of its cursors, if it replays.
    pub(crate) fn cursors(&self) -> Option<usize> {
        Some(self.replay.as_ref()?.cursors.len())
    }

    /// The messages that may still be in rings, if it replays.
    pub(crate) fn in_rings(&self) -> Option<InRings> {
        Some(self.replay.as_ref()?.in_rings)
    }
}
