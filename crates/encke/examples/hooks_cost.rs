//! The cost of hooks that do not wait: an authorizer and a filter for each publication, and a service beside one that the
//! shard answers itself.
//!
//! ```text
//! cargo run --release -p encke --example hooks_cost
//! ```

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use encke::{Access, Actions, Builder, Grant, Operation, Pending, Publishing, Raw, Server, Settings, Verdict};
use encke_core::{Answer, Application, Service};
use websocket::{Decoder, Event, Flow, Opcode, Role};

type Failure = Box<dyn std::error::Error>;

/// Publications of one measurement.
const ROUNDS: u32 = 5_000_000;
/// Calls of one measurement of a service.
const CALLS: usize = 400_000;
/// Calls on their way at once.
const WINDOW: usize = 256;

fn settings() -> Settings {
    Settings { listen: ([127, 0, 0, 1], 0).into(), shards: 1, application_threads: 1, ..Settings::default() }
}

/// The application that the hooks of a builder make.
fn application(server: Builder) -> Result<Arc<dyn Application>, Failure> {
    struct Nothing;
    impl Application for Nothing {}
    let made = Arc::new(OnceLock::new());
    let slot = made.clone();
    let server = server.settings(settings()).layer(move |inner| {
        _ = slot.set(Arc::<dyn Application>::from(inner));
        Box::new(Nothing)
    });
    // The server lives on: hooks may use it.
    let _running = server.without_listener().start()?;
    made.get().cloned().ok_or("no application".into())
}

/// Nanoseconds of processor time for the decision about one publication.
fn publication_ns(application: &dyn Application) -> f64 {
    let one = |number: u32| {
        let channel = if number.is_multiple_of(2) { "/chat/rooms/7" } else { "/chat/rooms/8" };
        let publishing =
            encke_core::Publishing::new(black_box("a session"), black_box(channel), black_box("\"hello\""));
        assert!(matches!(application.publish(black_box(&publishing)), Answer::Now(Verdict::Forward)));
    };
    (0..ROUNDS / 10).for_each(one);
    let best = (0..5).map(|_| {
        let before = seconds("/proc/thread-self/schedstat".as_ref());
        (0..ROUNDS).for_each(one);
        (seconds("/proc/thread-self/schedstat".as_ref()) - before) * 1e9 / f64::from(ROUNDS)
    });
    best.fold(f64::INFINITY, f64::min)
}

/// Answers calls on the thread of the shard, without a builder.
struct InTheShard;

impl Application for InTheShard {
    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        actions.reply(message.data.unwrap_or("null"));
        None
    }
}

/// Calls for each second of processor time of the shard's thread.
fn calls_per_second(server: Builder) -> Result<f64, Failure> {
    let running = server.settings(settings()).start()?;
    let mut tcp = TcpStream::connect(running.address())?;
    tcp.write_all(
        b"GET /cometd HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
          sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        tcp.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let mut decoder = Decoder::new(Role::Client, 1 << 20);
    let mut read = |tcp: &mut TcpStream, on: &mut dyn FnMut(&str)| -> Result<(), Failure> {
        let mut bytes = [0; 64 * 1024];
        let count = tcp.read(&mut bytes)?;
        let each = &mut |event: Event<'_>| {
            if let Event::Text(text) = event {
                on(text);
            }
            Flow::Continue
        };
        decoder.feed(&mut bytes[..count], each)?;
        if count == 0 { Err("the connection has ended".into()) } else { Ok(()) }
    };
    let write = |tcp: &mut TcpStream, texts: &[&str]| -> Result<(), Failure> {
        let mut frames = Vec::new();
        texts.iter().for_each(|text| websocket::frame::masked(Opcode::Text, text.as_bytes(), [0; 4], &mut frames));
        Ok(tcp.write_all(&frames)?)
    };
    write(&mut tcp, &[r#"{"channel":"/meta/handshake","version":"1.0"}"#])?;
    let mut id = String::new();
    while id.is_empty() {
        read(&mut tcp, &mut |text| {
            let found = text.split_once("\"clientId\":\"").and_then(|(_, rest)| rest.split('"').next());
            id = found.unwrap_or("none").into();
        })?;
    }
    let call = format!(r#"{{"channel":"/service/echo","clientId":"{id}","id":"1","data":{{"order":12345}}}}"#);
    let before = shard_seconds();
    let (mut sent, mut got) = (0, 0);
    while got < CALLS {
        let room = (WINDOW - (sent - got)).min(CALLS - sent);
        if room >= WINDOW / 2 || sent == CALLS - room {
            write(&mut tcp, &vec![call.as_str(); room])?;
            sent += room;
        }
        read(&mut tcp, &mut |text| got += text.matches("\"data\"").count())?;
    }
    let seconds = shard_seconds() - before;
    running.handle().drain();
    running.join();
    Ok(CALLS as f64 / seconds)
}

/// Seconds that the threads of shards have been on a processor.
fn shard_seconds() -> f64 {
    let of = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        name.starts_with("shard-").then(|| seconds(&task.path().join("schedstat")))
    };
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(of).sum()
}

/// Seconds that a thread has been on a processor, where the system tells (Linux).
fn seconds(schedstat: &Path) -> f64 {
    let stat = std::fs::read_to_string(schedstat).unwrap_or_default();
    stat.split_whitespace().next().and_then(|first| first.parse::<f64>().ok()).unwrap_or_default() / 1e9
}

fn main() -> Result<(), Failure> {
    let may = |access: &Access<'_>| match access.operation() {
        Operation::Create | Operation::Subscribe | Operation::Publish => Grant::Grant,
    };
    let passes = |message: &Publishing<'_>| match message.data() {
        Some(data) if data.len() > 1_000 => Verdict::Delete,
        _ => Verdict::Forward,
    };
    let none = publication_ns(&*application(Server::builder())?);
    let elsewhere = publication_ns(&*application(Server::builder().filter("/news/**", passes))?);
    let filter = publication_ns(&*application(Server::builder().filter("/chat/**", passes))?);
    let both = publication_ns(&*application(Server::builder().authorize("/chat/**", may).filter("/chat/**", passes))?);
    println!(
        "a publication: {none:.0} ns without hooks, {elsewhere:.0} with a filter of other channels, {filter:.0} with a filter,"
    );
    println!("{both:.0} with an authorizer and a filter");
    let (mut inside, mut service) = (0.0_f64, 0.0_f64);
    for _ in 0..3 {
        inside = inside.max(calls_per_second(Server::builder().layer(|_| Box::new(InTheShard)))?);
        service = service.max(calls_per_second(Server::builder().service("/service/echo", async |data: Raw| data))?);
    }
    println!(
        "calls for each second of the shard's processor time: {inside:.0} answered in the shard, {service:.0} by a service,"
    );
    println!("{:.2} of it", service / inside);
    Ok(())
}
