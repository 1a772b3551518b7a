//! Attributes of sessions: set and read by services, handles and the HTTP API, over a restart.

use std::sync::Arc;

use encke::{
    Actions, ApiKey, ApiKeys, AttributeChange, AttributeChangeError, AttributeError, Call, Data, Scope, Server,
    SessionEvent, Settings,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::common::{Folder, Poller, Response, TestServer, settings, wait, wait_until};
use crate::restarts::moved;

const KEY: &str = "test-key-0123456789";
const READER: &str = "reader-key-0123456789";

/// Adds an item to the cart of the session that calls, and answers with all of it.
async fn add(call: Call, Data(item): Data<String>) -> (Data<Vec<String>>, Actions) {
    let known = call.caller().attribute_json::<Vec<String>>("cart").expect("a cart");
    let mut cart = known.unwrap_or_default();
    cart.push(item);
    let mut actions = Actions::default();
    actions.set_attribute(call.session(), "cart", &json!(cart).to_string());
    (Data(cart), actions)
}

/// A server whose sessions have carts, and the carts of those that have ended.
fn serve(settings: Settings) -> (TestServer, Arc<Mutex<Vec<String>>>) {
    let ended = Arc::<Mutex<Vec<String>>>::default();
    let carts = ended.clone();
    let note = move |event: &SessionEvent<'_>, _: &mut Actions| {
        if let SessionEvent::Ended { caller, .. } = event {
            carts.lock().push(caller.attribute("cart").unwrap_or_default().into());
        }
    };
    let server = Server::builder().settings(settings).service("/service/cart", add).on_session(note);
    let server = TestServer::of(server);
    let key = |name: &str, key: &str, scopes: &[Scope]| ApiKey {
        name: name.into(),
        key: key.into(),
        scopes: scopes.to_vec(),
        ..ApiKey::default()
    };
    let keys = [key("all", KEY, &Scope::ALL), key("reader", READER, &[Scope::Read])];
    server.handle.set_api_keys(ApiKeys::new(&keys).expect("valid keys"));
    (server, ended)
}

fn api(server: &TestServer, key: &str, method: &str, session: &str, query: &str, body: &Value) -> Response {
    let target = format!("/api/v1/sessions/{session}/attributes{query}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("x-api-key", key), ("content-type", "application/json")];
    let headers = if body.is_empty() { &headers[..1] } else { &headers };
    server.http().request(method, &target, headers, body.as_bytes())
}

fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body).expect("JSON")
}

/// Calls the service of a session with an item. Returns what is in the cart then.
fn cart_with(server: &TestServer, poller: &mut Poller, item: &str) -> Value {
    assert_eq!(poller.call(json!({"id": "1", "channel": "/service/cart", "data": item}))["successful"], true);
    let own = wait(server.handle.session_attributes(&poller.id)).expect("it lives");
    serde_json::from_str(own.get("cart").expect("a cart")).expect("JSON")
}

#[test]
fn a_service_fills_the_cart_of_its_session_which_survives_a_restart_and_ends_with_it() {
    let folder = Folder::new();
    let keeping = Settings { data: folder.name(), shards: 3, ..settings() };
    let (server, ended) = serve(keeping.clone());
    let mut poller = server.poller();
    let mut other = server.poller();
    assert_eq!(cart_with(&server, &mut poller, "tea"), json!(["tea"]));
    assert_eq!(cart_with(&server, &mut other, "milk"), json!(["milk"]), "another session has its own");
    assert_eq!(cart_with(&server, &mut poller, "cups"), json!(["tea", "cups"]));
    server.stop();
    assert_eq!(*ended.lock(), [""; 0], "a session that is saved has not ended");

    let (server, ended) = serve(keeping);
    let mut poller = moved(&poller, &server);
    assert_eq!(cart_with(&server, &mut poller, "pot"), json!(["tea", "cups", "pot"]));
    let own = wait(server.handle.session_attributes(&poller.id)).expect("it lives");
    assert_eq!((own.get("cart"), own.version()), (Some(r#"["tea","cups","pot"]"#), 3));
    poller.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    wait_until("the end", || ended.lock().len() == 1);
    assert_eq!(*ended.lock(), [r#"["tea","cups","pot"]"#]);
    assert!(wait(server.handle.session_attributes(&poller.id)).is_none());
}

#[test]
fn an_authorizer_decides_by_an_attribute_that_a_handle_sets() {
    let may = |access: &encke::Access<'_>| match access.caller().attribute("room") {
        Some("7") => encke::Grant::Grant,
        _ => encke::Grant::deny("not_in_the_room"),
    };
    let server =
        TestServer::of(Server::builder().settings(Settings { shards: 2, ..settings() }).authorize("/room/7", may));
    let mut ws = server.session();
    let subscribe = json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/room/7"});
    assert_eq!(ws.call(subscribe.clone())["successful"], false);
    assert_eq!(wait(server.handle.set_session_attribute_json(&ws.id, "room", &7)), Ok(1));
    assert_eq!(ws.call(subscribe)["successful"], true);
}

#[test]
fn a_change_that_expects_another_version_is_refused_and_mistakes_are_named() {
    let (server, _) = serve(settings());
    let ws = server.session();
    let handle = &server.handle;
    let change = |change: AttributeChange| wait(handle.change_session_attribute(&ws.id, change));
    assert_eq!(change(AttributeChange::set("a", "1").if_version(0)), Ok(1));
    assert_eq!(change(AttributeChange::set("a", "2").if_version(0)), Err(AttributeChangeError::Conflict(1)));
    assert_eq!(change(AttributeChange::remove("a").if_version(1)), Ok(2));
    let wrong = |error| Err(AttributeChangeError::Attribute(error));
    assert_eq!(change(AttributeChange::set("a", "{")), wrong(AttributeError::Value));
    assert_eq!(change(AttributeChange::set("", "1")), wrong(AttributeError::Name));
    let unknown = wait(handle.set_session_attribute("unknown", "a", "1"));
    assert_eq!(unknown, Err(AttributeChangeError::SessionUnknown));
}

#[test]
fn session_attributes_max_bounds_one_session_and_replacing_or_removing_one_makes_room() {
    let (server, _) = serve(Settings { session_attributes_max: 2, ..settings() });
    let (one, other) = (server.session(), server.session());
    let set = |session: &str, name: &str| wait(server.handle.set_session_attribute(session, name, "1"));
    assert_eq!((set(&one.id, "a"), set(&one.id, "b")), (Ok(1), Ok(2)));
    assert_eq!(set(&one.id, "c"), Err(AttributeChangeError::Full));
    assert_eq!((set(&one.id, "b"), set(&other.id, "c")), (Ok(3), Ok(1)));
    assert_eq!(server.metric("encke_session_attributes_refused"), 1);
    assert_eq!(wait(server.handle.remove_session_attribute(&one.id, "a")), Ok(4));
    assert_eq!(set(&one.id, "c"), Ok(5));
}

#[test]
fn session_attributes_bytes_max_bounds_names_and_values_of_one_session() {
    let (server, _) = serve(Settings { session_attributes_bytes_max: 100, ..settings() });
    let ws = server.session();
    let set = |name: &str, bytes: usize| {
        let value = format!("\"{}\"", "x".repeat(bytes - 2));
        wait(server.handle.set_session_attribute(&ws.id, name, &value))
    };
    assert_eq!(set("a", 100), Err(AttributeChangeError::Full), "with its name it has 101 bytes");
    assert_eq!(set("a", 59), Ok(1));
    assert_eq!(set("bb", 39), Err(AttributeChangeError::Full));
    assert_eq!((set("bb", 38), set("a", 20), set("bb", 70)), (Ok(2), Ok(3), Ok(4)));
    assert_eq!(server.metric("encke_session_attributes_refused"), 1, "the first one did not reach a session");
}

#[test]
fn the_api_sets_reads_and_removes_attributes() {
    let (server, _) = serve(Settings { shards: 2, ..settings() });
    let ws = server.session();
    let call = |key: &str, method: &str, query: &str, body: Value| api(&server, key, method, &ws.id, query, &body);
    let read = || json_of(&call(READER, "GET", "", json!(null)));
    assert_eq!(read(), json!({"version": 0, "attributes": {}}));
    let set = json!({"name": "cart", "value": {"items": ["tea"], "total": 12.50}});
    assert_eq!(call(READER, "POST", "", set.clone()).status, 403, "its key may only read");
    assert_eq!(json_of(&call(KEY, "POST", "", set)), json!({"version": 1}));
    assert_eq!(
        json_of(&call(KEY, "POST", "", json!({"name": "seat", "value": null, "version": 1}))),
        json!({"version": 2})
    );
    assert_eq!(read(), json!({"version": 2, "attributes": {"cart": {"items": ["tea"], "total": 12.5}, "seat": null}}));

    let late = call(KEY, "POST", "", json!({"name": "cart", "value": 1, "version": 1}));
    assert_eq!((late.status, &json_of(&late)["type"]), (409, &json!("urn:encke:problem:changed")), "{}", late.text());
    assert_eq!(json_of(&call(KEY, "DELETE", "?name=cart&version=2", json!(null))), json!({"version": 3}));
    assert_eq!(call(KEY, "DELETE", "?name=cart&version=2", json!(null)).status, 409);
    assert_eq!(read(), json!({"version": 3, "attributes": {"seat": null}}));

    for (body, pointer) in [
        (json!({"name": "", "value": 1}), "#/name"),
        (json!({"name": "a\u{7}", "value": 1}), "#/name"),
        (json!({"name": "x".repeat(256), "value": 1}), "#/name"),
        (json!({"name": "a", "value": 1, "version": -1}), "#/version"),
    ] {
        let problem = call(KEY, "POST", "", body.clone());
        assert_eq!((problem.status, &json_of(&problem)["errors"][0]["pointer"]), (400, &json!(pointer)), "{body}");
    }
    assert_eq!(call(KEY, "DELETE", "", json!(null)).status, 400, "the name is missing");
    let large = json!({"name": "a", "value": "x".repeat(20_000)});
    assert_eq!(call(KEY, "POST", "", large).status, 409);
    for (method, query, body) in
        [("GET", "", json!(null)), ("DELETE", "?name=a", json!(null)), ("POST", "", json!({"name": "a", "value": 1}))]
    {
        assert_eq!(api(&server, KEY, method, "unknown", query, &body).status, 404, "{method}");
    }
}
