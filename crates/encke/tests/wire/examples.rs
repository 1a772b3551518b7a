//! The program that the README shows.

#[expect(dead_code, reason = "its main reads standard input")]
#[path = "../../examples/price_feed.rs"]
mod price_feed;

use price_feed::{Prices, push, server};
use serde_json::json;

use crate::common::{TestServer, settings};

#[test]
fn the_price_feed_admits_clients_with_its_token_and_pushes_prices() {
    let prices = Prices::default();
    let server = TestServer::of(server(&prices).settings(settings()));
    let mut ws = server.websocket();
    let handshake = |token: &str| {
        json!({
            "channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["websocket"],
            "ext": {"token": token},
        })
    };
    assert_eq!(ws.call(handshake("guess"))["error"], "403:wrong_token:handshake_denied");
    ws.id = ws.call(handshake("open sesame"))["clientId"].as_str().expect("a session").into();
    ws.start_connect();
    ws.next_json();
    ws.subscribe("/stock/*");
    push(&server.handle, &prices, "GOOG 19900").expect("published");
    assert_eq!(ws.next_json(), json!([{"channel": "/stock/GOOG", "data": 19_900}]));
    push(&server.handle, &prices, "GOOG").expect_err("no price");
    let refused = ws.call(json!({"channel": "/stock/GOOG", "data": 1}));
    assert_eq!(refused["error"], "403:read_only:publish_denied");
    for (symbol, answer) in
        [("GOOG", json!(19_900)), ("AAPL", json!({"class": "unknown", "message": "there is no price yet"}))]
    {
        let reply = ws.call(json!({"channel": "/service/latest", "id": symbol, "data": symbol}));
        assert_eq!(reply["data"], answer);
        assert_eq!(ws.next_json()[0]["successful"], true, "the call itself");
    }
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../../examples/price_feed.rs"));
    let (_, program) = example.split_once("\n\n").expect("docs, then the program");
    assert!(readme.contains(program), "README.md does not show examples/price_feed.rs");
    assert!(example.lines().count() < 60, "it is a short program");
}
