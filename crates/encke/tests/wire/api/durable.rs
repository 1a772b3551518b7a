//! Histories: positions, reading, removing, also over a restart.

use std::io::Read;

use encke::{ChannelRule, HistoryCommit, Settings};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{Api, serve};
use crate::common::{Folder, settings};

fn with_history(settings: Settings) -> Settings {
    let rule = ChannelRule { pattern: "/h/**".into(), history_messages: 100, ..ChannelRule::default() };
    Settings { channels: vec![rule], ..settings }
}

fn texts(history: &Value) -> Vec<Value> {
    let messages = history["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["message"]["data"].clone()).collect()
}

#[test]
fn publications_on_channels_with_a_history_are_answered_with_their_positions() {
    let server = serve(with_history(Settings { shards: 3, ..settings() }));
    let mut api = Api::of(&server);
    let first = api.post("/publish", &json!({"channel": "/h/a", "data": 1}));
    let position = &first["positions"][0];
    assert_eq!((&first["published"], &position["channel"]), (&json!(1), &json!("/h/a")));
    let offset = position["offset"].as_u64().expect("an offset");
    let messages = json!({"messages": [
        {"channels": ["/h/a", "/h/b", "/plain"], "data": 2},
        {"channels": ["/h/a"], "data": 3},
        {"channels": ["/h/c"], "data": 4},
    ]});
    let batch = api.post("/publish/batch", &messages);
    assert_eq!(batch["published"], 5);
    let positions = batch["positions"].as_array().expect("positions");
    let channels: Vec<_> = positions.iter().map(|position| position["channel"].as_str().expect("a name")).collect();
    assert_eq!(channels, ["/h/a", "/h/b", "/h/c"]);
    assert_eq!((&positions[0]["offset"], &positions[0]["epoch"]), (&json!(offset + 2), &position["epoch"]));

    let all = api.get("/history?channel=/h/a");
    assert_eq!(
        (texts(&all), &all["complete"], &all["next"]),
        (vec![json!(1), json!(2), json!(3)], &json!(true), &json!(offset + 3))
    );
    assert_eq!(all["messages"][0]["message"], json!({"channel": "/h/a", "data": 1}));
    assert!(all["messages"][0]["time_ms"].as_u64() > Some(1_700_000_000_000));
    let later = api.get(&format!("/history?channel=/h/a&after={offset}&limit=1"));
    assert_eq!((texts(&later), &later["messages"][0]["offset"]), (vec![json!(2)], &json!(offset + 1)));
    assert_eq!(texts(&api.get(&format!("/history?channel=/h/a&after={}", offset + 9))), [Value::Null; 0]);
    assert_eq!(api.problem("GET", "/history?channel=/plain", "")["status"], 404);
}

#[test]
fn a_page_of_a_channel_that_compresses_is_gzip_for_clients_that_take_it() {
    let rule = |pattern: &str, compress| ChannelRule {
        pattern: pattern.into(),
        history_messages: 100,
        compress,
        ..ChannelRule::default()
    };
    let server = serve(Settings { channels: vec![rule("/packed/*", true), rule("/plain/*", false)], ..settings() });
    let mut api = Api::of(&server);
    let data = "a text that comes again ".repeat(20);
    let messages: Vec<_> = (0..100).map(|_| json!({"channels": ["/packed/a", "/plain/a"], "data": data})).collect();
    api.post("/publish/batch", &json!({ "messages": messages }));
    let mut page = |channel: &str, accepted: &str, limit: usize| {
        let path = format!("/history?channel={channel}&limit={limit}");
        let response = api.request("GET", &path, &[("accept-encoding", accepted)], "");
        let coding = response.header("content-encoding").map(str::to_owned);
        let mut text = Vec::new();
        match coding {
            Some(_) => GzDecoder::new(&response.body[..]).read_to_end(&mut text).map(|_| ()).expect("gzip"),
            None => text.extend_from_slice(&response.body),
        }
        let history: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(texts(&history), vec![json!(data); limit]);
        (coding, response.header("vary").map(str::to_owned))
    };
    let varies = || Some("accept-encoding".to_owned());
    for limit in [1, 100] {
        assert_eq!(page("/packed/a", "br, gzip", limit), (Some("gzip".into()), varies()));
        assert_eq!(page("/packed/a", "gzip;q=0", limit), (None, varies()));
        assert_eq!(page("/plain/a", "gzip", limit), (None, None));
    }
}

#[test]
fn a_position_that_is_no_longer_retained_is_reported() {
    let server = serve(with_history(settings()));
    let mut api = Api::of(&server);
    let first = api.post("/publish", &json!({"channel": "/h/a", "data": 0}));
    let offset = first["positions"][0]["offset"].as_u64().expect("an offset");
    let messages: Vec<_> = (1..=150).map(|number| json!({"channels": ["/h/a"], "data": number})).collect();
    api.post("/publish/batch", &json!({ "messages": messages }));
    let history = api.get(&format!("/history?channel=/h/a&after={offset}&limit=1000"));
    assert_eq!((&history["complete"], &history["oldest"]), (&json!(false), &json!(offset + 51)));
    assert_eq!(texts(&history), (51..=150).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn many_requests_at_once_get_different_positions() {
    let server = serve(with_history(Settings { shards: 2, ..settings() }));
    let mut offsets: Vec<u64> = std::thread::scope(|scope| {
        let publish = |_| {
            let mut api = Api::of(&server);
            scope.spawn(move || {
                let offset = |answer: Value| answer["positions"][0]["offset"].as_u64().expect("an offset");
                let one = || json!({"channel": "/h/a", "data": 1});
                (0..40).map(|_| offset(api.post("/publish", &one()))).collect::<Vec<_>>()
            })
        };
        let clients: Vec<_> = (0..4).map(publish).collect();
        clients.into_iter().flat_map(|client| client.join().expect("published")).collect()
    });
    offsets.sort_unstable();
    assert!(offsets.windows(2).all(|pair| pair[0] + 1 == pair[1]) && offsets.len() == 160, "{offsets:?}");
}

#[test]
fn a_removed_history_is_empty_and_goes_on_at_its_offsets() {
    let server = serve(with_history(Settings { shards: 2, ..settings() }));
    let mut api = Api::of(&server);
    let messages: Vec<_> = (0..5).map(|number| json!({"channels": ["/h/a"], "data": number})).collect();
    let batch = api.post("/publish/batch", &json!({ "messages": messages }));
    let last = batch["positions"][0]["offset"].as_u64().expect("an offset");
    assert_eq!(api.delete("/history?channel=/h/a"), json!({"removed": 5}));
    assert_eq!(api.delete("/history?channel=/h/a"), json!({"removed": 0}));
    let empty = api.get(&format!("/history?channel=/h/a&after={}", last - 1));
    assert_eq!((texts(&empty), &empty["complete"], &empty["next"]), (vec![], &json!(false), &json!(last + 1)));
    let next = api.post("/publish", &json!({"channel": "/h/a", "data": "next"}));
    assert_eq!(next["positions"][0]["offset"], last + 1);
    assert_eq!(api.problem("DELETE", "/history?channel=/h/never", "")["status"], 404);
    assert_eq!(server.metric("encke_history_messages"), 1);
}

#[test]
fn what_was_published_and_removed_is_so_after_a_restart() {
    let folder = Folder::new();
    let settings = || {
        with_history(Settings { data: folder.name(), history_commit: HistoryCommit::Always, shards: 2, ..settings() })
    };
    let server = serve(settings());
    let mut api = Api::of(&server);
    for channel in ["/h/a", "/h/b"] {
        for number in 0..5 {
            api.post("/publish", &json!({"channel": channel, "data": number}));
        }
    }
    assert_eq!(api.get("/info")["durable"], true);
    assert_eq!(api.delete("/history?channel=/h/a"), json!({"removed": 5}));
    let last = api.post("/publish", &json!({"channel": "/h/a", "data": "later"}));
    drop(api);
    server.stop();
    let server = serve(settings());
    let mut api = Api::of(&server);
    let history = api.get("/history?channel=/h/a");
    assert_eq!(
        (texts(&history), &history["messages"][0]["offset"]),
        (vec![json!("later")], &last["positions"][0]["offset"])
    );
    assert_eq!(texts(&api.get("/history?channel=/h/b")).len(), 5);
}

#[test]
fn a_repeated_request_gets_the_positions_of_the_first() {
    let server = serve(with_history(settings()));
    let mut api = Api::of(&server);
    let body = json!({"channel": "/h/a", "data": 1, "idempotency_key": "k"});
    let first = api.post("/publish", &body);
    assert_eq!(api.post("/publish", &body), first);
    assert_eq!(texts(&api.get("/history?channel=/h/a")).len(), 1);
}
