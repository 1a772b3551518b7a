//! Replies to publications that publishers decline.

use encke::Server;
use serde_json::{Value, json};

use crate::common::{TestServer, settings};

#[test]
fn a_publisher_that_declines_replies_gets_only_those_of_refused_messages() {
    let server = TestServer::of(Server::builder().settings(settings()).service("/service/x", async || ()));
    let mut reader = server.session();
    reader.subscribe("/a");
    let quiet =
        |id: &str, channel: &str| json!({"id": id, "channel": channel, "data": id, "ext": {"x": 1, "reply": false}});
    let batch = |client: &str| {
        let messages = [
            quiet("1", "/a"),
            quiet("2", "/service/x"),
            quiet("3", "a"),
            json!({"id": "4", "channel": "/a", "data": 4, "ext": {"reply": true}}),
            json!({"id": "5", "channel": "/meta/unsubscribe", "subscription": "/b", "ext": {"reply": false}}),
        ];
        let own = |mut message: Value| {
            message["clientId"] = json!(client);
            message
        };
        json!(messages.map(own))
    };
    let ids = |replies: &[Value]| replies.iter().map(|reply| reply["id"].clone()).collect::<Vec<_>>();
    let mut poller = server.poller();
    let replies = poller.http.post(&batch(&poller.id)).messages();
    assert_eq!(ids(&replies), ["3", "4", "5"]);
    assert_eq!(replies[0]["successful"], false);
    let mut ws = server.session();
    ws.send_json(&batch(&ws.id));
    assert_eq!(ids(ws.next_json().as_array().expect("replies")), ["3", "4", "5"]);
    for _ in 0..2 {
        let expected = json!([{"channel": "/a", "data": "1", "ext": {"x": 1}}]);
        assert_eq!(reader.next_json(), expected, "the member is for the server alone");
        assert_eq!(reader.next_json(), json!([{"channel": "/a", "data": 4, "ext": {"reply": true}}]));
    }
    // Only such messages: an empty response, or no frame.
    let mut alone = quiet("6", "/a");
    alone["clientId"] = json!(poller.id);
    assert_eq!(poller.http.post(&json!([alone])).text(), "[]");
    ws.send_json(&json!([ws.mine(quiet("7", "/a"))]));
    assert_eq!(ws.call(json!({"id": "8", "channel": "/a", "data": 8}))["id"], "8");
}
