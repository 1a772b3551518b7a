//! The backends of `examples/webhooks` and `tests/webhooks` behind a server. `scripts/webhooks.sh` runs these tests, each with the command
//! of its backend in `BACKEND`: `cargo test` alone has not all of the languages.

use std::future::Future;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use encke::{ApiKey, ApiKeys, ChannelRule, Running, Scope, Server, Settings};
use encke_client::{Client, Error, Extension, Outgoing, Subscription};
use encke_webhooks::{EventKind, WebhookSettings, Webhooks};
use serde_json::{Value, json};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW_SECRET: &str = "whsec_BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB";
const API_KEY: &str = "test-key-0123456789";

/// A backend in another process, ended on drop.
struct Backend {
    process: Child,
    address: SocketAddr,
    /// The address of its server.
    server: SocketAddr,
}

/// A server with one webhook.
struct World {
    running: Option<Running>,
    webhooks: Option<Webhooks>,
    url: String,
}

struct Name(Option<&'static str>);

impl Extension for Name {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if let Some(name) = self.0.filter(|_| message.channel == "/meta/handshake") {
            message.ext.insert("name".into(), name.into());
        }
    }
}

impl Backend {
    /// Runs the command in `BACKEND` with this secret, and waits until it listens.
    async fn start(secret: &str) -> Backend {
        let command = std::env::var("BACKEND").expect("the command of the backend");
        let (address, server) = free_addresses();
        let mut words = command.split(' ');
        let process = Command::new(words.next().expect("a program"))
            .args(words)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .env("PORT", address.port().to_string())
            .env("WEBHOOK_SECRET", secret)
            .env("ENCKE_URL", format!("http://{server}"))
            .env("ENCKE_API_KEY", API_KEY)
            .spawn()
            .expect("the backend starts");
        let backend = Backend { process, address, server };
        soon(async {
            while TcpStream::connect(address).is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        backend
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

impl World {
    fn start(backend: &Backend, secret: &str, events: &[EventKind], channels: &[&str]) -> World {
        let webhook = WebhookSettings {
            url: format!("http://{}/", backend.address).into(),
            events: events.to_vec(),
            channels: channels.iter().map(ToString::to_string).collect(),
            secret: secret.into(),
            ..WebhookSettings::default()
        };
        let webhooks = Webhooks::start(&[webhook]).expect("webhooks that work");
        let history =
            |pattern: &str| ChannelRule { pattern: pattern.into(), history_messages: 100, ..ChannelRule::default() };
        let channels = vec![history("/trades"), history("/orders/*")];
        let settings =
            Settings { listen: backend.server, shards: 2, drain_timeout_ms: 0, channels, ..Settings::default() };
        let scopes = vec![Scope::Publish, Scope::Read];
        let key = ApiKey { name: "orders".into(), key: API_KEY.into(), scopes, ..ApiKey::default() };
        let server = Server::builder().settings(settings).api_keys(ApiKeys::new(&[key]).expect("a key"));
        let running = webhooks.in_front_of(server).start().expect("a server");
        webhooks.serve(&running.handle());
        let url = format!("http://{}", running.address());
        World { running: Some(running), webhooks: Some(webhooks), url }
    }

    async fn client(&self, name: Option<&'static str>) -> Result<Client, Error> {
        soon(Client::builder().extension(Name(name)).connect(&self.url)).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle().drain();
            running.join();
        }
        drop(self.webhooks.take());
    }
}

/// Two addresses that nobody uses. The system gives ports below 32768 to nobody who asks for any.
fn free_addresses() -> (SocketAddr, SocketAddr) {
    let ports = (0..100).map(|_| fastrand::u16(20_000..30_000));
    let mut free = ports.filter_map(|port| TcpListener::bind(("127.0.0.1", port)).ok());
    let [one, other] = [free.next(), free.next()].map(|free| free.expect("a free port"));
    (one.local_addr().expect("an address"), other.local_addr().expect("an address"))
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
}

async fn next(messages: &mut Subscription) -> Value {
    soon(messages.next()).await.expect("a message").expect("no gap").json().expect("JSON")
}

fn error<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("refused").to_string()
}

#[tokio::test]
async fn a_backend_names_users_protects_channels_changes_messages_and_answers() {
    let backend = Backend::start(SECRET).await;
    let world = World::start(&backend, SECRET, EventKind::ALL, &["/**"]);
    let refused = error(world.client(None).await);
    assert!(refused.contains("401:name_required:handshake_denied"), "{refused}");
    let ann = world.client(Some("ann")).await.expect("a session");
    for denied in ["/private/bob", "/private/*", "/**"] {
        let denied = error(ann.subscribe(denied).await);
        assert!(denied.contains("403:not_yours:subscribe_denied"), "{denied}");
    }
    ann.subscribe("/private/ann").await.expect("her own");
    let mut public = ann.subscribe("/public/**").await.expect("everyone's");
    ann.publish("/public/a", &json!({ "text": "hi" })).await.expect("allowed");
    assert_eq!(next(&mut public).await, json!({ "text": "hi", "by": "ann" }));
    let reply = soon(ann.request("/service/greet", &json!({}))).await.expect("a reply");
    assert_eq!(reply.json::<Value>().expect("JSON"), json!({ "hello": "ann" }));
    assert_eq!(next(&mut public).await, json!({ "user": "ann" }));
    soon(ann.disconnect()).await.expect("a disconnect");
}

#[tokio::test]
async fn the_chat_lists_members_delivers_private_messages_and_filters() {
    let backend = Backend::start(SECRET).await;
    let events = [EventKind::Publish, EventKind::Service, EventKind::Ended];
    let world = World::start(&backend, SECRET, &events, &["/chat/**", "/service/members", "/service/privatechat"]);
    let ann = world.client(None).await.expect("a session");
    let bob = world.client(None).await.expect("a session");
    let mut members = ann.subscribe("/members/demo").await.expect("allowed");
    let mut at_ann = ann.subscribe("/chat/demo").await.expect("allowed");
    let mut at_bob = bob.subscribe("/chat/demo").await.expect("allowed");

    ann.publish("/service/members", &json!({ "user": "ann", "room": "/chat/demo" })).await.expect("accepted");
    assert_eq!(next(&mut members).await, json!(["ann"]));
    bob.publish("/service/members", &json!({ "user": "bob", "room": "/chat/demo" })).await.expect("accepted");
    assert_eq!(next(&mut members).await, json!(["ann", "bob"]));

    ann.publish("/chat/demo", &json!({ "user": "ann", "chat": "<b>hi</b>" })).await.expect("allowed");
    let shown = json!({ "user": "ann", "chat": "&lt;b&gt;hi&lt;/b&gt;" });
    assert_eq!((next(&mut at_ann).await, next(&mut at_bob).await), (shown.clone(), shown));
    let dropped = error(ann.publish("/chat/demo", &json!({ "user": "ann", "chat": "dang it" })).await);
    assert!(dropped.contains("404::message_deleted"), "{dropped}");

    let private = json!({ "room": "/chat/demo", "user": "ann", "peer": "bob", "chat": "psst" });
    ann.publish("/service/privatechat", &private).await.expect("accepted");
    let shown = json!({ "user": "ann", "chat": "psst", "scope": "private" });
    assert_eq!((next(&mut at_ann).await, next(&mut at_bob).await), (shown.clone(), shown));

    soon(bob.disconnect()).await.expect("a disconnect");
    assert_eq!(next(&mut members).await, json!(["ann"]));
}

#[tokio::test]
async fn an_order_service_takes_orders_by_webhooks_and_publishes_by_the_api() {
    let backend = Backend::start(SECRET).await;
    let world = World::start(&backend, SECRET, EventKind::ALL, &["/**"]);
    let refused = error(world.client(None).await);
    assert!(refused.contains("401:name_required:handshake_denied"), "{refused}");
    let ann = world.client(Some("ann")).await.expect("a session");
    let bob = world.client(Some("bob")).await.expect("a session");
    let denied = error(bob.subscribe("/orders/ann").await);
    assert!(denied.contains("403:not_yours:subscribe_denied"), "{denied}");
    let denied = error(bob.publish("/trades", &json!({ "item": "tea", "count": 1 })).await);
    assert!(denied.contains("403:only_the_service_publishes:publish_denied"), "{denied}");

    let mut trades = bob.subscribe("/trades").await.expect("everyone's");
    let mut orders = ann.subscribe("/orders/ann").await.expect("her own");
    let call = async |client: &Client, service: &str, data: Value| {
        soon(client.request(service, &data)).await.map(|reply| reply.json::<Value>().expect("JSON"))
    };
    assert_eq!(call(&ann, "/service/orders", json!({})).await.expect("a reply"), json!([]));
    let wanted = [json!({ "item": "\"tea\" ä ☃ \u{1f388}\n", "count": 2 }), json!({ "item": "milk", "count": 1 })];
    for order in &wanted {
        let reply = call(&ann, "/service/buy", order.clone()).await.expect("a reply");
        assert!(reply["order"].is_u64(), "{reply}");
        assert_eq!((next(&mut trades).await, next(&mut orders).await), (order.clone(), order.clone()));
    }
    call(&ann, "/service/buy", json!({ "item": "tea", "count": "many" })).await.expect_err("no number");
    assert_eq!(call(&ann, "/service/orders", json!({})).await.expect("a reply"), json!(wanted));
    assert_eq!(call(&bob, "/service/orders", json!({})).await.expect("a reply"), json!([]));

    drop((ann, bob, world));
    let world = World::start(&backend, NEW_SECRET, &[EventKind::Publish], &["/**"]);
    let ann = world.client(Some("ann")).await.expect("a session");
    let denied = error(ann.publish("/trades", &1).await);
    assert!(!denied.contains("only_the_service"), "it answered a request with another signature");
}

#[tokio::test]
async fn the_official_library_accepts_signatures_and_no_others() {
    for (secret, is_signed) in [
        (SECRET.to_string(), true),
        (format!("{NEW_SECRET} {SECRET}"), true),
        (format!("{SECRET} {NEW_SECRET}"), true),
        (NEW_SECRET.to_string(), false),
    ] {
        let backend = Backend::start(SECRET).await;
        let world = World::start(&backend, &secret, &[EventKind::Publish], &["/**"]);
        let client = world.client(None).await.expect("a session");
        let published = soon(client.publish("/a", &json!({ "text": "ä ☃ 🎈" }))).await;
        assert_eq!(published.is_ok(), is_signed, "{secret}: {published:?}");
    }
}

#[test]
fn the_page_about_the_chat_shows_the_program() {
    let page = include_str!("../../../docs/chat-as-a-webhook.md");
    assert!(page.contains(include_str!("../../../examples/webhooks/node/chat.mjs")), "it does not show chat.mjs");
}
