//! Clients that speak TLS.

use std::fs;
use std::path::PathBuf;

use encke::Settings;
use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Transport, Trust};
use encke_bench::problem::Problem;

use crate::{arrived, open, publish, spec, start, turn_until};

#[test]
fn everything_arrives_over_tls() {
    let server = start(Settings { dev_tls: true, ..Settings::default() });
    for (transport, scheme) in [(Transport::Websocket, "wss"), (Transport::LongPolling, "https")] {
        let target = format!("{scheme}://{}", server.address());
        let mut clients = open(&spec(&target, transport, 6, 3)).expect("open");
        // The longest ones take several records and several reads, both ways.
        for data_bytes in [50, 5_000, 60_000] {
            for publisher in clients.publishers() {
                let planned_us = Clients::clock_us();
                let batch: Vec<_> = (0..12).map(|at| PlannedMessage { room: at % 3, planned_us }).collect();
                batch.chunks(4).for_each(|batch| clients.publish(publisher, batch, data_bytes).expect("published"));
            }
        }
        let faults = arrived(&mut clients, 0);
        assert!(faults.none(), "{faults:?} {transport:?}");
        assert_eq!(clients.counts().received, 3 * 2 * 12 * 2);
        clients.disconnect();
    }
}

#[test]
fn sessions_come_back_over_tls_after_a_cut() {
    let server = start(Settings { dev_tls: true, ..Settings::default() });
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let target = format!("https://{}", server.address());
        let mut clients = open(&ClientsSpec { reconnect: true, ..spec(&target, transport, 10, 2) }).expect("open");
        let publisher = clients.publishers().start;
        clients.cut();
        turn_until(&mut clients, |clients| clients.counts().connected == 12);
        publish(&mut clients, publisher, &[0, 1]);
        assert!(arrived(&mut clients, 0).lost == 0, "{transport:?}");
        clients.disconnect();
    }
}

#[test]
fn connections_resume_sessions_by_tickets_if_they_are_to() {
    let server = start(Settings { dev_tls: true, ..Settings::default() });
    for tls_tickets in [true, false] {
        let trust = Trust { tls_tickets, ..Trust::default() };
        let target = format!("https://{}", server.address());
        // Each one has the tickets of those before it.
        let spec = ClientsSpec { trust, opening_at_once: 1, ..spec(&target, Transport::Websocket, 20, 2) };
        let mut clients = open(&spec).expect("open");
        assert_eq!(clients.resumed() > 0, tls_tickets, "{} resumed", clients.resumed());
        clients.disconnect();
    }
}

/// A certificate for loopback that signs itself, as a file, and the file of its key.
fn certificate(name: &str) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let file = |end: &str| std::env::temp_dir().join(format!("encke-bench-{}-{name}.{end}", std::process::id()));
    let (cert, key) = (file("pem"), file("key"));
    fs::write(&cert, made.cert.pem()).expect("written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    (cert, key)
}

#[test]
fn a_file_of_certificates_decides_which_server_is_accepted() {
    let (cert, key) = certificate("own");
    let (other, other_key) = certificate("other");
    let path = |file: &PathBuf| file.display().to_string();
    let server = start(Settings { tls_cert: path(&cert), tls_key: path(&key), ..Settings::default() });
    let open_with = |ca: Option<&PathBuf>, insecure, transport| {
        let trust = Trust { ca: ca.cloned(), insecure, ..Trust::default() };
        open(&ClientsSpec { trust, ..spec(&format!("https://{}", server.address()), transport, 2, 1) })
    };
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        open_with(Some(&cert), false, transport).expect("its own");
        open_with(Some(&other), true, transport).expect("any");
        open_with(None, false, transport).expect("any, on loopback");
        let problem = open_with(Some(&other), false, transport).expect_err("another one");
        let words = "it speaks no TLS that is accepted: invalid peer certificate";
        assert!(matches!(&problem, Problem::NotBayeux { reason, .. } if reason.starts_with(words)), "{problem:?}");
    }
    [cert, key, other, other_key].iter().for_each(|file| fs::remove_file(file).expect("it was there"));
}

#[test]
fn a_server_without_tls_is_no_server_with_tls() {
    let server = start(Settings::default());
    let problem = open(&spec(&format!("wss://{}", server.address()), Transport::Websocket, 1, 1)).expect_err("no TLS");
    let words = "speaks no TLS that is accepted";
    assert!(matches!(&problem, Problem::NotBayeux { reason, .. } if reason.contains(words)), "{problem:?}");
}
