//! The example programs, against real clients of `encke-client`.

#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/auction.rs"]
mod auction;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/axum_beside.rs"]
mod axum_beside;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/chat.rs"]
mod chat;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/echo_service.rs"]
mod echo_service;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/limits.rs"]
mod limits;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/order_service.rs"]
mod order_service;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/presence.rs"]
mod presence;
#[expect(dead_code, reason = "its main reads standard input")]
#[path = "../../examples/price_feed.rs"]
mod price_feed;
#[expect(dead_code, reason = "its main never ends")]
#[path = "../../examples/quote_server.rs"]
mod quote_server;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/remote_call.rs"]
mod remote_call;
#[expect(dead_code, reason = "its main is not called")]
#[path = "../../examples/shop.rs"]
mod shop;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use encke::{Builder, Running};
use encke_client::{Client, Error, Extension, Outgoing, ReplayFrom, Subscription, Transport};
use price_feed::{Prices, push, server};
use serde_json::{Value, json};

use crate::common::{TIMEOUT, TestServer, settings};

/// Runs clients, within the time of a test.
fn with_clients(clients: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, clients).await.expect("in time") });
}

fn any_port(server: Builder) -> TestServer {
    TestServer::of(server.listen(([127, 0, 0, 1], 0).into()))
}

async fn client(address: SocketAddr) -> Client {
    Client::connect(&format!("http://{address}")).await.expect("connects")
}

async fn next(subscription: &mut Subscription) -> Value {
    subscription.next().await.expect("open").expect("no gap").json().expect("JSON")
}

/// The data of the answer to a call, and if it was successful.
async fn ask(client: &Client, channel: &str, data: Value) -> (Value, bool) {
    match client.request(channel, &data).await {
        Ok(message) => (message.json().expect("JSON"), true),
        Err(Error::Refused(refusal)) => (serde_json::from_str(&refusal.error).expect("JSON"), false),
        Err(other) => panic!("{other}"),
    }
}

/// Puts members into the `ext` of a handshake.
struct Ext(Value);

impl Extension for Ext {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.extend(self.0.as_object().expect("an object").clone());
        }
    }
}

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
    let unknown = json!({"class": "unknown", "message": "there is no price yet"});
    for (symbol, answer) in [("GOOG", json!(19_900)), ("AAPL", unknown)] {
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

#[test]
fn the_page_about_the_chat_shows_the_program() {
    let (page, example) = (include_str!("../../../../docs/chat-in-rust.md"), include_str!("../../examples/chat.rs"));
    let (_, program) = example.split_once("\n\n").expect("docs, then the program");
    assert!(page.contains(program), "docs/chat-in-rust.md does not show examples/chat.rs");
}

#[test]
fn the_services_of_the_seeds_are_short_programs() {
    for program in [include_str!("../../examples/order_service.rs"), include_str!("../../examples/quote_server.rs")] {
        assert!(program.lines().count() <= 80, "{}", program.lines().count());
    }
}

#[test]
fn the_echo_service_answers_with_the_data() {
    let server = any_port(echo_service::server());
    with_clients(async {
        let client = client(server.address()).await;
        for data in [json!({"a": [1, null]}), json!("text"), Value::Null] {
            assert_eq!(ask(&client, "/service/echo", data.clone()).await, (data, true));
        }
    });
}

#[test]
fn the_order_service_answers_orders_and_refuses_empty_ones() {
    let server = any_port(order_service::server(Arc::<AtomicU64>::default()));
    with_clients(async {
        let client = client(server.address()).await;
        let order = |qty: u32| json!({"request": 7, "timestamp": 5, "execs": [{"symbol": "QQQ", "qty": qty}]});
        let receipt = json!({"request": 7, "timestamp": 5, "order": 1, "shares": 3});
        assert_eq!(ask(&client, "/service/order", order(3)).await, (receipt, true));
        let (refused, successful) = ask(&client, "/service/order", order(0)).await;
        assert_eq!((&refused["class"], successful), (&json!("no_shares"), false));
        assert_eq!(ask(&client, "/service/order", json!({})).await.0["class"], "no_order");
    });
}

#[test]
fn the_quote_server_pushes_quotes_of_many_symbols() {
    let server = any_port(quote_server::server());
    with_clients(async {
        let client = client(server.address()).await;
        let mut quotes = client.subscribe("/quotes/*").await.expect("subscribed");
        let mut market = quote_server::Market::new(3_000);
        for counter in 1..=50 {
            quote_server::push(&server.handle, &mut market).expect("published");
            let quote = next(&mut quotes).await;
            assert_eq!(quote["counter"], counter);
            assert!(quote["bid"].as_i64() < quote["last"].as_i64() && quote["last"].as_i64() < quote["ask"].as_i64());
        }
        let refused = client.publish("/quotes/S1", &1).await.expect_err("read only").to_string();
        assert!(refused.contains("read_only"), "{refused}");
    });
}

#[test]
fn the_auction_takes_the_highest_bid_and_shows_it_to_everybody() {
    let server = any_port(auction::server());
    let mut ann = server.websocket();
    let handshake = json!({"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["websocket"], "ext": {"user": "ann"}});
    ann.id = ann.call(handshake)["clientId"].as_str().expect("a session").into();
    ann.start_connect();
    ann.next_json();
    with_clients(async {
        let watcher = client(server.address()).await;
        let mut items = watcher.subscribe("/auction/items/*").await.expect("subscribed");
        let bid = |ws: &mut crate::common::Ws, cents: u64| {
            ws.call(json!({"id": "b", "channel": "/service/auction/bid", "data": {"item": 1, "cents": cents}}))
        };
        let taken = bid(&mut ann, 6_000);
        assert_eq!(taken["data"]["bidder"], "ann");
        assert_eq!(next(&mut items).await, json!({"name": "a telescope", "cents": 6_000, "bidder": "ann"}));
        ann.next_json();
        assert_eq!(bid(&mut ann, 6_000)["data"]["class"], "too_low");
        let (refused, _) = ask(&watcher, "/service/auction/bid", json!({"item": 1, "cents": 1})).await;
        assert_eq!(refused["class"], "anonymous");
        let refused = watcher.publish("/auction/items/1", &1).await.expect_err("by the service only").to_string();
        assert!(refused.contains("bid_by_the_service"), "{refused}");
        let (all, _) = ask(&watcher, "/service/auction/items", Value::Null).await;
        assert_eq!(all["1"]["cents"], 6_000);
    });
}

#[test]
fn the_chat_lists_members_passes_private_messages_and_filters_words() {
    let server = any_port(chat::server());
    with_clients(async {
        let (ann, bob, cid) =
            (client(server.address()).await, client(server.address()).await, client(server.address()).await);
        let mut members = ann.subscribe("/members/demo").await.expect("subscribed");
        let mut rooms = Vec::new();
        for (client, user, names) in [
            (&ann, "ann", json!(["ann"])),
            (&bob, "b<b", json!(["ann", "b&lt;b"])),
            (&cid, "cid", json!(["ann", "b&lt;b", "cid"])),
        ] {
            rooms.push(client.subscribe("/chat/demo").await.expect("subscribed"));
            client.publish("/service/members", &json!({"user": user, "room": "/chat/demo"})).await.expect("joined");
            assert_eq!(next(&mut members).await, names);
        }
        let private = json!({"room": "/chat/demo", "user": "ann", "peer": "b&lt;b", "chat": "<i>psst"});
        ann.publish("/service/privatechat", &private).await.expect("sent");
        let whisper = json!({"chat": "&lt;i&gt;psst", "user": "ann", "scope": "private"});
        assert_eq!((next(&mut rooms[0]).await, next(&mut rooms[1]).await), (whisper.clone(), whisper));
        let dang = cid.publish("/chat/demo", &json!({"user": "cid", "chat": "Dang it"})).await.expect_err("dropped");
        assert!(dang.to_string().contains("404"), "{dang}");
        cid.publish("/chat/demo", &json!({"user": "cid", "chat": "hello <all>"})).await.expect("sent");
        for room in &mut rooms {
            assert_eq!(next(room).await["chat"], "hello &lt;all&gt;", "the third received no whisper");
        }
        bob.disconnect().await.expect("left");
        assert_eq!(next(&mut members).await, json!(["ann", "cid"]));
    });
}

#[test]
fn remote_calls_may_wait_and_time_out_alone() {
    let server = any_port(remote_call::server());
    with_clients(async {
        let client = client(server.address()).await;
        let ask = |user: &'static str| ask(&client, "/service/contacts", json!({"user": user}));
        let (slow, (contacts, _)) = tokio::join!(ask("zoe"), ask("ann"));
        assert_eq!(contacts[1], json!({"name": "cid", "telephone": "555-0101"}));
        assert_eq!((&slow.0["class"], slow.1), (&json!("timeout"), false));
        assert_eq!(ask("").await.0["class"], "no_user");
    });
}

#[test]
fn presence_announces_users_and_lists_them() {
    let server = any_port(presence::server());
    let url = format!("http://{}", server.address());
    let user = |name: &str| Client::builder().extension(Ext(json!({ "user": name }))).connect(&url);
    with_clients(async {
        let (ann, bob) = (user("ann").await.expect("connects"), user("bob").await.expect("connects"));
        let mut changes = ann.subscribe("/presence/room/1").await.expect("subscribed");
        let _room = ann.subscribe("/room/1").await.expect("subscribed");
        assert_eq!(next(&mut changes).await["joined"], json!(["ann"]));
        let _room = bob.subscribe("/room/1").await.expect("subscribed");
        assert_eq!(next(&mut changes).await["joined"], json!(["bob"]));
        assert_eq!(presence::users(&server.handle, "/room/1"), [("ann".into(), 1), ("bob".into(), 1)]);
        assert_eq!(presence::users(&server.handle, "/room/2"), []);
        let refused = user("").await.expect_err("no name").to_string();
        assert!(refused.contains("401:no_user:handshake_denied"), "{refused}");
    });
}

#[test]
fn limits_follow_the_plan_of_a_client() {
    let server = any_port(limits::server());
    let url = format!("http://{}", server.address());
    let of_plan = |plan: &str| Client::builder().extension(Ext(json!({ "plan": plan }))).connect(&url);
    with_clients(async {
        for (plan, is_limited) in [("free", true), ("gold", false)] {
            let client = of_plan(plan).await.expect("connects");
            let (mut refused, mut subscriptions) = (Vec::new(), Vec::new());
            // More than the bucket of the free plan holds, and less than that of the other one.
            for number in 0..200 {
                refused.extend(client.publish("/notes", &number).await.err().map(|error| error.to_string()));
            }
            let name = "429:session_messages_per_s_max:rate_exceeded";
            assert_eq!(!refused.is_empty(), is_limited, "{plan}: {refused:?}");
            assert!(refused.iter().all(|error| error.contains(name)), "{refused:?}");
            for channel in ["/a", "/b", "/c"] {
                subscriptions.push(client.subscribe(channel).await);
            }
            assert_eq!(subscriptions.iter().any(Result::is_err), is_limited, "{plan}");
        }
    });
}

/// Subscribes over a transport, and checks that a publication of a handle arrives.
async fn is_served(address: SocketAddr, running: &Running, transport: Transport) {
    let client = Client::builder().transport(transport).connect(&format!("http://{address}")).await.expect("connects");
    let mut news = client.subscribe("/news").await.expect("subscribed");
    running.handle().publish("/news", "42").expect("published");
    assert_eq!(next(&mut news).await, 42);
    assert_eq!(ask(&client, "/service/hello", Value::Null).await, (json!("hello"), true));
    client.disconnect().await.expect("left");
}

#[test]
fn encke_in_front_of_an_axum_router_passes_other_requests_on() {
    let running = axum_beside::behind(([127, 0, 0, 1], 0).into()).expect("starts");
    with_clients(async {
        for transport in [Transport::WebSocket, Transport::LongPolling] {
            is_served(running.address(), &running, transport).await;
        }
    });
    let mut http = crate::common::Http::connect(running.address());
    assert_eq!(http.get("/").text(), "an ordinary page");
    assert_eq!(http.get("/nothing").status, 404);
    assert_eq!(http.get("/healthz").text(), "ok\n", "the server's own pages come first");
    running.handle().drain();
    running.join();
}

#[test]
fn encke_inside_an_axum_router_serves_every_transport() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (running, router) = axum_beside::inside(address).expect("starts");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { axum::serve(listener, service).await });
    with_clients(async {
        for transport in [Transport::WebSocket, Transport::LongPolling] {
            is_served(address, &running, transport).await;
        }
    });
    let mut http = crate::common::Http::connect(address);
    assert_eq!(http.get("/").text(), "an ordinary page");
    assert_eq!(http.request("POST", "/publish/a/b", &[], b"17").status, 202);
    // One call has mounted all paths of the server.
    assert_eq!(http.get("/healthz").text(), "ok\n");
    assert_eq!(http.get("/metrics").status, 403, "they need a key here");
    assert_eq!(http.get("/hold/a?timeout=0").text(), "[]");
    assert_eq!(http.get("/api/v1/openapi.json").status, 200);
    assert_eq!(http.get("/nothing").status, 404);
    assert!(running.listener().is_err(), "it has no listener");
    running.handle().drain();
    running.join();
    // Requests after the end are answered, too.
    assert_eq!(http.request("POST", "/cometd", &[], b"[]").status, 503);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn customers_of_the_shop_see_the_stock_and_their_own_orders() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    let (running, router) = shop::shop(address).expect("starts");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { axum::serve(listener, service).await });
    let mut http = crate::common::Http::connect(address);
    assert_eq!(http.request("POST", "/restock/tea/2", &[], b"").status, 202);
    with_clients(async {
        let url = format!("http://{address}");
        let of =
            |name: &str| Client::builder().replay(ReplayFrom::Earliest).extension(Ext(json!({ "customer": name })));
        let (ann, bob) = (of("ann").connect(&url).await.expect("ann"), of("bob").connect(&url).await.expect("bob"));
        let mut stock = ann.subscribe("/stock/*").await.expect("subscribes");
        assert_eq!(next(&mut stock).await, 2);
        for left in [1, 0] {
            let order = json!({"item": "tea", "left": left});
            assert_eq!(ask(&bob, "/service/buy", json!("tea")).await, (order, true));
            assert_eq!(next(&mut stock).await, left);
        }
        let (failure, is_sold) = ask(&bob, "/service/buy", json!("tea")).await;
        assert_eq!((&failure["class"], is_sold), (&json!("sold_out"), false));
        assert!(ann.subscribe("/orders/bob").await.is_err() && ann.publish("/stock/tea", &9).await.is_err());
        let mut orders = bob.subscribe("/orders/bob").await.expect("subscribes");
        assert_eq!(next(&mut orders).await["left"], 1, "an order from before");
    });
    let orders: Value = serde_json::from_str(&http.get("/orders/bob").text()).expect("JSON");
    assert_eq!(orders, json!([{"item": "tea", "left": 1}, {"item": "tea", "left": 0}]));
    assert_eq!(http.get("/orders/ann").status, 404);
    running.handle().drain();
    running.join();
    runtime.shutdown_timeout(Duration::from_secs(1));
}

#[test]
fn the_shop_is_a_short_program() {
    assert!(include_str!("../../examples/shop.rs").lines().count() <= 150);
}
