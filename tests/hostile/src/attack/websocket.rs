//! A hand-written WebSocket, and a Bayeux session on it that acts only on request.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use websocket::{Opcode, frame};

use super::http2::Stream;
use super::{Arena, Peer};

/// A WebSocket. It reads and answers only on request.
pub struct Socket {
    stream: Box<dyn Stream>,
    /// Bytes that are read and not used yet.
    read: Vec<u8>,
}

/// A session on its own socket.
pub struct Session {
    /// Its socket.
    pub socket: Socket,
    /// Its id.
    pub id: String,
}

impl Socket {
    /// Connects and upgrades.
    pub async fn open(arena: Arena, peer: Peer) -> io::Result<Socket> {
        let mut stream = arena.connect_as(peer).await?;
        let request = format!(
            "GET /cometd HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            arena.address
        );
        stream.write_all(request.as_bytes()).await?;
        let mut socket = Socket::over(stream);
        while !socket.read.ends_with(b"\r\n\r\n") {
            // The server sends nothing after the response before the client sends.
            socket.fill().await?;
        }
        if !socket.read.starts_with(b"HTTP/1.1 101") {
            return Err(io::Error::other(String::from_utf8_lossy(&socket.read).into_owned()));
        }
        socket.read.clear();
        Ok(socket)
    }

    /// A WebSocket that is open, on these bytes.
    pub fn over(stream: impl Stream + 'static) -> Socket {
        Socket { stream: Box::new(stream), read: Vec::new() }
    }

    /// Sends bytes unchanged.
    pub async fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a text.
    pub async fn send(&mut self, text: &str) -> io::Result<()> {
        self.send_raw(&text_frame(text)).await
    }

    /// The next text.
    pub async fn receive(&mut self) -> io::Result<String> {
        loop {
            if let Some((head, payload)) = frame::split(&self.read) {
                let opcode = self.read[0] & 15;
                let rest = self.read.split_off(head + payload);
                let text = std::mem::replace(&mut self.read, rest).split_off(head);
                match opcode {
                    1 => return String::from_utf8(text).map_err(io::Error::other),
                    8 => return Err(io::Error::other(format!("closed: {}", String::from_utf8_lossy(&text)))),
                    _ => continue,
                }
            }
            self.fill().await?;
        }
    }

    /// Reads and discards all bytes that have arrived. Returns their number.
    pub async fn skim(&mut self) -> io::Result<usize> {
        self.read.clear();
        self.fill().await
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.read.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

impl Session {
    /// Opens a session that has connected once, and whose next connect is held. `fields` go into its handshake.
    pub async fn open(arena: Arena, peer: Peer, fields: &str) -> io::Result<Session> {
        Session::on(Socket::open(arena, peer).await?, fields).await
    }

    /// The same on this WebSocket.
    pub async fn on(mut socket: Socket, fields: &str) -> io::Result<Session> {
        let reply = ask(&mut socket, &handshake("websocket", fields)).await?;
        let id = reply["clientId"].as_str().ok_or_else(|| io::Error::other(reply.to_string()))?.to_string();
        let mut session = Session { socket, id };
        session.ask(&connect("websocket", &session.id, 0)).await?;
        session.socket.send(&connect("websocket", &session.id, 20_000)).await?;
        Ok(session)
    }

    /// A session on a certain shard.
    pub async fn open_on(arena: Arena, shard: usize, peer: Peer) -> io::Result<Session> {
        for _ in 0..TRIES {
            let session = Session::open(arena, peer, "").await?;
            if super::shard_of(&session.id) == Some(shard) {
                return Ok(session);
            }
        }
        Err(io::Error::other("no session on that shard"))
    }

    /// Publishes on one channel as fast as the server reads, `data_bytes` of data each time.
    pub async fn flood(arena: Arena, channel: &'static str, data_bytes: usize) -> io::Result<u64> {
        let Session { mut socket, id } = Session::open(arena, Peer::default(), "").await?;
        let data = format!("\"{}\"", "x".repeat(data_bytes));
        let frame = text_frame(&batch([channel], &id, &data));
        Ok(arena.again(frame.len(), async || socket.send_raw(&frame).await).await)
    }

    /// Subscribes, to several channels in one message if `channels` is an array in JSON.
    pub async fn subscribe(&mut self, channels: &str, fields: &str) -> io::Result<()> {
        self.ask(&subscribe(&self.id, channels, fields)).await.map(drop)
    }

    /// Sends new credentials and waits for the decision; discards other messages.
    pub async fn refresh(&mut self, token: &str) -> io::Result<()> {
        self.socket.send(&format!("[{}]", refresh(&self.id, token))).await?;
        loop {
            let came: Value = serde_json::from_str(&self.socket.receive().await?).map_err(io::Error::other)?;
            let mine = |message: &&Value| message["channel"] == REFRESH && !message["successful"].is_null();
            match came.as_array().and_then(|all| all.iter().find(mine)) {
                Some(refused) if refused["successful"] == false => return Err(io::Error::other(refused.to_string())),
                // The message is accepted first, and decided about later.
                Some(answer) if !answer["data"].is_null() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends a batch of one message and waits for its reply; discards other messages.
    pub async fn ask(&mut self, text: &str) -> io::Result<Value> {
        ask(&mut self.socket, text).await
    }
}

/// Sends a text and waits for its successful reply.
async fn ask(socket: &mut Socket, text: &str) -> io::Result<Value> {
    socket.send(text).await?;
    loop {
        let came: Value = serde_json::from_str(&socket.receive().await?).map_err(io::Error::other)?;
        let Some(reply) = came.as_array().and_then(|all| all.iter().find(|one| !one["successful"].is_null())) else {
            continue;
        };
        return if reply["successful"] == true { Ok(reply.clone()) } else { Err(io::Error::other(reply.to_string())) };
    }
}

/// A whole text frame. The mask is all zeros, which leaves the text unchanged; a server treats it like any other.
pub fn text_frame(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::masked(Opcode::Text, text.as_bytes(), [0; 4], &mut bytes);
    bytes
}

/// A handshake with more fields.
pub fn handshake(connection: &str, fields: &str) -> String {
    format!(r#"[{{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["{connection}"]{fields}}}]"#)
}

/// A connect that may be held for `timeout_ms`.
pub fn connect(connection: &str, id: &str, timeout_ms: u32) -> String {
    format!(
        r#"[{{"channel":"/meta/connect","connectionType":"{connection}","clientId":"{id}","advice":{{"timeout":{timeout_ms}}}}}]"#
    )
}

/// A subscribe with more fields.
pub fn subscribe(id: &str, channels: &str, fields: &str) -> String {
    format!(r#"[{{"channel":"/meta/subscribe","clientId":"{id}","subscription":{channels}{fields}}}]"#)
}

/// New credentials, for a batch.
pub fn refresh(id: &str, token: &str) -> String {
    format!(r#"{{"channel":"{REFRESH}","clientId":"{id}","id":"r","data":{{"token":"{token}"}}}}"#)
}

/// A publication, for a batch.
pub fn publication(channel: &str, id: &str, data: &str) -> String {
    format!(r#"{{"channel":"{channel}","clientId":"{id}","data":{data}}}"#)
}

/// Publications in turn on channels, with the same data, as a batch.
pub fn batch(channels: impl IntoIterator<Item = impl AsRef<str>>, id: &str, data: &str) -> String {
    let messages: Vec<String> = channels.into_iter().map(|channel| publication(channel.as_ref(), id, data)).collect();
    format!("[{}]", messages.join(","))
}

const REFRESH: &str = "/service/auth/refresh";
/// The number of bytes of one read.
const READ_BYTES: usize = 256 * 1024;
const TRIES: usize = 64;
