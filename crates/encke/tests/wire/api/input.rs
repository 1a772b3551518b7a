//! Bad input: each gets its status as problem details, and nothing is published.

use encke::Settings;
use serde_json::{Value, json};

use super::{Api, KEY, problem, serve};
use crate::common::settings;

/// A valid body of each operation that has one.
fn bodies() -> Vec<(&'static str, Value)> {
    vec![
        ("/publish", json!({"channel": "/a", "data": 1})),
        ("/publish/batch", json!({"messages": [{"channels": ["/a"], "data": 1}]})),
        ("/deliver", json!({"session": "x", "channel": "/a", "data": 1})),
        ("/disconnect", json!({"session": "x"})),
        ("/subscribe", json!({"session": "x", "channel": "/a"})),
        ("/unsubscribe", json!({"session": "x", "channel": "/a"})),
        ("/revoke", json!({"token_id": "x"})),
    ]
}

#[test]
fn every_field_that_is_missing_unknown_or_of_another_type_gets_400() {
    let server = serve(settings());
    let mut neighbour = server.neighbour();
    let mut api = Api::of(&server);
    let mut refuse = |path: &str, body: &Value| {
        let problem = api.problem("POST", path, &body.to_string());
        assert_eq!(problem["status"], 400, "{path} {body}");
        assert!(problem["errors"][0]["pointer"].is_string(), "{path} {body}: {problem}");
    };
    for (path, body) in bodies() {
        for other in [json!([]), json!([body]), json!(1), json!("text"), json!(null), json!(true), json!({})] {
            refuse(path, &other);
        }
        let mut with_more = body.clone();
        with_more["clientId"] = json!("x");
        refuse(path, &with_more);
        for field in body.as_object().expect("an object").keys() {
            let mut without = body.clone();
            without.as_object_mut().expect("an object").remove(field);
            refuse(path, &without);
            for other in [json!(null), json!(1), json!(true), json!({"a": 1}), json!([[1]]), json!("")] {
                // Data may be anything, and an empty id is one that no session has.
                if field != "data" && !(field == "session" && other == json!("")) {
                    let mut changed = body.clone();
                    changed[field] = other;
                    refuse(path, &changed);
                }
            }
        }
    }
    for message in [
        json!({"channels": [], "data": 1}),
        json!({"channels": ["/a"]}),
        json!({"channels": "/a", "data": 1}),
        json!({"channels": ["/a", null], "data": 1}),
        json!({"channels": ["/a"], "channel": "/a", "data": 1}),
        json!(null),
    ] {
        refuse("/publish/batch", &json!({"messages": [{"channels": ["/ok"], "data": 0}, message]}));
    }
    refuse("/publish/batch", &json!({"messages": []}));
    refuse("/deliver", &json!({"session": "x", "user": "y", "channel": "/a", "data": 1}));
    assert_eq!(server.metric("encke_publications"), 0);
    neighbour.lives(&server);
}

#[test]
fn channels_that_nobody_may_publish_on_get_400() {
    let server = serve(settings());
    let mut api = Api::of(&server);
    let long = format!("/{}", "x".repeat(256));
    let deep = "/x".repeat(17);
    for channel in
        ["a", "/", "//", "/a/", "/a/*", "/**", "/meta/connect", "/service/x", "/\u{e9}", "/a\u{0}", &long, &deep]
    {
        for (path, body) in [
            ("/publish", json!({"channel": channel, "data": 1})),
            ("/publish/batch", json!({"messages": [{"channels": [channel], "data": 1}]})),
        ] {
            let problem = api.problem("POST", path, &body.to_string());
            assert_eq!(problem["status"], 400, "{channel:?}");
            let pointer = problem["errors"][0]["pointer"].as_str().expect("a pointer");
            assert!(pointer.starts_with("#/channel") || pointer == "#/messages/0/channels/0", "{pointer}");
        }
    }
    assert_eq!(server.metric("encke_publications"), 0);
}

#[test]
fn bodies_that_are_not_json_get_400() {
    let server = serve(settings());
    let mut api = Api::of(&server);
    for (path, valid) in bodies() {
        let valid = valid.to_string();
        for body in ["{", "[", "nul", "{]", "\u{feff}{}", &valid[1..], &format!("{valid}x"), &format!("{valid}{valid}")]
        {
            assert_eq!(api.problem("POST", path, body)["type"], "urn:encke:problem:not-json", "{path} {body}");
        }
    }
    let headers = [("x-api-key", KEY), ("content-type", "application/json")];
    let latin = api.0.request("POST", "/api/v1/publish", &headers, b"{\"channel\":\"/a\",\"data\":\"\xe4\"}");
    assert_eq!(problem(&latin)["status"], 400);
    assert_eq!(problem(&api.0.request("POST", "/api/v1/publish", &headers, b""))["detail"], "the body is empty");
    let deep = format!(r#"{{"channel":"/a","data":{}1{}}}"#, "[".repeat(65), "]".repeat(65));
    assert_eq!(api.problem("POST", "/publish", &deep)["errors"][0]["pointer"], "#/data");
    let abyss = format!(r#"{{"channel":"/a","data":{}"#, "[".repeat(100_000));
    assert_eq!(api.problem("POST", "/publish", &abyss)["status"], 400);
}

#[test]
fn other_media_types_get_415() {
    let server = serve(settings());
    let body = r#"{"channel":"/a","data":1}"#;
    let status = |headers: &[(&str, &str)]| {
        let mut all = vec![("x-api-key", KEY)];
        all.extend_from_slice(headers);
        let response = server.http().request("POST", "/api/v1/publish", &all, body.as_bytes());
        if response.status != 200 {
            problem(&response);
        }
        response.status
    };
    for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=\"UTF-8\""] {
        assert_eq!(status(&[("content-type", kind)]), 200, "{kind}");
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "", "application/jsonx"]
    {
        assert_eq!(status(&[("content-type", kind)]), 415, "{kind}");
    }
    assert_eq!(status(&[]), 415);
    assert_eq!(status(&[("content-type", "application/json"), ("content-encoding", "gzip")]), 415);
}

#[test]
fn a_body_of_100_mb_gets_413_before_it_is_read() {
    let server = serve(settings());
    let mut neighbour = server.neighbour();
    let head = |fields: &str| {
        let address = server.address();
        format!(
            "POST /api/v1/publish HTTP/1.1\r\nhost: {address}\r\nx-api-key: {KEY}\r\ncontent-type: application/json\r\n{fields}\r\n\r\n"
        )
    };
    let mut tcp = server.tcp();
    tcp.send(head("content-length: 104857600"));
    let response = tcp.response().expect("a response");
    assert_eq!((response.status, response.header("connection")), (413, Some("close")));
    assert_eq!(problem(&response)["type"], "urn:encke:problem:too-large");
    // Without a length it is cut off while it is read: the response comes long before the end.
    let mut tcp = server.tcp();
    tcp.send(head("transfer-encoding: chunked"));
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
    let _cut = (0..1_600).try_for_each(|_| tcp.try_send(&chunk));
    assert_eq!(tcp.response().map(|response| response.status), Some(413));
    // Without a key no byte is read.
    let mut tcp = server.tcp();
    tcp.send(format!(
        "POST /api/v1/publish HTTP/1.1\r\nhost: {}\r\ncontent-length: 104857600\r\n\r\n",
        server.address()
    ));
    let response = tcp.response().expect("a response");
    assert_eq!((response.status, response.header("connection")), (401, Some("close")));
    neighbour.lives(&server);
}

#[test]
fn a_batch_of_too_many_publications_gets_400() {
    let server = serve(Settings { batch_messages_max: 10, ..settings() });
    let mut api = Api::of(&server);
    let batch = |channels: usize| {
        let names: Vec<String> = (0..channels).map(|number| format!("/a/{number}")).collect();
        json!({"messages": [{"channels": names, "data": 1}, {"channels": ["/b"], "data": 1}]})
    };
    assert_eq!(api.post("/publish/batch", &batch(9))["published"], 10);
    let problem = api.problem("POST", "/publish/batch", &batch(10).to_string());
    assert_eq!((&problem["status"], &problem["errors"][0]["pointer"]), (&json!(400), &json!("#/messages")));
}

#[test]
fn other_methods_get_405_and_other_paths_404() {
    let server = serve(settings());
    let mut api = Api::of(&server);
    for (path, allow) in [
        ("/publish", "POST"),
        ("/publish/batch", "POST"),
        ("/sessions", "GET, HEAD"),
        ("/sessions/x", "GET, HEAD"),
        ("/history?channel=/a", "GET, HEAD, DELETE"),
        ("/openapi.json", "GET, HEAD"),
    ] {
        for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "BREW"] {
            let response = api.request(method, path, &[], "");
            assert_eq!((response.status, response.header("allow")), (405, Some(allow)), "{method} {path}");
            problem(&response);
        }
    }
    for path in ["", "/", "/publish/", "/publish2", "/sessions/", "/sessions/a/b", "/../publish", "/openapi.yaml"] {
        assert_eq!(api.problem("GET", path, "")["status"], 404, "{path}");
    }
    // Neighbours of the API are pages.
    assert_eq!(api.0.get("/api/v10").header("content-type"), Some("text/plain; charset=utf-8"));
}

#[test]
fn queries_that_are_not_as_described_get_400() {
    let server = serve(settings());
    let mut api = Api::of(&server);
    for (path, parameter) in [
        ("/sessions?limit=0", "limit"),
        ("/sessions?limit=1001", "limit"),
        ("/sessions?limit=-1", "limit"),
        ("/sessions?limit=ten", "limit"),
        ("/sessions?limit=1&limit=2", "limit"),
        ("/sessions?cursor=x", "cursor"),
        ("/sessions?cursor=1.0", "cursor"),
        ("/sessions?cursor=99999999999999999999.0", "cursor"),
        ("/sessions?cursor=0.-1", "cursor"),
        ("/sessions?cluster=maybe", "cluster"),
        ("/channels?cluster=", "cluster"),
        ("/sessions?other=1", "other"),
        ("/channels?pattern=a", "pattern"),
        ("/channels?pattern=/a/*/b", "pattern"),
        ("/history", "channel"),
        ("/history?channel=/a/*", "channel"),
        ("/history?channel=/meta/x", "channel"),
        ("/history?channel=/a&after=-1", "after"),
        ("/history?channel=/a&after=9007199254740992", "after"),
        ("/info?x=1", "x"),
    ] {
        let problem = api.problem("GET", path, "");
        assert_eq!(
            (&problem["status"], &problem["errors"][0]["parameter"]),
            (&json!(400), &json!(parameter)),
            "{path}"
        );
    }
    assert_eq!(api.problem("GET", "/sessions?cursor=%ff", "")["status"], 400);
    assert_eq!(api.get("/sessions?cursor=0.18446744073709551615")["sessions"], json!([]));
    assert_eq!(api.get("/sessions?cluster=false"), api.get("/sessions?cluster=true"), "it is no cluster");
    assert_eq!(api.problem("DELETE", "/history?channel=a", "")["status"], 400);
    assert_eq!(problem(&api.request("GET", "/info", &[], "{}"))["status"], 400, "a body where there is none");
}
