//! The floor and the load engine, in the raw dialect.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Membership, Recovery, Transport, Trust};

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

fn clients(floor: &Floor, reconnect: bool) -> Clients {
    let spec = ClientsSpec {
        target: floor.target.clone(),
        trust: Trust::default(),
        transport: Transport::Raw,
        recovery: Recovery::default(),
        compress: false,
        publish_to: None,
        streams_per_connection: None,
        clients: 30,
        membership: Membership { channel: "/bench/a".into(), rooms: 10, per_client: 2, seed: 3, first: 0 },
        publishers: 3,
        opening_at_once: 10,
        opens_per_s: None,
        reconnect,
        no_reply: false,
    };
    Clients::open(&spec, 0, 1, &mut |_| true).expect("open")
}

fn turn_until(clients: &mut Clients, done: impl Fn(&Clients) -> bool) {
    let begin = Instant::now();
    while !done(clients) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?} {:?}", clients.counts(), clients.first_loss());
        clients.turn(Duration::from_millis(20)).expect("turned");
    }
}

fn publish_and_check(clients: &mut Clients, received: u64) {
    for round in 0..100 {
        for publisher in clients.publishers() {
            let planned_us = Clients::clock_us();
            let batch = [round, round + 1].map(|room| PlannedMessage { room: room % 10, planned_us });
            clients.publish(publisher, &batch, 50).expect("published");
        }
        clients.call(0, "", Clients::clock_us(), 40).expect("called");
    }
    let all = [clients.published().clone()];
    let expected = clients.expected(&all);
    assert!(expected > 600);
    turn_until(clients, |clients| clients.counts().received - received == expected);
    assert!(clients.faults(&all).none(), "{:?}", clients.faults(&all));
}

#[test]
fn rooms_receive_their_messages_and_calls_are_answered() {
    let floor = floor();
    let mut clients = clients(&floor, false);
    publish_and_check(&mut clients, 0);
    clients.disconnect();
    assert_eq!((clients.counts().connected, clients.counts().dropped), (0, 0));
}

#[test]
fn rooms_are_joined_again_after_a_cut() {
    let floor = floor();
    let mut clients = clients(&floor, true);
    clients.cut();
    assert_eq!(clients.counts().connected, 0);
    turn_until(&mut clients, |clients| clients.counts().connected == 33);
    publish_and_check(&mut clients, 0);
}
