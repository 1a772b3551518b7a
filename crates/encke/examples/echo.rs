//! Answers every WebSocket message with itself, over Encke's codec and sockets: for suites that test the protocol.
//!
//! ```text
//! cargo run --release -p encke --example echo -- --port 9001
//! ```

use encke::{ChannelRule, Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => 0,
        (Some("--port"), Some(port)) => port.parse()?,
        _ => return Err("usage: echo [--port N]".into()),
    };
    let settings = Settings {
        listen: ([127, 0, 0, 1], port).into(),
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
    println!("listening on ws://{}", running.address());
    running.join();
    Ok(())
}
