//! The load engine against the real server.

mod crowds;
mod failures;
mod odd_servers;
mod reconnect;

use std::time::{Duration, Instant};

use encke::ChannelRule;
use encke::{Running, Server, Settings};
use encke_bench::engine::{Crowd, Publication};
use encke_bench::problem::Problem;
use encke_bench::report::Faults;
use encke_bench::run::{CrowdSpec, Membership, Recovery, Transport};
use encke_demo::Demo;

/// A server on a free port; it ends with the test.
fn server() -> (Running, String) {
    server_with(Vec::new())
}

/// The same with rules for channels.
fn server_with(channels: Vec<ChannelRule>) -> (Running, String) {
    let listen = ([127, 0, 0, 1], 0).into();
    let settings =
        Settings { listen, shards: 1, timeout_ms: 2_000, drain_timeout_ms: 0, channels, ..Settings::default() };
    let running = Server::new(settings).application(Demo::default()).start().expect("the server starts");
    let target = format!("http://{}", running.address());
    (running, target)
}

fn spec(target: &str, transport: Transport, clients: u32, rooms: u32) -> CrowdSpec {
    CrowdSpec {
        target: target.into(),
        transport,
        recovery: Recovery::default(),
        clients,
        membership: Membership { channel: "/bench/a".into(), rooms, per_client: 1, seed: 1, first: 0 },
        publishers: 2,
        opening_at_once: 100,
        opens_per_s: None,
        reconnect: false,
    }
}

fn open(spec: &CrowdSpec) -> Result<Crowd, Problem> {
    Crowd::open(spec, 0, 1, &mut |_| true)
}

/// Publishes once to each of `rooms`.
fn publish(crowd: &mut Crowd, session: usize, rooms: &[u32]) {
    let planned_us = Crowd::clock_us();
    let batch: Vec<_> = rooms.iter().map(|&room| Publication { room, planned_us }).collect();
    crowd.publish(session, &batch, 50).expect("published");
}

/// Turns until `done`, for as long as a busy machine may take.
fn turn_until(crowd: &mut Crowd, mut done: impl FnMut(&Crowd) -> bool) {
    let begin = Instant::now();
    while !done(crowd) {
        assert!(begin.elapsed() < PATIENCE, "{:?} {:?}", crowd.counts(), crowd.first_loss());
        crowd.turn(Duration::from_millis(20)).expect("turned");
    }
}

/// Waits until all has arrived, and says what is wrong then.
fn arrived(crowd: &mut Crowd, received_before: u64) -> Faults {
    let all = [crowd.published().clone()];
    let expected = crowd.expected(&all);
    turn_until(crowd, |crowd| crowd.counts().received - received_before >= expected);
    crowd.faults(&all)
}

const PATIENCE: Duration = Duration::from_secs(60);
