//! Publishes over Encke's HTTP API and reads the history. A larger program takes an HTTP client such as `reqwest`.
//!
//! ```text
//! ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… cargo run -p encke --example http_api
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::{env, process, thread, time::Duration};

use serde_json::{Value, json};

/// Calls an operation, and tries again while the server is busy. With a key a repeated request publishes nothing twice.
fn call(method: &str, path: &str, body: Option<Value>, key: Option<&str>) -> Result<Value, Box<dyn Error>> {
    let url = env::var("ENCKE_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".into());
    let host = url.trim_start_matches("http://");
    let body = body.map_or(String::new(), |body| body.to_string());
    let mut head = format!("{method} /api/v1{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    head += &format!("Authorization: Bearer {}\r\n", env::var("ENCKE_API_KEY")?);
    if !body.is_empty() {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    if let Some(key) = key {
        head += &format!("Idempotency-Key: {key}\r\n");
    }
    for attempt in 1..=5 {
        let mut tcp = TcpStream::connect(host)?;
        tcp.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut response = String::new();
        tcp.read_to_string(&mut response)?;
        let (head, answer) = response.split_once("\r\n\r\n").ok_or("no answer")?;
        match head.split(' ').nth(1) {
            Some("200") => return Ok(serde_json::from_str(answer)?),
            Some("503") => thread::sleep(Duration::from_secs(attempt)),
            _ => return Err(answer.into()),
        }
    }
    Err("the server is busy".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let channel = format!("/history/rust-{}", process::id());
    let message = json!({"channel": channel, "data": {"price": 42}});
    println!("publish: {}", call("POST", "/publish", Some(message), Some(&channel))?);
    let messages = json!([{"channels": [channel], "data": 0}, {"channels": [channel, "/news"], "data": 1}]);
    println!("batch: {}", call("POST", "/publish/batch", Some(json!({ "messages": messages })), None)?);
    let history = call("GET", &format!("/history?channel={channel}"), None, None)?;
    println!("history: {} messages", history["messages"].as_array().map_or(0, Vec::len));
    Ok(())
}
