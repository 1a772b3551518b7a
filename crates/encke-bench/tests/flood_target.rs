//! `encke flood-target`, both ways, over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use encke_bench::flood_target::{FloodTarget, Io, LogTo, TargetOptions};

const TIMEOUT: Duration = Duration::from_secs(60);

fn start(io: Io, connections_max: u32) -> FloodTarget {
    let chunk_every = Duration::from_millis(50);
    let options = TargetOptions { io, port: 0, chunk_every, connections_max: Some(connections_max), stack: 64 * 1024 };
    FloodTarget::start(&options, LogTo::Nowhere).expect("a target")
}

fn ask(target: &FloodTarget, request: &str) -> BufReader<TcpStream> {
    let mut tcp = TcpStream::connect(target.address).expect("a connection");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    tcp.write_all(format!("{request}\r\nhost: a\r\n\r\n").as_bytes()).expect("sent");
    BufReader::new(tcp)
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}

/// The text of the next chunk.
fn chunk(from: &mut BufReader<TcpStream>) -> String {
    let bytes = usize::from_str_radix(&line(from), 16).expect("a length");
    let mut text = vec![0; bytes + 2];
    from.read_exact(&mut text).expect("a chunk");
    String::from_utf8(text).expect("text").trim_end().to_owned()
}

fn head(from: &mut BufReader<TcpStream>) -> Vec<String> {
    std::iter::from_fn(|| Some(line(from)).filter(|line| !line.is_empty())).collect()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stream_begins_with_a_welcome_and_goes_on_with_numbered_chunks() {
    for io in [Io::Async, Io::Threads] {
        let target = start(io, 100);
        let mut streams: Vec<_> = (0..20).map(|id| ask(&target, &format!("GET /comet?id={id} HTTP/1.1"))).collect();
        for (id, stream) in streams.iter_mut().enumerate() {
            let head = head(stream);
            assert_eq!(head[0], "HTTP/1.1 200 OK");
            assert!(head.contains(&"transfer-encoding: chunked".into()), "{head:?}");
            assert_eq!(chunk(stream), format!("Welcome! Your Id: {id}"));
            for number in 1..=3 {
                assert_eq!(chunk(stream), format!("Chunk {number} for Id: {id}"), "{io:?}");
            }
        }
        assert_eq!(target.connections(), 20);
        drop(streams);
        wait_until("the connections are forgotten", || target.connections() == 0);
    }
}

#[test]
fn other_requests_are_refused() {
    for io in [Io::Async, Io::Threads] {
        let target = start(io, 100);
        for (request, status) in [
            ("GET /comet HTTP/1.1", "400"),
            ("GET / HTTP/1.1", "404"),
            ("POST /comet?id=1 HTTP/1.1", "405"),
            ("nonsense", "400"),
        ] {
            let answer = line(&mut ask(&target, request));
            assert_eq!(answer.split(' ').nth(1), Some(status), "{io:?} {request}");
        }
        let endless = "x".repeat(10_000);
        assert_eq!(line(&mut ask(&target, &endless)).split(' ').nth(1), Some("431"), "{io:?}");
    }
}

#[test]
fn more_connections_than_allowed_are_refused_until_others_leave() {
    for io in [Io::Async, Io::Threads] {
        let target = start(io, 2);
        let mut open: Vec<_> = (0..2).map(|_| ask(&target, "GET /comet?id=1 HTTP/1.1")).collect();
        for stream in &mut open {
            assert_eq!(line(stream), "HTTP/1.1 200 OK");
        }
        // The refusal comes at once: data that the client sends meanwhile may reset the connection before it has read
        // it.
        let mut refused = TcpStream::connect(target.address).expect("a connection");
        let mut answer = String::new();
        refused.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        refused.read_to_string(&mut answer).expect("an end");
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        drop(open);
        wait_until("there is room again", || target.connections() == 0);
        assert_eq!(line(&mut ask(&target, "GET /comet?id=3 HTTP/1.1")), "HTTP/1.1 200 OK");
    }
}
