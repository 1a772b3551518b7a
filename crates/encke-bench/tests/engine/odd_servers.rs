//! Servers with unusual behaviour, and limits.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use encke::Settings;
use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Transport};
use encke_bench::problem::Problem;
use encke_bench::report::Faults;
use websocket::{Opcode, frame, handshake};

use crate::{arrived, open, publish, spec, start, turn_until};

/// A server that upgrades its one client and then runs `then`.
fn upgrading(then: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepted");
        let lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
        let head: Vec<_> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let key = head.iter().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
        let accept = handshake::accept(key);
        let answer = format!("HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept:{accept}\r\n\r\n");
        (&stream).write_all(answer.as_bytes()).expect("upgraded");
        then(stream);
    });
    address
}

/// Closing with unread data would send a reset, which overtakes the sent data.
fn wait_for_end(stream: TcpStream) {
    let _ = BufReader::new(stream).lines().count();
}

fn one_raw_client(address: SocketAddr) -> Result<Clients, Problem> {
    open(&ClientsSpec { publishers: 0, ..spec(&format!("ws://{address}"), Transport::Raw, 1, 1) })
}

/// The one session is lost for this reason, possibly while the clients are still opening.
fn assert_lost(address: SocketAddr, reason: &str) {
    match one_raw_client(address) {
        Ok(mut clients) => {
            turn_until(&mut clients, |clients| clients.counts().dropped == 1);
            assert_eq!(clients.first_loss(), Some(reason));
        }
        Err(problem) => assert!(problem.to_string().contains(reason), "{problem}"),
    }
}

fn joined() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::message(Opcode::Text, b"+00000", &mut bytes);
    bytes
}

/// A proxy in front of a server. It divides streams into chunks of a few bytes, and leaves their connections open, as nginx may.
fn chunking(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(server).expect("connected");
            let (mut from, mut to) = (client.try_clone().expect("cloned"), upstream.try_clone().expect("cloned"));
            std::thread::spawn(move || io::copy(&mut from, &mut to));
            std::thread::spawn(move || pass_on(upstream, client));
        }
    });
    address
}

fn pass_on(upstream: TcpStream, mut client: TcpStream) -> io::Result<()> {
    let mut upstream = BufReader::new(upstream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        upstream.read_line(&mut head)?;
    }
    if !head.contains("text/event-stream") {
        client.write_all(head.as_bytes())?;
        return io::copy(&mut upstream, &mut client).map(|_| ());
    }
    let fields = head.replace("connection: close\r\n", "").replacen("\r\n", "\r\ntransfer-encoding: chunked\r\n", 1);
    client.write_all(format!("HTTP/1.1 103 Early Hints\r\n\r\n{fields}").as_bytes())?;
    let mut bytes = [0; 7];
    loop {
        let read = upstream.read(&mut bytes)?;
        let chunk = [format!("{read:x}\r\n").as_bytes(), &bytes[..read], b"\r\n"].concat();
        client.write_all(&chunk)?;
        if read == 0 {
            wait_for_end(client);
            return Ok(());
        }
    }
}

#[test]
fn events_that_a_proxy_divides_into_chunks_arrive() {
    let server = start(Settings::default());
    let target = format!("http://{}", chunking(server.address()));
    for ack in [false, true] {
        let mut spec = spec(&target, Transport::Eventsource, 3, 1);
        spec.recovery.ack = ack;
        let mut clients = open(&spec).expect("open");
        for _ in 0..10 {
            publish(&mut clients, 0, &[0, 0]);
        }
        assert_eq!(arrived(&mut clients, 0), Faults::default(), "{ack}");
    }
}

#[test]
fn a_stream_that_ends_without_its_connection_is_lost() {
    let server = start(Settings { stream_max_ms: 300, ..Settings::default() });
    let target = format!("http://{}", chunking(server.address()));
    let mut clients = open(&spec(&target, Transport::Eventsource, 1, 1)).expect("open");
    turn_until(&mut clients, |clients| clients.counts().dropped > 0);
    assert_eq!(clients.first_loss(), Some("ended the stream"));
}

#[test]
fn a_message_in_several_frames_with_a_ping_between_is_put_together() {
    let address = upgrading(|mut stream| {
        let mut bytes = vec![0x01, 3];
        bytes.extend_from_slice(b"+00");
        frame::message(Opcode::Ping, b"?", &mut bytes);
        bytes.extend_from_slice(&[0x00, 1, b'0', 0x80, 2, b'0', b'0']);
        // One by one, as slow networks may bring them.
        for byte in bytes {
            stream.write_all(&[byte]).expect("sent");
        }
        let mut close = Vec::new();
        frame::close(1001, "bye", &mut close);
        stream.write_all(&close).expect("sent");
        wait_for_end(stream);
    });
    assert_lost(address, "closed the WebSocket: 1001 bye");
}

#[test]
fn an_endless_message_is_not_buffered() {
    let address = upgrading(|mut stream| {
        stream.write_all(&joined()).expect("sent");
        let _ = stream.write_all(&[0x81, 127, 0, 0, 0, 1, 0, 0, 0, 0]);
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    assert_lost(address, "sent a message over 16777216 bytes");
}

#[test]
fn unsent_publications_have_a_limit() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let address = upgrading(move |mut stream| {
        stream.write_all(&joined()).expect("sent");
        let _ = wait.recv();
    });
    let mut clients = one_raw_client(address).expect("open");
    let batch = [PlannedMessage { room: 0, planned_us: 0 }; 100];
    let refused = (0..10_000).find_map(|_| clients.publish(0, &batch, 1000).err());
    assert!(matches!(&refused, Some(Problem::Server(text)) if text.contains("too many wait")), "{refused:?}");
    assert_eq!(clients.counts().connected, 1);
    drop(done);
}

#[test]
fn a_masked_frame_and_strange_text_end_the_session() {
    for (bytes, reason) in [
        (&[0x81, 0x80 | 2, 1, 2, 3, 4, 0, 0][..], "sent a masked frame"),
        (&[0x82, 1, 0], "sent a frame that begins with 0x82"),
        (b"\x81\x05hello", "sent neither data nor what was joined: \"hello\""),
    ] {
        let address = upgrading(move |mut stream| {
            stream.write_all(&joined()).expect("sent");
            stream.write_all(bytes).expect("sent");
            wait_for_end(stream);
        });
        assert_lost(address, reason);
    }
}
