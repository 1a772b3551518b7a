//! Answers every WebSocket message with itself, over Encke's codec and sockets: for suites that test the protocol.
//!
//! ```text
//! cargo run --release -p encke --example echo -- --port 9001 [--dev-tls]
//! ```

use encke::{ChannelRule, Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (port, dev_tls) = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => (0, false),
        ["--port", port] => (port.parse()?, false),
        ["--port", port, "--dev-tls"] => (port.parse()?, true),
        _ => return Err("usage: echo [--port N [--dev-tls]]".into()),
    };
    let settings = Settings {
        listen: ([127, 0, 0, 1], port).into(),
        dev_tls,
        // The suite's largest message has 16 MiB.
        message_bytes_max: 16 * 1024 * 1024,
        outbox_bytes_max: 64 * 1024 * 1024,
        handshake_timeout_ms: 60_000,
        // It compresses all messages of clients that offer it.
        channels: vec![ChannelRule { pattern: "/**".into(), compress: true, ..ChannelRule::default() }],
        compress_bytes_min: 0,
        ..Settings::default()
    };
    let running = Server::builder().settings(settings).echo().start()?;
    println!("listening on {}://{}", if dev_tls { "wss" } else { "ws" }, running.address());
    running.join();
    Ok(())
}
