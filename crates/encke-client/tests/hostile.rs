//! Servers that want a client's memory. Each test names the limit that they meet, and fails if the client takes more.

mod common;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use encke_client::session::{ClientSession, SessionOptions};
use encke_client::{Client, ClientBuilder, Error, Extension, Gap, LostReason, NotBayeux, Outgoing, Transport};
use rustix::net::sockopt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use websocket::deflate::Deflater;
use websocket::{Decoder, Event, Flow, Opcode, ProtocolError, Role, frame, handshake};

use common::run;

#[test]
fn of_pings_whose_pongs_nobody_reads_the_latest_is_answered() {
    run(async {
        let (_client, mut server) = opened(Client::builder()).await;
        for number in 0..PINGS {
            server.write(Opcode::Ping, format!("{number:0100}").as_bytes()).await.expect("the client reads");
        }
        let last = format!("{:0100}", PINGS - 1);
        while server.pongs.last() != Some(&last) {
            server.read().await;
        }
        assert!(server.pongs.len() < PINGS / 2, "{} pongs were stored", server.pongs.len());
        assert!(server.pongs.is_sorted());
    });
}

#[test]
fn a_server_that_does_not_read_what_it_causes_is_not_read_either() {
    run(async {
        // Of many small segments the kernel drops those that do not fit, and retransmits them for minutes.
        let builder = Client::builder().extension(LongConnects).reply_timeout(Duration::from_millis(500));
        let (client, mut server) = opened(builder.reconnect(false)).await;
        // Each of them causes the next connect.
        let reply = format!(r#"[{{"channel":"/meta/connect","successful":true,"ext":{{"a":"{}"}}}}]"#, long_text());
        let mut written = 0;
        while server.write(Opcode::Text, reply.as_bytes()).await.is_ok() {
            written += reply.len();
            assert!(written < KERNEL_BYTES, "the client reads on");
        }
        let end = client.closed().await;
        assert!(matches!(end, Err(Error::ConnectionLost(LostReason::NoReply))), "{end:?}");
    });
}

#[test]
fn a_compressed_text_beyond_message_bytes_max_ends_the_connection() {
    run(async {
        for (is_offered, refusal) in [(true, ProtocolError::MessageTooLong), (false, ProtocolError::ReservedBits)] {
            let builder = Client::builder().compress(is_offered).message_bytes_max(MIB).reconnect(false);
            let (client, mut server) = opened(builder).await;
            let (mut bomb, mut bytes) = (Vec::new(), Vec::new());
            Deflater::default().block(&vec![b' '; 64 * MIB], &mut bomb);
            frame::compressed_header(Opcode::Text, bomb.len(), &mut bytes);
            bytes.extend_from_slice(&bomb);
            server.stream.write_all(&bytes).await.expect("the client reads");
            let end = client.closed().await;
            let Err(Error::ConnectionLost(LostReason::Protocol(error))) = end else { panic!("{end:?}") };
            assert_eq!(error, refusal);
        }
    });
}

#[test]
fn one_text_answers_no_message_that_it_causes() {
    let now = Instant::now();
    let mut session = ClientSession::new(SessionOptions::default());
    session.connection_opened(now);
    session.transmit().expect("a handshake");
    let text = r#"[{"channel":"/meta/handshake","successful":true,"clientId":"a"}]"#;
    session.received(text, now).expect("Bayeux");
    while session.transmit().is_some() {}
    let replies = vec![r#"{"channel":"/meta/connect","successful":true}"#; 1000];
    session.received(&format!("[{}]", replies.join(",")), now).expect("Bayeux");
    assert_eq!(std::iter::from_fn(|| session.transmit()).count(), 1);
}

#[test]
fn messages_before_the_reply_that_confirms_them_are_limited_in_bytes() {
    run(async {
        let builder = Client::builder().ack(true).unacknowledged_bytes_max(4 * MIB).reconnect(false);
        let (client, mut server) = opened(builder).await;
        for number in 0..KERNEL_BYTES / MIB {
            if server.publish("/a", number).await.is_err() {
                break;
            }
        }
        drop(server);
        let end = client.closed().await;
        assert!(matches!(end, Err(Error::TooManyUnacknowledgedBytes(max)) if max == 4 * MIB), "{end:?}");
    });
}

#[test]
fn messages_that_nobody_reads_are_limited_in_bytes_and_others_get_theirs() {
    run(async {
        let builder = Client::builder().unread_bytes_max(8 * MIB).slow_reader_timeout(Duration::from_millis(50));
        let (client, mut server) = opened(builder).await;
        let (unread, read) = tokio::join!(
            async { (client.subscribe("/unread").await, client.subscribe("/read").await) },
            server.grant_subscribes(2),
        )
        .0;
        let (mut unread, mut read) = (unread.expect("subscribes"), read.expect("subscribes"));
        let publishing = tokio::spawn(async move {
            for number in 0..MESSAGES {
                server.publish("/unread", number).await.expect("the client reads");
                server.publish("/read", number).await.expect("the client reads");
            }
            server
        });
        for number in 0..MESSAGES {
            let message = read.next().await.expect("open").expect("no gap");
            assert!(message.data().as_str().starts_with(&format!("\"{number}.")), "{number}");
        }
        let mut items = Vec::new();
        while items.len() < MESSAGES && !items.last().is_some_and(Result::is_err) {
            items.push(unread.next().await.expect("open").map(|message| message.data().as_str().len()));
        }
        let gap = items.pop().expect("items").map_err(|gap: Gap| gap.to_string());
        assert_eq!(gap, Err(format!("/unread: {} messages came faster than they were read", MESSAGES - items.len())));
        let bytes: usize = items.into_iter().map(|item| item.expect("a message")).sum();
        assert!((2 * MIB..=4 * MIB + MIB).contains(&bytes), "{bytes} bytes of 8 MiB");
        drop(publishing.await);
    });
}

#[test]
fn publications_that_wait_for_the_client_are_limited_in_bytes() {
    run(async {
        let (client, _server) = opened(Client::builder()).await;
        // The task of the client does not run meanwhile.
        let mut context = Context::from_waker(Waker::noop());
        let publications = [300 * 1024, 10, 300 * 1024].map(|bytes| "x".repeat(bytes));
        let polls = publications.each_ref().map(|data| {
            let start = pin!(client.start_publish("/a", data)).as_mut().poll(&mut context);
            matches!(start, Poll::Ready(Ok(_)))
        });
        assert_eq!(polls, [true, false, false], "the first takes all the room");
    });
}

#[test]
fn the_id_of_a_session_has_a_limit() {
    run(async {
        let listener = listener().await;
        let url = url_of(&listener);
        let id = "x".repeat(MIB);
        let (connected, _server) =
            tokio::join!(Client::builder().transport(Transport::WebSocket).connect(&url), accepted(&listener, &id));
        let error = connected.expect_err("refused");
        assert!(matches!(error, Error::NotBayeux { reason: NotBayeux::LongClientId(MIB), .. }), "{error:?}");
    });
}

#[test]
fn responses_without_an_end_are_read_up_to_a_limit_and_redirects_are_not_followed() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let cases = [
        (format!("{head}transfer-encoding: chunked\r\n\r\n"), "10000\r\n".to_owned() + &" ".repeat(65_536) + "\r\n"),
        (head.to_owned(), "x-header: one more\r\n".repeat(1000)),
        (format!("HTTP/1.1 302 Found\r\nlocation: /other\r\n{}\r\n", "content-length: 0\r\n"), String::new()),
    ];
    for (begin, endless) in cases {
        run(async {
            let listener = listener().await;
            let url = url_of(&listener);
            let builder = Client::builder().transport(Transport::LongPolling).message_bytes_max(MIB);
            let serve = async {
                let (mut stream, _) = listener.accept().await.expect("accepts");
                read_head(&mut stream).await;
                stream.write_all(begin.as_bytes()).await.expect("written");
                let mut written = 0;
                while !endless.is_empty() && stream.write_all(endless.as_bytes()).await.is_ok() {
                    written += endless.len();
                    assert!(written < KERNEL_BYTES, "the client reads on: {begin}");
                }
                stream
            };
            let (connected, _stream) = tokio::join!(builder.connect(&url), serve);
            assert!(connected.is_err(), "{begin}");
        });
    }
}

/// A client over a WebSocket, and its server, which has opened the session.
async fn opened(builder: ClientBuilder) -> (Client, Hostile) {
    let listener = listener().await;
    let url = url_of(&listener);
    let (client, server) =
        tokio::join!(builder.transport(Transport::WebSocket).connect(&url), accepted(&listener, "c1"));
    (client.expect("connects"), server)
}

/// A listener whose sockets have a small receive buffer, so that little is on its way.
async fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    sockopt::set_socket_recv_buffer_size(&listener, 64 * 1024).expect("a size");
    listener
}

fn url_of(listener: &TcpListener) -> String {
    common::url(listener.local_addr().expect("bound"))
}

/// Accepts a client and answers its handshakes.
async fn accepted(listener: &TcpListener, client_id: &str) -> Hostile {
    let (mut stream, _) = listener.accept().await.expect("accepts");
    let head = read_head(&mut stream).await;
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).expect("a key");
    let accept = handshake::accept(key);
    let offer = head.lines().find(|line| line.starts_with("sec-websocket-extensions: "));
    let agreed = offer.map_or(String::new(), |offer| format!("{offer}\r\n"));
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n{agreed}\r\n"
    );
    stream.write_all(answer.as_bytes()).await.expect("written");
    let decoder = Decoder::new(Role::Server, 64 * MIB);
    let mut server = Hostile { stream, decoder, texts: Vec::new(), pongs: Vec::new() };
    let handshake = server.message("/meta/handshake").await;
    let reply = serde_json::json!([{
        "channel": "/meta/handshake", "id": handshake["id"], "successful": true, "clientId": client_id,
        "version": "1.0", "supportedConnectionTypes": ["websocket"], "ext": { "ack": true },
        "advice": { "timeout": 0, "interval": 0 },
    }]);
    // A client that refuses the reply closes the connection.
    let _ = server.write(Opcode::Text, reply.to_string().as_bytes()).await;
    server
}

/// The head of a request, in small letters where names are.
async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.expect("a request")));
    }
    head
}

/// Makes each connect some 16 KiB long.
struct LongConnects;

impl Extension for LongConnects {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/connect" {
            message.ext.insert("a".into(), long_text().into());
        }
    }
}

fn long_text() -> String {
    "x".repeat(16 * 1024)
}

/// A server of one client.
struct Hostile {
    stream: TcpStream,
    decoder: Decoder,
    texts: Vec<Value>,
    pongs: Vec<String>,
}

impl Hostile {
    /// Sends one frame, and reads nothing.
    async fn write(&mut self, opcode: Opcode, payload: &[u8]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        frame::message(opcode, payload, &mut bytes);
        self.stream.write_all(&bytes).await
    }

    /// Sends a message of some 1 MiB.
    async fn publish(&mut self, channel: &str, number: usize) -> std::io::Result<()> {
        let text = format!(r#"[{{"channel":"{channel}","data":"{number}.{}"}}]"#, "x".repeat(MIB - 1024));
        self.write(Opcode::Text, text.as_bytes()).await
    }

    /// Reads something.
    async fn read(&mut self) {
        let mut buffer = vec![0; 65_536];
        let read = self.stream.read(&mut buffer).await.expect("open");
        assert!(read > 0, "the client has closed the connection");
        let (texts, pongs) = (&mut self.texts, &mut self.pongs);
        let fed = self.decoder.feed(&mut buffer[..read], &mut |event| {
            match event {
                Event::Text(text) => texts.extend(serde_json::from_str::<Vec<Value>>(text).expect("messages")),
                Event::Pong(payload) => pongs.push(String::from_utf8_lossy(payload).into()),
                _ => {}
            }
            Flow::Continue
        });
        fed.expect("RFC 6455");
    }

    /// The next message of the client on this channel.
    async fn message(&mut self, channel: &str) -> Value {
        loop {
            if let Some(at) = self.texts.iter().position(|message| message["channel"] == channel) {
                return self.texts.remove(at);
            }
            self.read().await;
        }
    }

    async fn grant_subscribes(&mut self, subscribes: usize) {
        for _ in 0..subscribes {
            let subscribe = self.message("/meta/subscribe").await;
            let reply = serde_json::json!([{
                "channel": "/meta/subscribe", "id": subscribe["id"], "successful": true,
                "subscription": subscribe["subscription"],
            }]);
            self.write(Opcode::Text, reply.to_string().as_bytes()).await.expect("written");
        }
    }
}

const MIB: usize = 1024 * 1024;
/// More than the kernel holds on the way to a client.
const KERNEL_BYTES: usize = 64 * MIB;
/// Their pongs are more than the kernel holds.
const PINGS: usize = 200_000;
const MESSAGES: usize = 20;
