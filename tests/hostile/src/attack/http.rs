//! A hand-written HTTP client, and a long-polling session on it that acts only on request.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::websocket::{connect, handshake, subscribe};
use super::{Arena, Peer};

/// A keep-alive connection with the browser's cookie.
pub struct Http {
    stream: TcpStream,
    /// The cookie's header line, or nothing.
    pub cookie: String,
    host: String,
    read: Vec<u8>,
}

/// A session whose requests all go over one connection.
pub struct Poller {
    /// Its connection.
    pub http: Http,
    /// Its id.
    pub id: String,
    /// The number of the last complete batch of messages, if it acknowledges.
    pub batch: Option<u64>,
}

impl Http {
    /// Connects.
    pub async fn open(arena: Arena, peer: Peer) -> io::Result<Http> {
        let stream = arena.connect_as(peer).await?;
        Ok(Http { stream, cookie: String::new(), host: arena.address.to_string(), read: Vec::new() })
    }

    /// Sends a request with a batch.
    pub async fn send(&mut self, batch: &str) -> io::Result<()> {
        self.send_part(batch, batch.len()).await
    }

    /// Sends a request with the first bytes of a batch only.
    pub async fn send_part(&mut self, batch: &str, bytes: usize) -> io::Result<()> {
        let head = format!(
            "POST /cometd HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n",
            self.host,
            batch.len(),
            self.cookie
        );
        self.stream.write_all(&[head.as_bytes(), &batch.as_bytes()[..bytes]].concat()).await
    }

    /// Sends the request of a script element with a batch.
    pub async fn send_script(&mut self, batch: &str) -> io::Result<()> {
        let message: String = batch.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let head =
            format!("GET /cometd?jsonp=f&message={message} HTTP/1.1\r\nHost: {}\r\n{}\r\n", self.host, self.cookie);
        self.stream.write_all(head.as_bytes()).await
    }

    /// Sends a GET request for a path.
    pub async fn get(&mut self, path: &str) -> io::Result<()> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.write_all(head.as_bytes()).await
    }

    /// Sends a GET request that asks for the protocol of WebSockets.
    pub async fn upgrade(&mut self, path: &str) -> io::Result<()> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes()).await
    }

    /// Reads a response and returns its body.
    pub async fn receive(&mut self) -> io::Result<String> {
        self.receive_at(usize::MAX).await
    }

    /// The same, at no more than `bytes_per_s`.
    pub async fn receive_at(&mut self, bytes_per_s: usize) -> io::Result<String> {
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let rest = self.read.split_off(head);
        let head = String::from_utf8(std::mem::replace(&mut self.read, rest)).map_err(io::Error::other)?;
        let field = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string()).next()
        };
        if let Some(cookie) = field("set-cookie") {
            self.cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default());
        }
        let length = field("content-length").and_then(|length| length.parse().ok());
        let length: usize = length.ok_or_else(|| io::Error::other(format!("no length: {head}")))?;
        let began = tokio::time::Instant::now();
        while self.read.len() < length {
            self.fill().await?;
            tokio::time::sleep_until(began + Duration::from_secs_f64(self.read.len() as f64 / bytes_per_s as f64))
                .await;
        }
        let rest = self.read.split_off(length);
        String::from_utf8(std::mem::replace(&mut self.read, rest)).map_err(io::Error::other)
    }

    /// Sends a batch and reads the response.
    pub async fn ask(&mut self, batch: &str) -> io::Result<Vec<Value>> {
        self.send(batch).await?;
        let body = self.receive().await?;
        serde_json::from_str(&body).map_err(|error| io::Error::other(format!("{error}: {body}")))
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.read.reserve(READ_BYTES);
        let count = self.stream.read_buf(&mut self.read).await?;
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Poller {
    /// Opens a session that has connected once and is now away. `fields` go into its handshake.
    pub async fn open(arena: Arena, peer: Peer, fields: &str) -> io::Result<Poller> {
        let mut http = Http::open(arena, peer).await?;
        let replies = http.ask(&handshake("long-polling", fields)).await?;
        let id = replies[0]["clientId"].as_str().ok_or_else(|| io::Error::other(replies[0].to_string()))?.to_string();
        let mut poller = Poller { http, id, batch: fields.contains(r#""ack":true"#).then_some(0) };
        poller.ask(&connect("long-polling", &poller.id, 0)).await?;
        Ok(poller)
    }

    /// A session on a certain shard.
    pub async fn open_on(arena: Arena, shard: usize) -> io::Result<Poller> {
        for _ in 0..TRIES {
            let poller = Poller::open(arena, Peer::default(), "").await?;
            if super::shard_of(&poller.id) == Some(shard) {
                return Ok(poller);
            }
        }
        Err(io::Error::other("no session on that shard"))
    }

    /// Subscribes, to several channels in one message if `channels` is an array in JSON.
    pub async fn subscribe(&mut self, channels: &str, fields: &str) -> io::Result<()> {
        self.ask(&subscribe(&self.id, channels, fields)).await.map(drop)
    }

    /// Sends a batch whose every reply must be a success.
    pub async fn ask(&mut self, batch: &str) -> io::Result<Vec<Value>> {
        let replies = self.http.ask(batch).await?;
        match replies.iter().find(|reply| reply["successful"] == false) {
            Some(refused) => Err(io::Error::other(refused.to_string())),
            None => Ok(replies),
        }
    }

    /// A connect that may be held for `timeout_ms`, with its acknowledgement.
    pub fn connect(&self, timeout_ms: u32) -> String {
        let text = connect("long-polling", &self.id, timeout_ms);
        match self.batch {
            Some(batch) => text.replace("}}]", &format!(r#"}},"ext":{{"ack":{batch}}}}}]"#)),
            None => text,
        }
    }
}

const READ_BYTES: usize = 256 * 1024;
const TRIES: usize = 64;
