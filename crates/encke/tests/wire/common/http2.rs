//! HTTP/2 of the clients of tests. With `ENCKE_TEST_HTTP2=1` a gateway in the process of the tests stands between all clients and their
//! servers: clients speak HTTP/1.1 with it, and it speaks HTTP/2 with the servers, WebSockets included (RFC 8441). `scripts/cargo-tests.sh`
//! runs many tests again this way.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::ext::Protocol;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, on};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::Tcp;
use super::tls::{Socket, insecure_config, over_tls, scheme};
use super::way::{Way, on_way, way};

/// True if the tests run over HTTP/2, or this one does.
pub fn over_http2() -> bool {
    static IS_SET: LazyLock<bool> = LazyLock::new(|| std::env::var_os("ENCKE_TEST_HTTP2").is_some());
    way().map_or(*IS_SET, |way| way.http2)
}

/// The address at which clients reach a server: its own, or that of its gateway.
pub fn entry(server: SocketAddr) -> SocketAddr {
    static GATEWAYS: LazyLock<Mutex<HashMap<(SocketAddr, bool), SocketAddr>>> = LazyLock::new(Mutex::default);
    if !over_http2() {
        return server;
    }
    let way = Way { tls: over_tls(), http2: true };
    let mut gateways = GATEWAYS.lock().expect("no panic");
    *gateways.entry((server, way.tls)).or_insert_with(|| {
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).expect("a listener");
        let address = listener.local_addr().expect("its address");
        runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(on_way(way, serve(client, server)));
            }
        });
        address
    })
}

fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("gateway").enable_all().build().expect("a runtime")
    });
    &RUNTIME
}

/// The task of the connection to a server. It ends with its last owner.
struct Upstream(JoinHandle<()>);

impl Drop for Upstream {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A connection to a server that speaks HTTP/2 with it, with TLS if all tests speak it.
pub async fn connect(server: SocketAddr) -> Result<Box<dyn Stream>, Error> {
    let tcp = TcpStream::connect(server).await?;
    tcp.set_nodelay(true)?;
    if !over_tls() {
        return Ok(Box::new(tcp));
    }
    let mut config = insecure_config(rustls::DEFAULT_VERSIONS);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect("localhost".try_into()?, tcp).await?))
}

/// Serves a client with one connection to its server.
async fn serve(client: TcpStream, server: SocketAddr) -> Result<(), Error> {
    client.set_nodelay(true)?;
    // A client that does not read is noticed soon.
    socket2::SockRef::from(&client).set_send_buffer_size(BUFFER_BYTES)?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    let (sender, connection) = builder.handshake::<_, Body>(TokioIo::new(connect(server).await?)).await?;
    let (ends, over) = tokio::sync::oneshot::channel::<()>();
    let driver = async move {
        let _ends = ends;
        let _ended = connection.await;
    };
    let upstream = Arc::new(Upstream(tokio::spawn(driver)));
    let service = service_fn(|request| forward(sender.clone(), request, upstream.clone(), server));
    let mut served = pin!(http1::Builder::new().serve_connection(TokioIo::new(client), service).with_upgrades());
    tokio::select! {
        served = served.as_mut() => return Ok(served?),
        // The server ends the connection.
        _ = over => served.as_mut().graceful_shutdown(),
    }
    Ok(served.await?)
}

type Body = Either<Incoming, Empty<Bytes>>;

/// Passes a request on.
async fn forward(
    mut sender: SendRequest<Body>,
    mut request: Request<Incoming>,
    upstream: Arc<Upstream>,
    server: SocketAddr,
) -> Result<Response<Body>, Error> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
    let is_upgrade = request.headers().contains_key(UPGRADE) && key.is_some();
    let client = is_upgrade.then(|| on(&mut request));
    let (mut head, body) = request.into_parts();
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(String::from);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = |host: &str| format!("{}://{host}{path}", scheme()).parse::<Uri>();
    head.uri = match host.as_deref().map(uri) {
        Some(Ok(uri)) if head.headers.get_all(HOST).iter().count() == 1 => {
            head.headers.remove(HOST);
            uri
        }
        _ => uri(&server.to_string())?,
    };
    head.version = http::Version::HTTP_2;
    [CONNECTION, UPGRADE, SEC_WEBSOCKET_KEY].iter().for_each(|name| _ = head.headers.remove(name));
    let Some(client) = client else {
        let response = sender.send_request(Request::from_parts(head, Either::Left(body))).await?;
        return Ok(response.map(Either::Left));
    };
    // The first response comes after the settings, which allow WebSockets.
    let first = Request::builder().uri(format!("{}://localhost/healthz", scheme()));
    sender.send_request(first.body(Either::Right(Empty::new()))?).await?.into_body().collect().await?;
    head.method = Method::CONNECT;
    head.extensions.insert(Protocol::from_static("websocket"));
    let mut response = sender.send_request(Request::from_parts(head, Either::Right(Empty::new()))).await?;
    if response.status() == StatusCode::OK {
        tokio::spawn(join(client, on(&mut response), upstream));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let accept = websocket::handshake::accept(key.as_ref().map_or("", |key| key.to_str().unwrap_or_default()));
        let fields = [(CONNECTION, "upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, &accept)];
        for (name, value) in fields {
            response.headers_mut().insert(name, HeaderValue::from_str(value)?);
        }
        return Ok(response.map(|_| Either::Right(Empty::new())));
    }
    Ok(response.map(Either::Left))
}

/// Passes the bytes of both sides on.
async fn join(client: OnUpgrade, server: OnUpgrade, upstream: Arc<Upstream>) {
    let _upstream = upstream;
    if let (Ok(client), Ok(server)) = (client.await, server.await) {
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES).await;
    }
}

const BUFFER_BYTES: usize = 16 * 1024;
/// The window of each stream.
const WINDOW_BYTES: u32 = 64 * 1024;
/// The window of each connection. h2 ends one with too many small frames that wait, and measures them against this window: a stream whose
/// window is full of them is none.
const CONNECTION_WINDOW_BYTES: u32 = 16 * WINDOW_BYTES;

/// A connection whose frames a test writes and reads by itself (RFC 9113 §4).
pub struct Frames(Tcp);

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A field as HPACK writes it without tables (RFC 7541 §6.2.2).
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        let mut rest = text.len();
        if rest < 127 {
            bytes.push(rest as u8);
        } else {
            bytes.push(127);
            rest -= 127;
            while rest >= 128 {
                bytes.push(rest as u8 | 128);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

impl Frames {
    /// A connection after the client's preface. `settings` are the client's, as bytes.
    pub fn open(server: SocketAddr, settings: &[u8]) -> Frames {
        let tcp = std::net::TcpStream::connect(server).expect("a connection");
        let socket = if over_tls() {
            let mut config = insecure_config(rustls::DEFAULT_VERSIONS);
            config.alpn_protocols = vec![b"h2".to_vec()];
            Socket::tls(tcp, Arc::new(config), "localhost").expect("a handshake")
        } else {
            Socket::Plain(tcp)
        };
        let mut frames = Frames(Tcp::of(socket));
        frames.send(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, settings)].concat());
        frames
    }

    /// Sends bytes. The server may have closed already.
    pub fn send(&mut self, bytes: &[u8]) {
        let _gone = self.0.try_send(bytes);
    }

    /// Sends the same bytes until the server ends the connection.
    #[track_caller]
    pub fn flood(&mut self, bytes: &[u8]) {
        self.0.flood(&bytes.repeat(1 + 8_192 / bytes.len()));
    }

    /// Sends the head of a request.
    pub fn request(&mut self, stream: u32, method: &str, target: &str, fields: &[(&str, &str)], flags: u8) {
        let pseudo = [(":method", method), (":path", target), (":scheme", scheme()), (":authority", "localhost")];
        let block: Vec<u8> = pseudo.iter().chain(fields).flat_map(|(name, value)| field(name, value)).collect();
        self.send(&frame(HEADERS, END_HEADERS | flags, stream, &block));
    }

    /// The next frame. None at the end of the connection.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.stream.read_exact(&mut head).ok()?;
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        self.0.stream.read_exact(&mut payload).ok()?;
        if kind == PING && flags == 0 {
            self.send(&frame(PING, 1, 0, &payload));
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The next frame of this kind.
    #[track_caller]
    pub fn next_of(&mut self, kind: u8) -> Frame {
        std::iter::from_fn(|| self.next()).find(|frame| frame.kind == kind).expect("a frame of this kind")
    }

    /// The error code with which the server ends the connection. None if it ends without one.
    pub fn goes_away(&mut self) -> Option<u32> {
        let frames = std::iter::from_fn(|| self.next());
        let last = frames.filter(|frame| frame.kind == GOAWAY).last()?;
        Some(u32::from_be_bytes(last.payload[4..8].try_into().ok()?))
    }
}
