//! Dialogs under made-up times: a [`Rig`] plays the carrier and the server.

mod breaks;
mod opening;
mod places;
mod recovery;
mod running;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ConnectionType, Dialog, DialogOptions, Event, Lane};
use crate::{Error, RawValue};

/// A dialog, its clock, and both ends of its carrier.
struct Rig {
    dialog: Dialog,
    now: Instant,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(DialogOptions::default())
    }

    fn with(options: DialogOptions) -> Rig {
        let options = DialogOptions { random: Some([5; 8]), ..options };
        Rig { dialog: Dialog::new(options), now: Instant::now() }
    }

    /// With an open session, its first connect answered with this advice, the second one held.
    fn open(advice: Value) -> Rig {
        let mut rig = Rig::new();
        rig.carrier_opened();
        rig.shake_hands("c1");
        assert!(matches!(rig.events()[..], [Event::Opened { resumed: false }]));
        let id = rig.sent_one("/meta/connect")["id"].clone();
        rig.receive(json!([{"channel": "/meta/connect", "id": id, "successful": true, "advice": advice}]));
        rig
    }

    fn carrier_opened(&mut self) {
        self.dialog.carrier_opened(self.now);
    }

    fn carrier_lost(&mut self) {
        self.dialog.carrier_lost("cut", self.now);
    }

    /// Answers the handshake that was sent.
    fn shake_hands(&mut self, client_id: &str) {
        let id = self.sent_one("/meta/handshake")["id"].clone();
        self.receive(json!([{"channel": "/meta/handshake", "id": id, "successful": true, "version": "1.0",
            "clientId": client_id, "supportedConnectionTypes": ["websocket"]}]));
    }

    /// Subscribes and has it granted.
    fn subscribe(&mut self, channel: &str) {
        let id = self.dialog.subscribe(&[channel.into()]);
        self.sent_one("/meta/subscribe");
        self.receive(
            json!([{"channel": "/meta/subscribe", "id": id.to_string(), "successful": true, "subscription": channel}]),
        );
        assert!(
            matches!(&self.events()[..], [Event::Replied { id: answered, outcome: Ok(()), .. }] if *answered == id)
        );
    }

    fn receive(&mut self, messages: Value) {
        self.dialog.received(&messages.to_string(), self.now).expect("Bayeux");
    }

    /// Answers the connect that was sent last with these fields.
    fn answer_connect(&mut self, id: &Value, fields: Value) {
        let mut reply = json!({"channel": "/meta/connect", "id": id});
        for (name, value) in fields.as_object().expect("fields") {
            reply[name] = value.clone();
        }
        self.receive(json!([reply]));
    }

    /// Lets time pass and wakes the dialog when it wanted, as often as it wanted.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.dialog.wake_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.dialog.wake(self.now);
        }
        self.now = end;
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.dialog.event()).collect()
    }

    /// All that was to be sent: one list of messages per text.
    fn sent(&mut self) -> Vec<(Lane, Vec<Value>)> {
        let texts = std::iter::from_fn(|| self.dialog.transmit());
        texts.map(|sent| (sent.lane, serde_json::from_str(&sent.text).expect("an array"))).collect()
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

    /// The pause of the one event, which says that the carrier is lost.
    fn lost(&mut self) -> Duration {
        match &self.events()[..] {
            [Event::Lost { reopen_in, .. }] => *reopen_in,
            other => panic!("{other:?}"),
        }
    }

    /// The channel and the words of the one event, which says that the session ended.
    fn ended(&mut self) -> (String, String) {
        match &self.events()[..] {
            [Event::Ended(Error::Refused { channel, error })] => (channel.clone(), error.clone()),
            other => panic!("{other:?}"),
        }
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("JSON")
}

const SECOND: Duration = Duration::from_secs(1);
