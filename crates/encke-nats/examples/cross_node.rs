//! Deliveries to 100 streams of one node: published on the same node, and on another one, in turns. The argument is the URL of a NATS
//! server, or several.
//!
//! ```sh
//! cargo run --release -p encke-nats --example cross_node -- nats://127.0.0.1:4222
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use encke::{ClusterSettings, Handle, PublishError, Running, Server, Settings};
use encke_nats::{Nats, NatsSettings};

const STREAMS: usize = 100;
const MESSAGES: usize = 100_000;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    let (publisher, subscriber) = (node(&servers)?, node(&servers)?);
    let (mut same, mut cross) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        // The first round warms up, and connects.
        let measured = [rate(&subscriber, &subscriber.handle())?, rate(&subscriber, &publisher.handle())?];
        if round > 0 {
            same.push(measured[0]);
            cross.push(measured[1]);
        }
    }
    same.sort_by(f64::total_cmp);
    cross.sort_by(f64::total_cmp);
    let (same, cross) = (same[ROUNDS / 2], cross[ROUNDS / 2]);
    println!("same node: {same:.0} deliveries/s; other node: {cross:.0}; ratio {:.2}", cross / same);
    Ok(())
}

/// A node with one shard.
fn node(servers: &[String]) -> Result<Running, Box<dyn std::error::Error>> {
    let cluster = ClusterSettings::default();
    let nats = NatsSettings { servers: servers.to_vec(), ..NatsSettings::default() };
    let engine = Nats::new(nats, &cluster.name)?;
    let settings = Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: 1,
        // Nobody is slow here.
        outbox_messages_max: MESSAGES,
        outbox_bytes_max: 64 * 1024 * 1024,
        ..Settings::default()
    };
    Ok(Server::builder().settings(settings).cluster(cluster, engine).start()?)
}

/// Deliveries a second to the streams of a node, of messages that a handle publishes.
fn rate(subscriber: &Running, publisher: &Handle) -> Result<f64, Box<dyn std::error::Error>> {
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = TcpStream::connect(subscriber.address())?;
        stream.write_all(b"GET /stream/figures HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/x-ndjson\r\n\r\n")?;
        streams.push(stream);
    }
    let wait = Duration::from_secs(1);
    // The interest of a new node may need a moment to arrive.
    std::thread::sleep(wait);
    let readers: Vec<_> = streams.into_iter().map(|stream| std::thread::spawn(move || read_to_end(stream))).collect();
    let started = Instant::now();
    for number in 0..MESSAGES {
        publish(publisher, &format!("\"{number:050}\""))?;
    }
    publish(publisher, "\"end\"")?;
    for reader in readers {
        reader.join().map_err(|_| "a reader panicked")??;
    }
    Ok((STREAMS * MESSAGES) as f64 / started.elapsed().as_secs_f64())
}

fn publish(handle: &Handle, data: &str) -> Result<(), PublishError> {
    loop {
        match handle.publish("/figures", data) {
            Err(PublishError::Busy) => std::thread::sleep(Duration::from_micros(100)),
            done => return done,
        }
    }
}

/// Reads until the last message.
fn read_to_end(mut stream: TcpStream) -> std::io::Result<()> {
    let (mut buffer, mut used) = (vec![0; 256 * 1024], 0);
    loop {
        let count = stream.read(&mut buffer[used..])?;
        let bytes = &buffer[..used + count];
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if bytes.windows(5).rev().take(64).any(|end| end == b"\"end\"") {
            return Ok(());
        }
        // The last message may come in two pieces.
        let rest = bytes.len().min(64);
        let from = bytes.len() - rest;
        buffer.copy_within(from..from + rest, 0);
        used = rest;
    }
}
