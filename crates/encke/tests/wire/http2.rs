//! HTTP/2: what differs from HTTP/1.1 for requests and WebSockets. Everything else runs over HTTP/2 by the gateway of `common::http2`.

mod limits;
mod preface;
mod refused;
mod together;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use encke::{
    ChannelRule, Fallback, FallbackResponse, RequestBody, RequestClient, ResponseBody, Settings, SlowConsumer, TakeOver,
};
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use websocket::{Decoder, Event, Flow, Opcode, Role};

use crate::common::http2::{END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, connect, field, frame};
use crate::common::tls::scheme;
use crate::common::{TIMEOUT, TestServer};

const NO_ERROR: Option<u32> = Some(0);

/// The clients have no cookies.
fn settings() -> Settings {
    Settings { trust_client_session: true, ..crate::common::settings() }
}

/// Runs a client of HTTP/2.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, test).await.expect("the test ends in time") });
}

/// One connection of a client.
#[derive(Clone)]
struct Client(SendRequest<Bytes>);

impl Client {
    async fn open(server: &TestServer) -> Client {
        let stream = connect(server.address()).await.expect("a connection");
        let (sender, connection) = h2::client::handshake(stream).await.expect("a server of HTTP/2");
        tokio::spawn(async move { _ = connection.await });
        let client = Client(sender);
        // The settings of the server have arrived.
        assert_eq!(client.get("/healthz").await.status(), 200);
        client
    }

    async fn send(
        &self,
        request: Request<()>,
        body: &[u8],
    ) -> Result<(Response<RecvStream>, SendStream<Bytes>), h2::Error> {
        let mut sender = self.0.clone().ready().await?;
        let is_over = body.is_empty() && *request.method() != Method::CONNECT;
        let (response, mut stream) = sender.send_request(request, is_over)?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), true)?;
        }
        Ok((response.await?, stream))
    }

    async fn get(&self, target: &str) -> Response<RecvStream> {
        self.send(request("GET", target, &[]), b"").await.expect("a response").0
    }

    async fn post(&self, messages: &Value) -> Vec<Value> {
        let request = request("POST", "/cometd", &[]);
        let (response, _) = self.send(request, messages.to_string().as_bytes()).await.expect("a response");
        serde_json::from_slice(&whole(response.into_body()).await).expect("messages")
    }

    /// Opens a session for long-polling and connects once. Returns its id.
    async fn handshake(&self) -> String {
        let types = json!(["long-polling", "websocket"]);
        let message = json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": types}]);
        let id = self.post(&message).await[0]["clientId"].as_str().expect("an id").to_owned();
        let reply = self.post(&json!([{"channel": "/meta/subscribe", "clientId": id, "subscription": "/a"}])).await;
        assert_eq!(reply[0]["successful"], true);
        assert_eq!(self.post(&connect_of(&id, 0)).await[0]["successful"], true);
        id
    }

    async fn websocket(&self) -> Ws {
        let (response, send) = self.send(websocket_request(&[]), b"").await.expect("a response");
        assert_eq!(response.status(), 200);
        let decoder = Decoder::new(Role::Client, 1 << 20);
        Ws { send, receive: response.into_body(), decoder, texts: Vec::new() }
    }
}

/// A WebSocket on a stream.
struct Ws {
    send: SendStream<Bytes>,
    receive: RecvStream,
    decoder: Decoder,
    texts: Vec<Value>,
}

impl Ws {
    fn send(&mut self, message: &Value) {
        let bytes = crate::common::frame(Opcode::Text, message.to_string().as_bytes());
        self.send.send_data(bytes.into(), false).expect("an open stream");
    }

    async fn next(&mut self) -> Value {
        while self.texts.is_empty() {
            let bytes = self.receive.data().await.expect("more").expect("no error");
            self.receive.flow_control().release_capacity(bytes.len()).expect("an open stream");
            let texts = &mut self.texts;
            let fed = self.decoder.feed(&mut bytes.to_vec(), &mut |event| {
                if let Event::Text(text) = event {
                    texts.push(serde_json::from_str(text).expect("JSON"));
                }
                Flow::Continue
            });
            fed.expect("the server keeps to RFC 6455");
        }
        self.texts.remove(0)
    }
}

fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("{}://localhost{target}", scheme()));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

fn websocket_request(fields: &[(&str, &str)]) -> Request<()> {
    let fields = [&[("sec-websocket-version", "13")], fields].concat();
    let mut request = request("CONNECT", "/cometd", &fields);
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    request
}

async fn whole(mut body: RecvStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("the whole body");
        body.flow_control().release_capacity(data.len()).expect("an open stream");
        bytes.extend_from_slice(&data);
    }
    bytes
}

fn connect_of(id: &str, timeout: u64) -> Value {
    json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "long-polling", "advice": {"timeout": timeout}}])
}

#[test]
fn a_request_names_one_host() {
    let server = TestServer::start(settings());
    let mut client = Frames::open(server.address(), &[]);
    for (stream, (fields, status)) in [
        (vec![], 200),
        (vec![("host", "LOCALHOST")], 200),
        // RFC 9113 §8.3.1: it differs from `:authority`.
        (vec![("host", "127.0.0.1")], 400),
        (vec![("host", "localhost"), ("host", "localhost")], 400),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 1 + 2 * stream as u32;
        client.request(stream, "GET", "/healthz", &fields, END_STREAM);
        let head = client.next_of(HEADERS);
        // The indexes of 200 and 400 in the static table.
        assert_eq!((head.stream, head.payload[0]), (stream, if status == 200 { 0x88 } else { 0x8c }), "{fields:?}");
    }
    let none = [(":method", "GET"), (":path", "/healthz"), (":scheme", scheme())];
    let block: Vec<u8> = none.iter().flat_map(|(name, value)| field(name, value)).collect();
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 9, &block));
    assert_eq!(client.next_of(HEADERS).payload[0], 0x8c, "no host at all");
    run(async {
        let client = Client::open(&server).await;
        let mut foreign = request("GET", "/", &[]);
        *foreign.uri_mut() = format!("{}://evil.example/", scheme()).parse().expect("a URI");
        let (response, _) = client.send(foreign, b"").await.expect("a response");
        assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
    });
}

#[test]
fn responses_have_a_date_and_no_field_of_a_connection_and_head_has_no_body() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        let is_clean = |headers: &HeaderMap| {
            let names = ["connection", "keep-alive", "transfer-encoding", "upgrade"];
            headers.contains_key("date") && !names.iter().any(|name| headers.contains_key(*name))
        };
        // A body that is not read closes a connection of HTTP/1.1.
        let (response, _) = client.send(request("POST", "/healthz", &[]), b"{}").await.expect("a response");
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(is_clean(response.headers()), "{:?}", response.headers());
        // Without the version this is no WebSocket handshake: 426 names the upgrade over HTTP/1.1.
        let mut request_ = request("CONNECT", "/cometd", &[]);
        request_.extensions_mut().insert(Protocol::from_static("websocket"));
        let (response, _) = client.send(request_, b"").await.expect("a response");
        assert_eq!(response.status(), StatusCode::UPGRADE_REQUIRED);
        assert!(is_clean(response.headers()), "{:?}", response.headers());
        let (response, _) = client.send(request("HEAD", "/healthz", &[]), b"").await.expect("a response");
        assert_eq!((response.status(), response.headers()["content-length"].as_bytes()), (StatusCode::OK, &b"3"[..]));
        assert_eq!(whole(response.into_body()).await, b"");
    });
}

#[test]
fn cookies_in_several_fields_are_one() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        let hello =
            json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
        let post = |fields: Vec<(&'static str, String)>| {
            let client = client.clone();
            let hello = hello.to_string();
            async move {
                let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
                client.send(request("POST", "/cometd", &fields), hello.as_bytes()).await.expect("a response").0
            }
        };
        let response = post(vec![]).await;
        let cookie =
            response.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("one").to_owned();
        let crumbs = vec![("cookie", "a=b".to_owned()), ("cookie", cookie), ("cookie", "c=d".to_owned())];
        assert!(!post(crumbs).await.headers().contains_key("set-cookie"), "the browser is known");
    });
}

#[test]
fn a_reset_stream_is_an_abandoned_request() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        let id = client.handshake().await;
        let mut sender = client.0.clone().ready().await.expect("a connection");
        let (held, mut stream) = sender.send_request(request("POST", "/cometd", &[]), false).expect("a stream");
        stream.send_data(connect_of(&id, 60_000).to_string().into(), true).expect("a stream");
        let wait = |held| async move {
            while server_metric(&client, "encke_held_connects").await != held {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            client
        };
        let client = wait(1).await;
        stream.send_reset(h2::Reason::CANCEL);
        drop((held, stream));
        while server_metric(&client, "encke_held_connects").await != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.publish("/a", "1");
        let messages = client.post(&connect_of(&id, 60_000)).await;
        assert!(messages.iter().any(|message| message["data"] == 1), "{messages:?}");
    });
}

async fn server_metric(client: &Client, name: &str) -> u64 {
    let page = whole(client.get("/metrics").await.into_body()).await;
    let page = String::from_utf8(page).expect("text");
    page.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map_or(0, |value| value.parse().expect("a number"))
}

/// The messages of a response that has not gone out as a whole wait again.
#[test]
fn a_response_that_its_client_cuts_off_is_sent_again() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        let id = client.handshake().await;
        let text = "x".repeat(100_000);
        server.publish("/a", &json!(text).to_string());
        let (response, _) = {
            let body = connect_of(&id, 0).to_string();
            client.send(request("POST", "/cometd", &[]), body.as_bytes()).await.expect("a response")
        };
        let mut body = response.into_body();
        assert!(body.data().await.expect("a part").expect("no error").len() < text.len());
        // The rest has no room in the window of the stream.
        drop(body);
        let messages = client.post(&connect_of(&id, 60_000)).await;
        assert_eq!(messages[0]["data"].as_str().map(str::len), Some(text.len()));
    });
}

#[test]
fn many_websockets_of_one_connection_live_on_the_shards_of_their_sessions() {
    let server = TestServer::start(Settings { shards: 3, ..settings() });
    run(async {
        let client = Client::open(&server).await;
        let mut sockets = Vec::new();
        for _ in 0..12 {
            // The session is of the shard that this request came to; the socket's own is of the next one.
            let id = Client::open(&server).await.handshake().await;
            let mut ws = client.websocket().await;
            ws.send(&json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "websocket", "advice": {"timeout": 0}}]));
            assert_eq!(ws.next().await[0]["successful"], true);
            sockets.push(ws);
        }
        for round in 0..20 {
            server.publish("/a", &json!([round, "x".repeat(round * 400)]).to_string());
        }
        // All at once: one that is not read keeps the window of the connection.
        let readers = sockets.into_iter().map(|mut ws| {
            tokio::spawn(async move {
                let mut rounds = Vec::new();
                while rounds.len() < 20 {
                    let texts = ws.next().await;
                    rounds.extend(texts.as_array().expect("messages").iter().map(|text| text["data"][0].clone()));
                }
                assert_eq!(rounds, (0..20).map(|round| json!(round)).collect::<Vec<_>>());
                ws
            })
        });
        let mut sockets = Vec::new();
        for reader in readers.collect::<Vec<_>>() {
            sockets.push(reader.await.expect("all messages in order"));
        }
        assert_eq!(server_metric(&client, "encke_websockets").await, 12);
        drop(sockets);
        while server_metric(&client, "encke_websockets").await != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_websocket_of_a_foreign_page_is_refused_and_the_connection_goes_on() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        let request = websocket_request(&[("origin", "https://evil.example")]);
        let (response, _) = client.send(request, b"").await.expect("a response");
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let mut plain_connect = Request::new(());
        (*plain_connect.method_mut(), *plain_connect.uri_mut()) =
            (Method::CONNECT, "localhost:80".parse().expect("a URI"));
        let (response, _) = client.send(plain_connect, b"").await.expect("a response");
        assert!(response.status().is_client_error(), "the server is no tunnel: {}", response.status());
        assert_eq!(client.get("/healthz").await.status(), 200);
    });
}

/// Echoes all bytes of a WebSocket, as the proxy passes them on.
struct Echo;

impl Fallback for Echo {
    fn takes(&self, path: &str) -> bool {
        path == "/echo"
    }

    fn answer(&self, request: Request<RequestBody>, _: RequestClient) -> FallbackResponse {
        let is_handshake = request.method() == Method::GET && request.headers().contains_key("sec-websocket-key");
        let mut response = Response::new(ResponseBody::new(Empty::new().map_err(|never| match never {})));
        if is_handshake && request.headers()["upgrade"] == "websocket" {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.extensions_mut().insert(TakeOver::new(|stream, _| async move {
                let (mut read, mut write) = tokio::io::split(stream);
                tokio::io::copy(&mut read, &mut write).await.expect("a client that stays");
                write.shutdown().await.expect("a client that stays");
            }));
        }
        Box::pin(async { response })
    }
}

#[test]
fn a_websocket_of_a_fallback_is_a_stream_too() {
    let server = TestServer::start(settings());
    server.handle.set_fallback(Some(Arc::new(Echo)));
    run(async {
        let client = Client::open(&server).await;
        let mut handshake = request("CONNECT", "/echo", &[("sec-websocket-version", "13")]);
        handshake.extensions_mut().insert(Protocol::from_static("websocket"));
        let (response, mut send) = client.send(handshake, b"").await.expect("a response");
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("sec-websocket-accept"));
        let mut receive = response.into_body();
        for round in 0..30_u8 {
            send.send_data(vec![round; 10_000].into(), false).expect("an open stream");
            let mut got = Vec::new();
            while got.len() < 10_000 {
                let bytes = receive.data().await.expect("more").expect("no error");
                receive.flow_control().release_capacity(bytes.len()).expect("an open stream");
                got.extend_from_slice(&bytes);
            }
            assert_eq!(got, [round; 10_000]);
        }
        send.send_data(Bytes::new(), true).expect("an open stream");
        assert_eq!(whole(receive).await, b"", "the end of both sides");
    });
}

/// A client that opens no window takes nothing. Its messages wait in its outbox, where the policies for slow consumers act.
#[test]
fn a_websocket_without_a_window_is_a_slow_consumer() {
    let rule = ChannelRule { pattern: "/a".into(), slow_consumer: SlowConsumer::Disconnect, ..ChannelRule::default() };
    let server = TestServer::start(Settings { outbox_bytes_max: 512 * 1024, channels: vec![rule], ..settings() });
    let mut neighbour = server.neighbour();
    run(async {
        let client = Client::open(&server).await;
        let id = client.handshake().await;
        let mut ws = client.websocket().await;
        ws.send(&json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "websocket", "advice": {"timeout": 0}}]));
        assert_eq!(ws.next().await[0]["successful"], true);
        let text = json!("x".repeat(30_000)).to_string();
        let mut published = 0;
        while server_metric(&client, "encke_slow_consumers_disconnected_total").await == 0 {
            assert!(published < 100, "64 KiB of window, as much of h2, and the outbox");
            server.publish("/a", &text);
            published += 1;
        }
        assert_eq!(server_metric(&client, "encke_sessions").await, 1);
    });
    neighbour.lives(&server);
}

#[test]
fn http2_browser_sessions_max_limits_the_connects_of_one_connection() {
    let limited = Settings { http2_browser_sessions_max: 1, browser_sessions_max: -1, ..settings() };
    for (settings, surplus) in [(settings(), 0), (limited, 1)] {
        let server = TestServer::start(settings);
        run(async {
            let client = Client::open(&server).await;
            let hello =
                json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
            let (response, _) =
                client.send(request("POST", "/cometd", &[]), hello.to_string().as_bytes()).await.expect("a response");
            let cookie =
                response.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("one").to_owned();
            let mut ids = Vec::new();
            for _ in 0..2 {
                let request = request("POST", "/cometd", &[("cookie", &cookie)]);
                let (response, _) = client.send(request, hello.to_string().as_bytes()).await.expect("a response");
                let messages: Value = serde_json::from_slice(&whole(response.into_body()).await).expect("messages");
                ids.push(messages[0]["clientId"].as_str().expect("an id").to_owned());
            }
            let mut held = Vec::new();
            for id in &ids {
                let post = |timeout| {
                    let (client, cookie, body) = (client.clone(), cookie.clone(), connect_of(id, timeout).to_string());
                    async move { client.send(request("POST", "/cometd", &[("cookie", &cookie)]), body.as_bytes()).await }
                };
                post(0).await.expect("the first connect");
                held.push(tokio::spawn(post(60_000)));
                while server_metric(&client, "encke_held_connects").await
                    + server_metric(&client, "encke_surplus_connects_total").await
                    < held.len() as u64
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            assert!(server_metric(&client, "encke_surplus_connects_total").await >= surplus);
            assert_eq!(server_metric(&client, "encke_held_connects").await, 2 - surplus);
        });
    }
}

#[test]
fn a_drain_says_goaway_and_answers_held_connects() {
    let server = TestServer::start(Settings { drain_timeout_ms: 60_000, ..settings() });
    run(async {
        let client = Client::open(&server).await;
        let id = client.handshake().await;
        let held = tokio::spawn({
            let client = client.clone();
            async move { client.post(&connect_of(&id, 60_000)).await }
        });
        while server_metric(&client, "encke_held_connects").await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut idle = Frames::open(server.address(), &[]);
        idle.next_of(SETTINGS);
        server.handle.drain();
        assert_eq!(held.await.expect("no panic")[0]["successful"], true);
        assert_eq!(idle.goes_away(), NO_ERROR);
    });
}
