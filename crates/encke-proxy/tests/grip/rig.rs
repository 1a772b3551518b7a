//! A server, a proxy and backends on loopback.

use bytes::Bytes;
use encke::{Handle, RequestClient, Running, Server, Settings};
use encke_proxy::{Proxy, ProxyBody, ProxySettings};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The time after which a test gives up.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A client with this address.
pub fn at(address: [u8; 4]) -> RequestClient {
    IpAddr::from(address).into()
}

/// A backend whose connections are each handled by a function, which gets the head of the first request.
pub fn backend(behave: impl Fn(String, TcpStream) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behave = behave.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                for line in head.to_ascii_lowercase().lines() {
                    length = line.strip_prefix("content-length: ").map_or(length, |it| it.parse().expect("a length"));
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("the body");
                head.push_str(&String::from_utf8_lossy(&body));
                behave(head, stream);
            });
        }
    });
    url
}

/// A backend that answers every request with this text.
pub fn answering(answer: impl Into<String>) -> String {
    let answer = answer.into();
    backend(move |_, mut stream| _ = stream.write_all(answer.as_bytes()))
}

/// An answer with these header lines and this body.
pub fn answer(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

pub struct Rig {
    pub running: Option<Running>,
    pub handle: Handle,
    pub proxy: Proxy,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.drain();
        self.running.take().into_iter().for_each(Running::join);
    }
}

pub fn rig(settings: ProxySettings) -> Rig {
    let server = Settings { listen: ([127, 0, 0, 1], 0).into(), shards: 1, drain_timeout_ms: 0, ..Settings::default() };
    let running = Server::builder().settings(server).start().expect("starts");
    let handle = running.handle();
    let proxy = Proxy::new(settings, handle.clone()).expect("valid settings");
    Rig { running: Some(running), handle, proxy }
}

pub fn of(backend: String) -> Rig {
    rig(ProxySettings { backend, ..ProxySettings::default() })
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await.expect("it ends in time") })
}

pub fn request(target: &str) -> Request<Full<Bytes>> {
    Request::get(target).header("host", "a.example").body(Full::default()).expect("a request")
}

pub async fn body(response: Response<ProxyBody>) -> (u16, String) {
    let status = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (status, String::from_utf8(body.to_bytes().into()).expect("text"))
}

impl Rig {
    pub fn get(&self, target: &str) -> (u16, String) {
        run(async { body(self.proxy.answer(request(target), RequestClient::default()).await).await })
    }

    /// The proxy's metric of this name.
    pub fn metric(&self, name: &str) -> u64 {
        let address = self.running.as_ref().expect("it runs").address();
        let mut stream = TcpStream::connect(address).expect("a connection");
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        let value = response.lines().find_map(|line| line.strip_prefix(&format!("encke_proxy_{name} ")));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no metric {name}: {response}"))
    }

    /// Opens a session of a client. The function publishes with it.
    pub fn by_client(&self, channel: &str, data: &str) -> impl FnOnce() + use<> {
        let address = self.running.as_ref().expect("it runs").address();
        let post = move |messages: &str, cookie: &str| {
            let mut stream = TcpStream::connect(address).expect("a connection");
            let head = format!("POST /cometd HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncookie: {cookie}\r\n");
            let length = messages.len();
            write!(stream, "{head}content-length: {length}\r\n\r\n{messages}").expect("it reads");
            let mut response = String::new();
            stream.read_to_string(&mut response).expect("a response");
            assert!(response.contains(r#""successful":true"#), "{response}");
            response
        };
        let opened = post(r#"[{"channel":"/meta/handshake","version":"1.0"}]"#, "");
        let cookie =
            opened.split("set-cookie: ").nth(1).and_then(|rest| rest.split(';').next()).expect("a cookie").to_owned();
        let session = opened.split(r#""clientId":""#).nth(1).and_then(|rest| rest.split('"').next()).expect("an id");
        let message = format!(r#"[{{"channel":"{channel}","clientId":"{session}","data":{data}}}]"#);
        move || _ = post(&message, &cookie)
    }

    /// Publishes when the proxy holds a response.
    pub async fn when_held(&self, publish: impl FnOnce(&Handle)) {
        while self.metric("held") != 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Held, and subscribed in the same step.
        tokio::time::sleep(Duration::from_millis(20)).await;
        publish(&self.handle);
    }

    pub fn held(&self, publish: impl FnOnce(&Handle)) -> Response<ProxyBody> {
        run(async {
            tokio::join!(self.proxy.answer(request("/x"), RequestClient::default()), self.when_held(publish)).0
        })
    }
}
