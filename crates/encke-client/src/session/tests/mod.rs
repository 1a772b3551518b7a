//! Sessions in virtual time: a [`Rig`] plays the connection and the server.

mod breaks;
mod opening;
mod positions;
mod recovery;
mod running;
mod tokens;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use bayeux::RawJson;

use super::{ClientSession, ConnectionType, Event, RequestClass, SessionOptions};
use crate::{Error, GapCause, LostReason, NotBayeux};

/// A session, its clock, and both ends of its connection.
struct Rig {
    session: ClientSession,
    now: Instant,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(SessionOptions::default())
    }

    fn with(options: SessionOptions) -> Rig {
        let options = SessionOptions { jitter_seed: Some([5; 8]), ..options };
        Rig { session: ClientSession::new(options), now: Instant::now() }
    }

    /// With an open session, its first connect answered with this advice, the second one held.
    fn open(advice: Value) -> Rig {
        let mut rig = Rig::new();
        rig.connection_opened();
        rig.reply_to_handshake("c1");
        assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
        let id = rig.sent_one("/meta/connect")["id"].clone();
        rig.receive(json!([{"channel": "/meta/connect", "id": id, "successful": true, "advice": advice}]));
        rig
    }

    fn connection_opened(&mut self) {
        self.session.connection_opened(self.now);
    }

    fn connection_lost(&mut self) {
        self.session.connection_lost(cut(), self.now);
    }

    /// Answers the handshake that was sent.
    fn reply_to_handshake(&mut self, client_id: &str) {
        let id = self.sent_one("/meta/handshake")["id"].clone();
        self.receive(json!([{"channel": "/meta/handshake", "id": id, "successful": true, "version": "1.0",
            "clientId": client_id, "supportedConnectionTypes": ["websocket"]}]));
    }

    /// Subscribes and has it granted.
    fn subscribe(&mut self, channel: &str) {
        let id = self.session.subscribe(&[channel.into()]);
        self.sent_one("/meta/subscribe");
        self.receive(
            json!([{"channel": "/meta/subscribe", "id": id.to_string(), "successful": true, "subscription": channel}]),
        );
        assert!(
            matches!(&self.events()[..], [Event::Replied { id: answered, outcome: Ok(()), .. }] if *answered == id)
        );
    }

    fn receive(&mut self, messages: Value) {
        self.session.received(&messages.to_string(), self.now).expect("Bayeux");
    }

    /// Answers the connect that was sent last with these fields.
    fn answer_connect(&mut self, id: &Value, fields: Value) {
        let mut reply = json!({"channel": "/meta/connect", "id": id});
        for (name, value) in fields.as_object().expect("fields") {
            reply[name] = value.clone();
        }
        self.receive(json!([reply]));
    }

    /// Lets time pass and wakes the session at the times that it asks for.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.session.wake_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.session.wake(self.now);
        }
        self.now = end;
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.event()).collect()
    }

    /// All that was to be sent: one list of messages per text.
    fn sent(&mut self) -> Vec<(RequestClass, Vec<Value>)> {
        let texts = std::iter::from_fn(|| self.session.transmit());
        texts.map(|sent| (sent.class, serde_json::from_str(&sent.text).expect("an array"))).collect()
    }

    /// The one message that was to be sent, which is of this channel.
    fn sent_one(&mut self, channel: &str) -> Value {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        let (_, mut messages) = sent.remove(0);
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["channel"], channel);
        messages.remove(0)
    }

    /// The pause of the one event, which says that the connection is lost.
    fn lost(&mut self) -> Duration {
        match &self.events()[..] {
            [Event::Lost { reopen_in, .. }] => *reopen_in,
            other => panic!("{other:?}"),
        }
    }

    /// The channel and the error of the one event, which says that the session ended.
    fn ended(&mut self) -> (String, String) {
        match &self.events()[..] {
            [Event::Ended(Error::Refused(refusal))] => (refusal.channel.clone(), refusal.error.clone()),
            other => panic!("{other:?}"),
        }
    }
}

fn raw(text: &str) -> RawJson<'_> {
    RawJson::parse(text).expect("JSON")
}

fn cut() -> LostReason {
    LostReason::Other("cut".into())
}

/// The Bayeux error of a refused outcome.
fn error_of(outcome: &Result<(), Error>) -> &str {
    match outcome {
        Err(Error::Refused(refusal)) => &refusal.error,
        other => panic!("{other:?}"),
    }
}

const SECOND: Duration = Duration::from_secs(1);
