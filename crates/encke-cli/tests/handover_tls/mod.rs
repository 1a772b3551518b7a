//! Clients with TLS, over HTTP/1.1 and HTTP/2, while one process takes over from another: their tickets are good there, and they lose
//! nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use encke_fetch::rustls::crypto::ring;
use encke_fetch::rustls::pki_types::ServerName;
use encke_fetch::rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use encke_fetch::{AnyCertificate, Fetcher, Limits};
use http::{Request, Version};
use serde_json::{Value, json};

use crate::{Folder, PROGRAM, Server, TIMEOUT, clean, messages};

/// A long-polling client whose requests have a new connection each.
struct Client {
    server: std::net::SocketAddr,
    config: Arc<ClientConfig>,
    cookie: String,
    id: Value,
    /// The kind of its last handshake of TLS.
    kind: Option<HandshakeKind>,
}

impl Client {
    fn open(server: std::net::SocketAddr) -> Client {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").dangerous();
        let config =
            builder.with_custom_certificate_verifier(AnyCertificate::verifier(&provider)).with_no_client_auth();
        let mut client =
            Client { server, config: Arc::new(config), cookie: String::new(), id: Value::Null, kind: None };
        let response = client.post(&json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0"}]));
        let set = response.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        client.cookie = set.split(';').next().expect("a cookie").to_owned();
        client.id = messages(&response)[0]["clientId"].clone();
        assert_eq!(client.connect()[0]["successful"], true);
        let subscribe =
            json!([{"id": "2", "channel": "/meta/subscribe", "clientId": client.id, "subscription": "/news"}]);
        assert_eq!(messages(&client.post(&subscribe))[0]["successful"], true);
        client
    }

    fn connect(&mut self) -> Value {
        let connect = json!([{"id": "3", "channel": "/meta/connect", "clientId": self.id,
            "connectionType": "long-polling", "advice": {"timeout": 0}}]);
        messages(&self.post(&connect))
    }

    fn post(&mut self, messages: &Value) -> String {
        let body = messages.to_string();
        let tcp = TcpStream::connect(self.server).expect("connects");
        tcp.set_read_timeout(Some(TIMEOUT)).expect("it can be set");
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(self.config.clone(), name).expect("a client");
        let mut stream = StreamOwned::new(tls, tcp);
        let (cookie, length) = (&self.cookie, body.len());
        let head = format!(
            "POST /cometd HTTP/1.1\r\nhost: localhost\r\ncookie: {cookie}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).expect("the server reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        self.kind = stream.conn.handshake_kind();
        response
    }
}

/// Publishes from outside, as a program does.
fn publish(url: &str, data: u32) {
    let output = clean(PROGRAM, &["publish", "/news", &data.to_string(), "--url", url, "--insecure"]).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{output:?}");
}

/// A server with TLS and a data directory, and the file of its certificate.
fn start() -> (Folder, Server, String) {
    let folder = Folder::new();
    let (data, cert, key) = (folder.path("data"), folder.path("cert.pem"), folder.path("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let args = ["serve", "--port", "0", "--data", &data, "--tls-cert", &cert, "--tls-key", &key];
    let server = Server::start(clean(PROGRAM, &args));
    (folder, server, cert)
}

/// A client of HTTP/2, which has one connection.
#[derive(Clone)]
struct Http2 {
    fetcher: Fetcher,
    url: String,
    cookie: String,
}

impl Http2 {
    async fn open(url: String, cert: &str) -> (Http2, Value) {
        let limits = Limits { total_timeout_ms: TIMEOUT.as_millis() as u64, ..Limits::default() };
        let fetcher = Fetcher::new(limits, Some(cert.as_ref())).expect("a certificate");
        let mut client = Http2 { fetcher, url, cookie: String::new() };
        let (replies, cookie) = client.post(json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0"}])).await;
        client.cookie = cookie;
        let id = replies[0]["clientId"].clone();
        let subscribe = json!([{"id": "2", "channel": "/meta/subscribe", "clientId": id, "subscription": "/news"}]);
        assert_eq!(client.post(subscribe).await.0[0]["successful"], true);
        assert_eq!(client.connect(&id, 0).await[0]["successful"], true);
        (client, id)
    }

    async fn connect(&self, id: &Value, timeout_ms: u64) -> Value {
        let connect = json!([{"id": "3", "channel": "/meta/connect", "clientId": id, "connectionType": "long-polling",
            "advice": {"timeout": timeout_ms}}]);
        self.post(connect).await.0
    }

    /// The replies, and the cookie.
    async fn post(&self, messages: Value) -> (Value, String) {
        let request = Request::post(&self.url).header("cookie", &self.cookie);
        let request = request.body(Bytes::from(messages.to_string())).expect("a request");
        let response = self.fetcher.send(request).await.expect("a response");
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
        let cookie = response.headers().get("set-cookie").map_or("", |cookie| cookie.to_str().expect("text"));
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        (serde_json::from_slice(response.body()).expect("JSON"), cookie)
    }
}

#[test]
fn a_client_of_http2_with_a_held_connect_goes_on_at_the_new_process_and_loses_nothing() {
    let (_folder, mut server, cert) = start();
    let url = format!("https://localhost:{}", server.address.port());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
    let (client, id) = runtime.block_on(Http2::open(format!("{url}/cometd"), &cert));
    let data = |replies: &Value| -> Vec<u64> {
        replies.as_array().expect("messages").iter().filter_map(|one| one["data"].as_u64()).collect()
    };
    let mut numbers = Vec::new();
    publish(&url, 1);
    let held = runtime.spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { [client.connect(&id, 60_000).await, client.connect(&id, 60_000).await] }
    });
    server.hand_over();
    publish(&url, 2);
    // The drain answers a connect that the first process holds.
    for replies in runtime.block_on(held).expect("no panic") {
        assert_eq!(replies.as_array().and_then(|all| all.last()).expect("a reply")["successful"], true, "{replies}");
        numbers.extend(data(&replies));
    }
    if numbers.len() < 2 {
        numbers.extend(data(&runtime.block_on(client.connect(&id, 60_000))));
    }
    assert_eq!(numbers, [1, 2], "nothing lost or doubled");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_client_with_tls_resumes_at_the_new_process_and_loses_nothing() {
    let (_folder, mut server, _) = start();
    let url = format!("https://{}", server.address);
    let mut client = Client::open(server.address);
    assert_eq!(client.kind, Some(HandshakeKind::Resumed), "at the same process");
    let subscribe =
        ["subscribe", "/news", "--url", &url, "--insecure", "--transport", "websocket", "--ack", "--count", "6"];
    let mut subscriber = clean(PROGRAM, &subscribe).stdout(Stdio::piped()).spawn().expect("starts");
    // Its subscription is there when a message arrives.
    let mut lines = BufReader::new(subscriber.stdout.take().expect("piped")).lines();
    let mut next = 0;
    let mut first = String::new();
    std::thread::scope(|scope| {
        let line = scope.spawn(|| lines.next().expect("a line").expect("text"));
        while !line.is_finished() {
            next += 1;
            publish(&url, next);
        }
        first = line.join().expect("no panic");
    });
    server.hand_over();
    publish(&url, next + 1);
    let received = client.connect();
    assert_eq!(client.kind, Some(HandshakeKind::Resumed), "at the new process");
    let numbers: Vec<u64> =
        received.as_array().expect("messages").iter().filter_map(|one| one["data"].as_u64()).collect();
    assert_eq!(numbers, (1..=u64::from(next) + 1).collect::<Vec<_>>(), "nothing lost, doubled or out of order");
    assert_eq!(server.end(), Some(0));
    // The subscriber goes on where it was.
    let begin: Value = serde_json::from_str(&first).expect("JSON");
    let begin = begin["data"].as_u64().expect("a number");
    for number in next + 2..next + 7 {
        publish(&url, number);
    }
    let numbers = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON")["data"].clone());
    assert_eq!(numbers.collect::<Vec<_>>(), (begin + 1..begin + 6).collect::<Vec<_>>());
    assert!(subscriber.wait().expect("ends").success());
}
