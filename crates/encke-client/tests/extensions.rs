//! What can be built on the hooks: a login, acknowledgement, replay.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use encke_client::dialog::{Dialog, DialogOptions, Event};
use encke_client::{Client, Extension, Incoming, Outgoing, Transport, Value, Verdict};

use common::*;

/// A token in the handshake.
struct Login(&'static str);

impl Extension for Login {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("token".into(), Value::from(self.0));
        }
    }
}

/// CometD's acknowledgement: batches are counted and confirmed with the next connect.
#[derive(Default)]
struct Acknowledge {
    batch: u64,
}

impl Extension for Acknowledge {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        match message.channel {
            "/meta/handshake" => message.ext.insert("ack".into(), Value::from(true)),
            "/meta/connect" => message.ext.insert("ack".into(), Value::from(self.batch)),
            _ => None,
        };
    }

    fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
        match &*message.channel {
            "/meta/handshake" => self.batch = 0,
            "/meta/connect" => {
                self.batch = message.ext_field("ack").and_then(|batch| batch.as_u64()).unwrap_or(self.batch);
            }
            _ => {}
        }
        Verdict::Keep
    }
}

/// Salesforce's replay: subscriptions begin behind the last event that was seen, and none is seen twice.
#[derive(Clone, Default)]
struct Replay(Arc<Mutex<BTreeMap<String, i64>>>);

impl Extension for Replay {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        let seen = self.0.lock().expect("whole");
        let position = |channel: &String| (channel.clone(), Value::from(seen.get(channel).copied().unwrap_or(-1)));
        match message.channel {
            "/meta/handshake" => message.ext.insert("replay".into(), Value::from(true)),
            "/meta/subscribe" => {
                message.ext.insert("replay".into(), message.subscription.iter().map(position).collect())
            }
            _ => None,
        };
    }

    fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
        let data: Option<Value> = message.data.and_then(|data| serde_json::from_str(data.get()).ok());
        let Some(id) = data.and_then(|data| data["event"]["replayId"].as_i64()) else { return Verdict::Keep };
        match self.0.lock().expect("whole").insert(message.channel.to_string(), id) {
            Some(last) if last >= id => Verdict::Drop,
            _ => Verdict::Keep,
        }
    }
}

/// Counts what it sees.
#[derive(Clone, Default)]
struct Ears(Arc<Mutex<Vec<String>>>);

impl Extension for Ears {
    fn incoming(&mut self, message: &Incoming<'_>) -> Verdict {
        self.0.lock().expect("whole").push(message.channel.to_string());
        if message.channel == "/noise" { Verdict::Drop } else { Verdict::Keep }
    }
}

#[test]
fn extensions_are_seen_on_the_wire_and_see_what_comes() {
    let running = start(any_port());
    run(async {
        let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
        let ears = Ears::default();
        let extensions: Vec<Box<dyn Extension>> = vec![
            Box::new(Login("secret")),
            Box::new(Acknowledge::default()),
            Box::new(Replay::default()),
            Box::new(ears.clone()),
        ];
        let (url, options) = (url(proxy.address), quick(Transport::LongPolling));
        let mut client = Client::connect_extended(&url, options, extensions).await.expect("connects");
        for channel in ["/news", "/noise"] {
            client.subscribe(channel).await.expect("subscribes");
            running.handle().publish("/noise", "1").expect("published");
            running.handle().publish("/news", "2").expect("published");
        }
        for _ in 0..2 {
            assert_eq!(client.next().await.expect("receives").channel, "/news", "noise is dropped");
        }
        let heard = proxy.heard.lock().expect("whole").clone();
        for part in [
            r#""ext":{"ack":true,"replay":true,"token":"secret"}"#,
            r#""channel":"/meta/connect""#,
            r#""ext":{"ack":0}"#,
            r#""ext":{"replay":{"/news":-1}}"#,
        ] {
            assert!(heard.contains(part), "{part} in {heard}");
        }
        let seen = ears.0.lock().expect("whole").clone();
        for channel in ["/meta/handshake", "/meta/subscribe", "/noise", "/news"] {
            assert!(seen.iter().any(|seen| seen == channel), "{channel} in {seen:?}");
        }
    });
    end(running);
}

#[test]
fn without_extensions_there_is_no_ext_and_cookies_go_back() {
    let running = start(any_port());
    run(async {
        let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
        let mut client = connected(proxy.address, quick(Transport::LongPolling)).await;
        client.publish("/news", &json("1")).await.expect("publishes");
        let heard = proxy.heard.lock().expect("whole").clone();
        assert!(!heard.contains("ext"), "{heard}");
        assert_eq!(heard.matches("BAYEUX_BROWSER=").count(), 2, "with all but the handshake: {heard}");
        // A new connection has them, too.
        proxy.cut.send(()).expect("a connection");
        client.subscribe("/news").await.expect("subscribes");
        let heard = proxy.heard.lock().expect("whole").clone();
        let requests = heard.matches("POST /cometd").count();
        assert_eq!(heard.matches("BAYEUX_BROWSER=").count(), requests - 1, "{heard}");
        assert_eq!(heard.matches("/meta/handshake").count(), 1, "so the session goes on: {heard}");
    });
    end(running);
}

/// Takes what the dialog says as JSON.
fn sent(dialog: &mut Dialog) -> Vec<Value> {
    let texts = std::iter::from_fn(|| dialog.transmit());
    texts.flat_map(|sent| serde_json::from_str::<Vec<Value>>(&sent.text).expect("an array")).collect()
}

#[test]
fn acknowledgement_confirms_the_last_batch_and_begins_anew_with_the_session() {
    let mut dialog = Dialog::new(DialogOptions::default());
    dialog.extend(Box::new(Acknowledge::default()));
    let now = Instant::now();
    dialog.carrier_opened(now);
    assert_eq!(sent(&mut dialog)[0]["ext"]["ack"], true);
    let shaken = r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"c","ext":{"ack":true}}]"#;
    dialog.received(shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut dialog)[0]["ext"]["ack"], 0);
    let replied =
        r#"[{"channel":"/a","data":1},{"channel":"/meta/connect","id":"2","successful":true,"ext":{"ack":7}}]"#;
    dialog.received(replied, now).expect("Bayeux");
    assert_eq!(sent(&mut dialog)[0]["ext"]["ack"], 7);
    // A break: what was not confirmed comes again.
    dialog.carrier_lost("cut", now);
    dialog.carrier_opened(now);
    assert_eq!(sent(&mut dialog)[0]["ext"]["ack"], 7);
    let gone = r#"[{"channel":"/meta/connect","id":"4","successful":false,"error":"402::session_unknown"}]"#;
    dialog.received(gone, now).expect("Bayeux");
    sent(&mut dialog);
    let shaken = r#"[{"channel":"/meta/handshake","id":"5","successful":true,"clientId":"d","ext":{"ack":true}}]"#;
    dialog.received(shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut dialog)[0]["ext"]["ack"], 0);
}

#[test]
fn replay_goes_on_behind_the_last_event_and_drops_what_was_seen() {
    let mut dialog = Dialog::new(DialogOptions::default());
    dialog.extend(Box::new(Replay::default()));
    let now = Instant::now();
    dialog.carrier_opened(now);
    dialog
        .received(r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"c"}]"#, now)
        .expect("Bayeux");
    let id = dialog.subscribe(&["/topic/x".into()]);
    let subscribe = sent(&mut dialog).pop().expect("a subscribe");
    assert_eq!(subscribe["ext"]["replay"]["/topic/x"], -1);
    dialog
        .received(&format!(r#"[{{"channel":"/meta/subscribe","id":"{id}","successful":true}}]"#), now)
        .expect("Bayeux");
    for replay_id in [41, 42, 42] {
        let text = format!(r#"[{{"channel":"/topic/x","data":{{"event":{{"replayId":{replay_id}}}}}}}]"#);
        dialog.received(&text, now).expect("Bayeux");
    }
    let messages = std::iter::from_fn(|| dialog.event()).filter(|event| matches!(event, Event::Message(_)));
    assert_eq!(messages.count(), 2);
    // The server restarts: the new session begins behind event 42.
    dialog.carrier_lost("cut", now);
    dialog.carrier_opened(now);
    let connect = sent(&mut dialog).remove(0);
    let gone = format!(
        r#"[{{"channel":"/meta/connect","id":{},"successful":false,"error":"402::session_unknown"}}]"#,
        connect["id"]
    );
    dialog.received(&gone, now).expect("Bayeux");
    let id = sent(&mut dialog).remove(0)["id"].clone();
    let shaken = format!(r#"[{{"channel":"/meta/handshake","id":{id},"successful":true,"clientId":"d"}}]"#);
    dialog.received(&shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut dialog)[0]["ext"]["replay"]["/topic/x"], 42);
}
