//! Extensions of a program: a login, acknowledgement, replay.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use encke_client::session::{ClientSession, Event, SessionOptions};
use encke_client::{Extension, Filter, LostReason, Outgoing, RawJson, ServerMessage, Transport};
use serde_json::Value;

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

    fn incoming(&mut self, message: &ServerMessage<'_>) -> Filter {
        match &*message.channel {
            "/meta/handshake" => self.batch = 0,
            "/meta/connect" => {
                let batch = message.ext.and_then(|ext| ext.member("ack")).and_then(RawJson::integer);
                self.batch = batch.map_or(self.batch, |batch| batch as u64);
            }
            _ => {}
        }
        Filter::Pass
    }
}

/// Salesforce's replay: subscriptions begin after the last event that was seen, and none is seen twice.
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

    fn incoming(&mut self, message: &ServerMessage<'_>) -> Filter {
        let event = message.data.and_then(|data| data.member("event"));
        let Some(id) = event.and_then(|event| event.member("replayId")).and_then(RawJson::integer) else {
            return Filter::Pass;
        };
        match self.0.lock().expect("whole").insert(message.channel.to_string(), id) {
            Some(last) if last >= id => Filter::Drop,
            _ => Filter::Pass,
        }
    }
}

/// Records the channels that it sees.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Extension for Recorder {
    fn incoming(&mut self, message: &ServerMessage<'_>) -> Filter {
        self.0.lock().expect("whole").push(message.channel.to_string());
        if message.channel == "/noise" { Filter::Drop } else { Filter::Pass }
    }
}

#[test]
fn extensions_are_seen_on_the_wire_and_see_what_comes() {
    let running = start(any_port());
    run(async {
        let proxy = Proxy::open(running.address(), Upgrades::Pass).await;
        let recorder = Recorder::default();
        let builder = quick(Transport::LongPolling)
            .extension(Login("secret"))
            .extension(Acknowledge::default())
            .extension(Replay::default())
            .extension(recorder.clone());
        let client = connected(proxy.address, builder).await;
        let publish = || {
            running.handle().publish("/noise", "1").expect("published");
            running.handle().publish("/news", "2").expect("published");
        };
        let mut news = client.subscribe("/news").await.expect("subscribes");
        publish();
        let mut noise = client.subscribe("/noise").await.expect("subscribes");
        publish();
        for _ in 0..2 {
            next(&mut news).await;
        }
        silent(&mut noise).await;
        let sent = proxy.recorded.lock().expect("whole").clone();
        for part in [
            r#""ext":{"ack":true,"replay":true,"token":"secret","limits":true}"#,
            r#""channel":"/meta/connect""#,
            r#""ext":{"ack":0}"#,
            r#""ext":{"replay":{"/news":-1}}"#,
        ] {
            assert!(sent.contains(part), "{part} in {sent}");
        }
        let seen = recorder.0.lock().expect("whole").clone();
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
        let client = connected(proxy.address, quick(Transport::LongPolling)).await;
        client.publish("/news", &1).await.expect("publishes");
        all_but_the_handshake_have_the_cookie(&proxy, "/news");
        // A new connection has it, too.
        proxy.cut.send(()).expect("a connection");
        let _news = client.subscribe("/news").await.expect("subscribes");
        all_but_the_handshake_have_the_cookie(&proxy, "/meta/subscribe");
    });
    end(running);
}

/// Checks the requests of a session so far, one of which has this text. How many there are depends on the time: connects
/// go on meanwhile, and the last request may not be complete.
fn all_but_the_handshake_have_the_cookie(proxy: &Proxy, text: &str) {
    let sent = proxy.recorded.lock().expect("whole").clone();
    let requests: Vec<&str> = sent.split("POST /cometd").skip(1).collect();
    assert!(requests.iter().any(|request| request.contains(text)), "{text}: {sent}");
    for (number, request) in requests.iter().enumerate() {
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        assert_eq!(body.contains("/meta/handshake"), number == 0, "the session goes on: {sent}");
        assert_eq!(head.contains("BAYEUX_BROWSER="), number > 0, "{request}");
        // A handshake asks for the limits, whatever the program wants.
        assert!(!body.replace(r#","ext":{"limits":true}"#, "").contains("\"ext\""), "{request}");
    }
}

/// The messages that the session sends.
fn sent(session: &mut ClientSession) -> Vec<Value> {
    let texts = std::iter::from_fn(|| session.transmit());
    texts.flat_map(|sent| serde_json::from_str::<Vec<Value>>(&sent.text).expect("an array")).collect()
}

#[test]
fn acknowledgement_confirms_the_last_batch_and_restarts_with_the_session() {
    let mut session = ClientSession::new(SessionOptions::default());
    session.add_extension(Box::new(Acknowledge::default()));
    let now = Instant::now();
    session.connection_opened(now);
    assert_eq!(sent(&mut session)[0]["ext"]["ack"], true);
    let shaken = r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"c","ext":{"ack":true}}]"#;
    session.received(shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut session)[0]["ext"]["ack"], 0);
    let replied =
        r#"[{"channel":"/a","data":1},{"channel":"/meta/connect","id":"2","successful":true,"ext":{"ack":7}}]"#;
    session.received(replied, now).expect("Bayeux");
    assert_eq!(sent(&mut session)[0]["ext"]["ack"], 7);
    // A break: what was not confirmed comes again.
    session.connection_lost(LostReason::Closed, now);
    session.connection_opened(now);
    assert_eq!(sent(&mut session)[0]["ext"]["ack"], 7);
    let gone = r#"[{"channel":"/meta/connect","id":"4","successful":false,"error":"402::session_unknown"}]"#;
    session.received(gone, now).expect("Bayeux");
    sent(&mut session);
    let shaken = r#"[{"channel":"/meta/handshake","id":"5","successful":true,"clientId":"d","ext":{"ack":true}}]"#;
    session.received(shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut session)[0]["ext"]["ack"], 0);
}

#[test]
fn replay_resumes_after_the_last_event_and_drops_earlier_ones() {
    let mut session = ClientSession::new(SessionOptions::default());
    session.add_extension(Box::new(Replay::default()));
    let now = Instant::now();
    session.connection_opened(now);
    session
        .received(r#"[{"channel":"/meta/handshake","id":"1","successful":true,"clientId":"c"}]"#, now)
        .expect("Bayeux");
    let id = session.subscribe(&["/topic/x".into()]);
    let subscribe = sent(&mut session).pop().expect("a subscribe");
    assert_eq!(subscribe["ext"]["replay"]["/topic/x"], -1);
    session
        .received(&format!(r#"[{{"channel":"/meta/subscribe","id":"{id}","successful":true}}]"#), now)
        .expect("Bayeux");
    for replay_id in [41, 42, 42] {
        let text = format!(r#"[{{"channel":"/topic/x","data":{{"event":{{"replayId":{replay_id}}}}}}}]"#);
        session.received(&text, now).expect("Bayeux");
    }
    let messages = std::iter::from_fn(|| session.event()).filter(|event| matches!(event, Event::Message(_)));
    assert_eq!(messages.count(), 2);
    // The server restarts: the new session begins after event 42.
    session.connection_lost(LostReason::Closed, now);
    session.connection_opened(now);
    let connect = sent(&mut session).remove(0);
    let gone = format!(
        r#"[{{"channel":"/meta/connect","id":{},"successful":false,"error":"402::session_unknown"}}]"#,
        connect["id"]
    );
    session.received(&gone, now).expect("Bayeux");
    let id = sent(&mut session).remove(0)["id"].clone();
    let shaken = format!(r#"[{{"channel":"/meta/handshake","id":{id},"successful":true,"clientId":"d"}}]"#);
    session.received(&shaken, now).expect("Bayeux");
    assert_eq!(sent(&mut session)[0]["ext"]["replay"]["/topic/x"], 42);
}
