//! Sessions, channels, the server itself, and the document.

use std::collections::{BTreeMap, BTreeSet};

use encke::{ApiOperation, Scope, Settings};
use serde_json::{Value, json};

use super::{Api, KEY, keys, serve};
use crate::common::{Ws, settings};

/// All items of a listing, page by page.
fn all(api: &mut Api, path: &str, list: &str, limit: usize) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let and = if path.contains('?') { '&' } else { '?' };
        let cursor_part = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = api.get(&format!("{path}{and}limit={limit}{cursor_part}"));
        let found = page[list].as_array().expect("a list");
        assert!(found.len() <= limit);
        items.extend(found.iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return items,
        }
    }
}

/// The name of a session in lists.
fn name_of(api: &mut Api, ws: &Ws) -> Value {
    api.get(&format!("/sessions/{}", ws.id))["id"].clone()
}

#[test]
fn a_name_of_a_list_stands_for_its_session_but_opens_it_for_nobody() {
    let server = serve(Settings { shards: 3, ..settings() });
    let (mut ws, mut thief) = (server.session(), server.session());
    let mut api = Api::of(&server);
    let name = name_of(&mut api, &ws);
    assert_eq!(api.post("/subscribe", &json!({"session": name, "channel": "/a"})), json!({"sessions": 1}));
    api.post("/publish", &json!({"channel": "/a", "data": 1}));
    assert_eq!(ws.next_json()[0]["data"], 1);
    api.post("/deliver", &json!({"session": name, "channel": "/b", "data": 2}));
    assert_eq!(ws.next_json()[0]["data"], 2);
    thief.send_json(&json!([{"id": "1", "channel": "/a", "clientId": name, "data": 3}]));
    let refused = thief.next_json()[0]["error"].as_str().expect("an error").to_owned();
    assert!(refused.starts_with("402:"), "{refused}");
    assert_eq!(api.post("/unsubscribe", &json!({"session": name, "channel": "/a"})), json!({"sessions": 1}));
    assert_eq!(api.post("/disconnect", &json!({"session": name})), json!({"sessions": 1}));
    assert_eq!(ws.next_json()[0]["channel"], "/meta/disconnect");
    assert_eq!(api.problem("POST", "/disconnect", &json!({"session": name}).to_string())["status"], 404);
}

#[test]
fn every_session_is_on_one_page() {
    let server = serve(Settings { shards: 3, ..settings() });
    let mut sessions: Vec<Ws> = (0..20).map(|_| server.session()).collect();
    sessions[3].subscribe("/a");
    let mut api = Api::of(&server);
    for limit in [1, 7, 1_000] {
        let found = all(&mut api, "/sessions", "sessions", limit);
        let ids: BTreeSet<_> = found.iter().map(|session| session["id"].as_str().expect("an id")).collect();
        assert_eq!((found.len(), ids.len()), (20, 20), "limit {limit}");
        assert!(sessions.iter().all(|session| !ids.contains(&*session.id)), "lists show no client id");
    }
    let found = all(&mut api, "/sessions", "sessions", 1_000);
    let subscribed: Vec<_> = found.iter().filter(|session| session["subscriptions"] == 1).collect();
    assert_eq!((subscribed.len(), &subscribed[0]["id"]), (1, &name_of(&mut api, &sessions[3])));
}

#[test]
fn one_session_is_shown_with_its_channels() {
    let server = serve(Settings { shards: 2, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a/b");
    ws.subscribe("/c/**");
    let mut api = Api::of(&server);
    let session = api.get(&format!("/sessions/{}", ws.id));
    let name = session["id"].clone();
    let expected = json!({"id": name, "connected": true, "subscriptions": 2, "waiting_messages": 0,
        "waiting_bytes": 0, "channels": ["/a/b", "/c/**"]});
    assert_eq!(session, expected);
    assert_eq!(api.get(&format!("/sessions/{}", name.as_str().expect("a name"))), expected, "by its name");
    assert!(!session.to_string().contains(&ws.id));
    for unknown in ["x", &"0".repeat(32), "%2e%2e"] {
        assert_eq!(api.problem("GET", &format!("/sessions/{unknown}"), "")["status"], 404, "{unknown}");
    }
}

#[test]
fn channels_have_the_subscribers_of_all_shards_and_are_on_one_page() {
    let server = serve(Settings { shards: 3, ..settings() });
    let mut sessions: Vec<Ws> = (0..9).map(|_| server.session()).collect();
    let mut expected = BTreeMap::new();
    for (index, ws) in sessions.iter_mut().enumerate() {
        for channel in ["/all", &format!("/some/{}", index % 4), &format!("/one/{index}"), "/some/**"] {
            ws.subscribe(channel);
            *expected.entry(channel.to_owned()).or_insert(0) += 1;
        }
    }
    let mut api = Api::of(&server);
    let counts = |channels: &[Value]| -> BTreeMap<String, u64> {
        let count = |channel: &Value| Some((channel["channel"].as_str()?.to_owned(), channel["subscribers"].as_u64()?));
        channels.iter().filter_map(count).collect()
    };
    for limit in [1, 4, 1_000] {
        let found = all(&mut api, "/channels", "channels", limit);
        assert_eq!((found.len(), counts(&found)), (expected.len(), expected.clone()), "limit {limit}");
    }
    let some = all(&mut api, "/channels?pattern=/some/*", "channels", 2);
    let names: BTreeSet<_> = some.iter().filter_map(|channel| channel["channel"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["/some/0", "/some/1", "/some/2", "/some/3"]));
    assert_eq!(api.get("/channels?pattern=/all")["channels"], json!([{"channel": "/all", "subscribers": 9}]));
    assert_eq!(api.get("/channels?pattern=/none"), json!({"channels": []}));
}

#[test]
fn info_describes_the_server() {
    let server = serve(Settings { shards: 2, ..settings() });
    let _ws = server.session();
    let info = Api::of(&server).get("/info");
    assert_eq!((&info["name"], &info["shards"], &info["sessions"]), (&json!("encke"), &json!(2), &json!(1)));
    assert_eq!((&info["draining"], &info["durable"]), (&json!(false), &json!(false)));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert!(info["uptime_ms"].is_u64() && info["connections"].as_u64() >= Some(2), "{info}");
}

#[test]
fn a_server_without_a_store_of_sessions_says_so() {
    let server = serve(settings());
    for (method, path) in [("GET", ""), ("POST", "/scavenge"), ("POST", "/purge")] {
        let path = format!("/api/v1/session-store{path}");
        let response = server.http().request(method, &path, &[("x-api-key", KEY)], b"");
        assert_eq!(response.status, 404, "{path}");
        let problem: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("session_record_ttl_ms")), "{problem}");
    }
}

#[test]
fn the_document_needs_no_key_and_describes_every_path() {
    let server = crate::common::TestServer::start(settings());
    let response = server.http().get("/api/v1/openapi.json");
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    let document: Value = serde_json::from_slice(&response.body).expect("JSON");
    assert_eq!(document["openapi"], "3.1.0");
    let mut http = server.http();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{id}", "x");
        for method in methods.as_object().expect("methods").keys() {
            // There are no keys: every operation asks for one.
            let response = http.again().request(&method.to_uppercase(), &path, &[], b"");
            assert_eq!(response.status, 401, "{method} {path}");
        }
        assert_eq!(http.request("PUT", &path, &[], b"").status, 405, "{path}");
    }
}

/// The answer of an operation that a test adds.
#[derive(serde::Serialize, schemars::JsonSchema)]
struct Till {
    /// The orders of today.
    orders: u64,
}

#[test]
fn a_program_adds_an_operation_with_its_scope_and_its_part_of_the_document() {
    const READER: &str = "reader-key-0123456789";
    let server = serve(settings());
    server.handle.set_api_keys(keys(&[("all", KEY, &Scope::ALL), ("reader", READER, &[Scope::Read])]));
    let operation = || ApiOperation::get("getTill", "/shop/till", Scope::Manage, || Till { orders: 7 });
    let before: Value = serde_json::from_slice(&server.http().get("/api/v1/openapi.json").body).expect("JSON");
    assert!(before["paths"]["/api/v1/shop/till"].is_null());
    server.handle.add_operation(operation().summary("Show the till").description("The orders of today."));
    assert_eq!(Api::of(&server).get("/shop/till"), json!({"orders": 7}));
    let mut http = server.http();
    assert_eq!(http.get("/api/v1/shop/till").status, 401, "without a key");
    assert_eq!(http.again().request("POST", "/api/v1/shop/till", &[], b"").status, 405);
    let reader = ("x-api-key", READER);
    assert_eq!(http.again().request("GET", "/api/v1/shop/till", &[reader], b"").status, 403, "without the scope");
    let document: Value = serde_json::from_slice(&server.http().get("/api/v1/openapi.json").body).expect("JSON");
    let described = &document["paths"]["/api/v1/shop/till"]["get"];
    assert_eq!((&described["operationId"], &described["summary"]), (&json!("getTill"), &json!("Show the till")));
    assert_eq!(described["description"], "The orders of today. Needs the scope `manage`.");
    assert_eq!(document["components"]["schemas"]["Till"]["properties"]["orders"]["type"], "integer");
}

/// The value of a future of a handle.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn a_handle_lists_the_same_sessions_and_channels() {
    let server = serve(Settings { shards: 2, ..settings() });
    let mut sessions: Vec<Ws> = (0..5).map(|_| server.session()).collect();
    sessions.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let handle = &server.handle;
    let (mut ids, mut cursor) = (BTreeSet::new(), None::<String>);
    loop {
        let page = wait(handle.list_sessions(cursor.as_deref(), 2)).expect("a page");
        ids.extend(page.items.iter().map(|session| session.id.as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, sessions.iter().map(|ws| ws.id.clone()).collect());
    let channels = wait(handle.list_channels(Some("/*"), None, 10)).expect("a page").items;
    assert_eq!((channels.len(), &*channels[0].name, channels[0].subscribers), (1, "/a", 5));
    assert!(
        wait(handle.list_sessions(Some("x"), 1)).is_none() && wait(handle.list_channels(Some("a"), None, 1)).is_none()
    );
}
