//! The floor and the load engine, in the raw dialect.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use encke_bench::engine::{Crowd, Publication};
use encke_bench::run::{CrowdSpec, Membership, Recovery, Transport};

struct Floor {
    process: Child,
    target: String,
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn floor() -> Floor {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floor"));
    let mut process = command.stdout(Stdio::piped()).spawn().expect("the floor starts");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect("its address");
    Floor { target: format!("ws://{address}"), process }
}

fn crowd(floor: &Floor, reconnect: bool) -> Crowd {
    let spec = CrowdSpec {
        target: floor.target.clone(),
        transport: Transport::Raw,
        recovery: Recovery::default(),
        clients: 30,
        membership: Membership { channel: "/bench/a".into(), rooms: 10, per_client: 2, seed: 3, first: 0 },
        publishers: 3,
        opening_at_once: 10,
        opens_per_s: None,
        reconnect,
    };
    Crowd::open(&spec, 0, 1, &mut |_| true).expect("open")
}

fn turn_until(crowd: &mut Crowd, done: impl Fn(&Crowd) -> bool) {
    let begin = Instant::now();
    while !done(crowd) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?} {:?}", crowd.counts(), crowd.first_loss());
        crowd.turn(Duration::from_millis(20)).expect("turned");
    }
}

fn publish_and_check(crowd: &mut Crowd, received: u64) {
    for round in 0..100 {
        for publisher in crowd.publishers() {
            let planned_us = Crowd::clock_us();
            let batch = [round, round + 1].map(|room| Publication { room: room % 10, planned_us });
            crowd.publish(publisher, &batch, 50).expect("published");
        }
        crowd.call(0, "", Crowd::clock_us(), 40).expect("called");
    }
    let all = [crowd.published().clone()];
    let expected = crowd.expected(&all);
    assert!(expected > 600);
    turn_until(crowd, |crowd| crowd.counts().received - received == expected);
    assert!(crowd.faults(&all).none(), "{:?}", crowd.faults(&all));
}

#[test]
fn rooms_get_what_is_sent_to_them_and_calls_are_answered() {
    let floor = floor();
    let mut crowd = crowd(&floor, false);
    publish_and_check(&mut crowd, 0);
    crowd.leave();
    assert_eq!((crowd.counts().connected, crowd.counts().dropped), (0, 0));
}

#[test]
fn rooms_are_joined_again_after_a_cut() {
    let floor = floor();
    let mut crowd = crowd(&floor, true);
    crowd.cut();
    assert_eq!(crowd.counts().connected, 0);
    turn_until(&mut crowd, |crowd| crowd.counts().connected == 33);
    publish_and_check(&mut crowd, 0);
}
