//! `GET /history/CHANNEL` and `/service/history/read`: pages of a history for clients.

use encke::Settings;
use serde_json::{Value, json};

use crate::common::{TestServer, settings};
use crate::hold::doors;
use crate::replay::client::{OPEN, publish, stored, wait_stored, with};

/// A page of `/h/a`, read by a request.
fn page(server: &TestServer, query: &str) -> Value {
    let response = server.http().get(&format!("/history/h/a{query}"));
    assert_eq!((response.status, response.header("cache-control")), (200, Some("no-store")), "{response:?}");
    serde_json::from_slice(&response.body).expect("JSON")
}

fn data(page: &Value) -> Vec<u64> {
    let messages = page["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["data"].as_u64().expect("a number")).collect()
}

#[test]
fn a_history_is_read_in_pages_in_both_directions() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..with(stored(100)) });
        assert_eq!(
            page(&server, ""),
            json!({"channel": "/h/a", "messages": [], "recovered": true, "earlier": false, "later": false, "latest": null})
        );
        (0..25).for_each(|number| publish(&server, "/h/a", number));
        wait_stored(&server, 25);
        let mut back = Vec::new();
        let mut query = "?limit=10".to_owned();
        loop {
            let page = page(&server, &query);
            back.splice(0..0, data(&page));
            assert_eq!(page["recovered"], true);
            if page["earlier"] == false {
                break;
            }
            query = format!("?limit=10&before={}", page["messages"][0]["position"].as_str().expect("a position"));
        }
        assert_eq!(back, (0..25).collect::<Vec<_>>());
        let first = page(&server, "?limit=1000")["messages"][0]["position"].as_str().expect("a position").to_owned();
        let (mut forth, mut after) = (vec![0], first);
        loop {
            let page = page(&server, &format!("?limit=7&after={after}"));
            forth.extend(data(&page));
            if page["later"] == false {
                assert_eq!(
                    page["latest"],
                    page["messages"].as_array().expect("messages").last().expect("one")["position"]
                );
                break;
            }
            after = page["messages"][6]["position"].as_str().expect("a position").into();
        }
        assert_eq!(forth, (0..25).collect::<Vec<_>>());
    }
}

#[test]
fn a_page_after_messages_that_are_gone_says_so() {
    let server = TestServer::start(with(stored(5)));
    publish(&server, "/h/a", 0);
    wait_stored(&server, 1);
    let first = page(&server, "")["latest"].as_str().expect("a position").to_owned();
    (1..10).for_each(|number| publish(&server, "/h/a", number));
    server.wait_for("encke_publications", 10);
    let page = page(&server, &format!("?after={first}"));
    assert_eq!((data(&page), &page["recovered"]), ((5..10).collect(), &json!(false)));
}

#[test]
fn a_session_reads_a_history_by_the_service() {
    for open in OPEN {
        let server = TestServer::start(with(stored(100)));
        (0..5).for_each(|number| publish(&server, "/h/a", number));
        wait_stored(&server, 5);
        let mut client = open(&server);
        let mut calls = 0;
        let mut read = |data: Value| {
            calls += 1;
            let id = format!("r{calls}");
            let reply = client.call(json!({"id": id, "channel": "/service/history/read", "data": data}));
            if reply["successful"] == false || reply.get("data").is_some() {
                return reply;
            }
            loop {
                let is_answer = |message: &Value| message["id"] == id && message.get("data").is_some();
                if let Some(answer) = client.next().into_iter().find(is_answer) {
                    return answer;
                }
            }
        };
        let latest = read(json!({"channel": "/h/a", "limit": 2}));
        assert_eq!((latest["successful"].clone(), data(&latest["data"])), (json!(true), vec![3, 4]));
        let before = &latest["data"]["messages"][0]["position"];
        assert_eq!(data(&read(json!({"channel": "/h/a", "before": before}))["data"]), [0, 1, 2]);
        assert_eq!(read(json!({"channel": "/h/a", "after": "x"}))["error"], "400::replay_invalid");
        assert_eq!(read(json!({"channel": "/h/*"}))["error"], "403:denied_by_security_policy:subscribe_denied");
        assert_eq!(read(json!({}))["successful"], false);
        assert_eq!(server.metric("encke_subscriptions"), 0, "it is no subscription");
    }
}

#[test]
fn a_history_is_read_with_the_rights_of_a_subscriber() {
    let server = TestServer::of(doors());
    for (user, channel, status) in [
        (None, "/own/a/x", 401),
        (Some("a"), "/own/a/x", 200),
        (Some("a"), "/own/b/x", 403),
        (Some("narrow"), "/own/narrow/a", 200),
        (Some("narrow"), "/own/narrow/b", 403),
    ] {
        let headers: Vec<_> = user.map(|user| ("x-user", user)).into_iter().collect();
        let response = server.http().request("GET", &format!("/history{channel}"), &headers, b"");
        assert_eq!(response.status, status, "{user:?} {channel}");
    }
}

#[test]
fn requests_that_read_no_history_are_refused() {
    let server = TestServer::start(with(stored(5)));
    for (target, status) in [
        ("/history/h/*", 400),
        ("/history/meta/connect", 400),
        ("/history/h/a?after=7", 400),
        ("/history/h/a?before=", 400),
        ("/history/h/a?limit=x", 400),
        ("/history/h/a?limit=99999", 200),
        ("/history", 404),
    ] {
        assert_eq!(server.http().get(target).status, status, "{target}");
    }
    let off = TestServer::start(Settings { history_path: String::new(), ..settings() });
    assert_eq!(off.http().get("/history/h/a").status, 404);
}
