//! The server that the interoperability tests drive: Encke with the demo's services, and commands on standard input.
//!
//! ```text
//! cargo run --release -p encke --example interop_server -- --port 8080 --set timeout_ms=2000
//! listening on http://127.0.0.1:8080
//! > publish /news {"a":1}      ok
//! > kick <clientId>            ok | unknown
//! > sessions                   sessions 3
//! > quit                       (stops gracefully; so does the end of the input)
//! ```

use std::io::BufRead;

use encke::{Asset, Handle, Server, Settings, StoreMessageError};
use encke_demo::Demo;
use tokio::runtime::Runtime;

/// A page for browsers to stand on.
const PAGE: &[Asset] = &[Asset::new(
    "/",
    "text/html; charset=utf-8",
    b"<!doctype html><title>Encke interoperability</title><p>Encke",
    "\"1\"",
)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::builder().settings(settings(std::env::args().skip(1))?).assets(PAGE);
    let running = Demo::default().install(server).start()?;
    let scheme = if running.has_tls() { "https" } else { "http" };
    println!("listening on {scheme}://{}", running.address());
    let (handle, runtime) = (running.handle(), tokio::runtime::Builder::new_current_thread().build()?);
    for line in std::io::stdin().lock().lines() {
        match obey(&handle, &runtime, &line?) {
            Some(answer) => println!("{answer}"),
            None => break,
        }
    }
    handle.drain();
    running.join();
    Ok(())
}

/// One command; None to stop.
fn obey(handle: &Handle, runtime: &Runtime, line: &str) -> Option<String> {
    let mut words = line.splitn(3, ' ');
    Some(match (words.next().unwrap_or_default(), words.next(), words.next()) {
        ("quit", ..) => return None,
        ("sessions", ..) => format!("sessions {}", handle.sessions()),
        ("kick", Some(id), None) => if handle.disconnect(id) { "ok" } else { "unknown" }.into(),
        // A test may kill the server after the answer: only a message that is stored then survives.
        ("publish", Some(channel), Some(json)) => match runtime.block_on(handle.publish_stored(channel, json)) {
            Ok(_) | Err(StoreMessageError::NoHistory(_)) => "ok".into(),
            Err(error) => format!("error {error}"),
        },
        _ => "error: kick ID, publish CHANNEL JSON, sessions, quit".into(),
    })
}

/// `--port N` and `--set name=value`, the names being those of [`Settings`].
fn settings(mut arguments: impl Iterator<Item = String>) -> Result<Settings, Box<dyn std::error::Error>> {
    let mut values = serde_json::to_value(Settings::default())?;
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or("a flag without a value")?;
        match flag.as_str() {
            "--port" => values["listen"] = format!("127.0.0.1:{value}").into(),
            "--set" => {
                let (name, value) = value.split_once('=').ok_or("--set wants name=value")?;
                values[name] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            }
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    Ok(serde_json::from_value(values)?)
}
