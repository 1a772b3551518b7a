//! A backend for webhooks and for the proxy, whose answers depend on the words in a request: attackers ask for bad ones.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// Starts a backend, which ends with the process. Returns its address.
///
/// # Errors
/// Loopback or a thread is not available.
pub fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("backend".into()).spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A connection without a thread is closed, and the server opens another one.
            let _ = thread::Builder::new().name("backend".into()).spawn(|| serve(stream));
        }
    })?;
    Ok(address)
}

/// Answers the requests of a connection until it ends.
fn serve(mut stream: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line)? > 2 {
            head += &line.to_ascii_lowercase();
            line.clear();
        }
        if head.is_empty() {
            return Ok(());
        }
        let field = |line: &str| line.strip_prefix("content-length:")?.trim().parse().ok();
        let mut body = vec![0; head.lines().find_map(field).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body);
        let says = |word: &str| head.contains(word) || body.contains(word);
        if says(SLOW) {
            thread::sleep(SLOWNESS);
        }
        let status = if says(POISON) { "500 Internal Server Error" } else { "200 OK" };
        let answer = answer(&body).to_string();
        let length = answer.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{answer}").as_bytes())?;
    }
}

/// The answer to an event; that to another request does not matter.
fn answer(body: &str) -> Value {
    let event: Value = serde_json::from_str(body).unwrap_or_default();
    match event["type"].as_str() {
        Some("handshake") => match event["data"]["ext"]["user"].as_str() {
            Some(user) => json!({"allow": true, "user": user}),
            None => json!({"allow": true}),
        },
        Some("refresh") => json!({"allow": true, "user": event["data"]["user"]}),
        Some(_) => json!({"allow": true}),
        None => json!([]),
    }
}

/// The word in a request that is answered late.
pub const SLOW: &str = "slow-answer";
/// The word in a request that is answered with an error.
pub const POISON: &str = "poison";
/// Half the time after which a webhook gives up.
const SLOWNESS: Duration = Duration::from_secs(1);
