//! The load engine against the real server.

mod clients;
mod failures;
mod http2;
mod odd_servers;
mod reconnect;
mod tls;

use std::time::{Duration, Instant};

use encke::ChannelRule;
use encke::{Running, Server, Settings};
use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Membership, Recovery, Transport, Trust};
use encke_bench::problem::Problem;
use encke_bench::report::Faults;
use encke_demo::Demo;

/// A server on a free port; it ends with the test.
fn server() -> (Running, String) {
    server_with(Vec::new())
}

/// The same with rules for channels.
fn server_with(channels: Vec<ChannelRule>) -> (Running, String) {
    let running = start(Settings { channels, ..Settings::default() });
    let target = format!("http://{}", running.address());
    (running, target)
}

/// The same with other settings.
fn start(settings: Settings) -> Running {
    let listen = ([127, 0, 0, 1], 0).into();
    let settings = Settings { listen, shards: 1, timeout_ms: 2_000, drain_timeout_ms: 0, ..settings };
    Demo::default().install(Server::builder().settings(settings)).start().expect("the server starts")
}

fn spec(target: &str, transport: Transport, clients: u32, rooms: u32) -> ClientsSpec {
    ClientsSpec {
        target: target.into(),
        trust: Trust::default(),
        transport,
        recovery: Recovery::default(),
        compress: false,
        publish_to: None,
        streams_per_connection: None,
        clients,
        membership: Membership { channel: "/bench/a".into(), rooms, per_client: 1, seed: 1, first: 0 },
        publishers: 2,
        opening_at_once: 100,
        opens_per_s: None,
        reconnect: false,
        no_reply: false,
    }
}

fn open(spec: &ClientsSpec) -> Result<Clients, Problem> {
    Clients::open(spec, 0, 1, &mut |_| true)
}

/// Publishes once to each of `rooms`.
fn publish(clients: &mut Clients, session: usize, rooms: &[u32]) {
    let planned_us = Clients::clock_us();
    let batch: Vec<_> = rooms.iter().map(|&room| PlannedMessage { room, planned_us }).collect();
    clients.publish(session, &batch, 50).expect("published");
}

/// Turns until `done`, for as long as a busy machine may take.
fn turn_until(clients: &mut Clients, mut done: impl FnMut(&Clients) -> bool) {
    let begin = Instant::now();
    while !done(clients) {
        assert!(begin.elapsed() < TIMEOUT, "{:?} {:?}", clients.counts(), clients.first_loss());
        clients.turn(Duration::from_millis(20)).expect("turned");
    }
}

/// Waits until everything has arrived, and returns the faults.
fn arrived(clients: &mut Clients, received_before: u64) -> Faults {
    let all = [clients.published().clone()];
    let expected = clients.expected(&all);
    turn_until(clients, |clients| clients.counts().received - received_before >= expected);
    clients.faults(&all)
}

const TIMEOUT: Duration = Duration::from_secs(60);
