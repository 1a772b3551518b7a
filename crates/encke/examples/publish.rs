//! Measures how fast one application thread publishes 50 bytes.
//!
//! ```text
//! cargo run --release -p encke --example publish -- [SUBSCRIBERS] [MESSAGES] [PER_SECOND] [CHANNELS]
//! ```
//!
//! Subscribers are WebSockets that one more thread reads; they share the channels evenly, and messages go to each channel in turn. It
//! prints how many messages a second were taken, how many deliveries a second arrived, and the time that the publishing thread spent
//! in `publish`. A message that is refused because the server is busy is published again, so none is lost. Where the reading
//! thread cannot keep up, sessions are ended as slow, and the run fails: then the rate is to be given.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use encke::{PublishError, Server, Settings};
use websocket::{Decoder, Event, Flow, Opcode, Role};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Subscriber {
    tcp: TcpStream,
    decoder: Decoder,
}

impl Subscriber {
    fn open(address: SocketAddr, channel: &str) -> Result<Subscriber, Failure> {
        let mut tcp = TcpStream::connect(address)?;
        let request = "GET /cometd HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        tcp.write_all(request.as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tcp.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let mut subscriber = Subscriber { tcp, decoder: Decoder::new(Role::Client, 1 << 20) };
        let reply = subscriber.call(r#"{"channel":"/meta/handshake","version":"1.0"}"#)?;
        let id = reply.split_once("\"clientId\":\"").and_then(|(_, rest)| rest.split('"').next()).ok_or("no id")?;
        subscriber.call(&format!(
            r#"{{"channel":"/meta/connect","clientId":"{id}","connectionType":"websocket","advice":{{"timeout":0}}}}"#
        ))?;
        subscriber.call(&format!(r#"{{"channel":"/meta/subscribe","clientId":"{id}","subscription":"{channel}"}}"#))?;
        Ok(subscriber)
    }

    fn call(&mut self, text: &str) -> Result<String, Failure> {
        let mut frame = Vec::new();
        websocket::frame::masked(Opcode::Text, text.as_bytes(), [0; 4], &mut frame);
        self.tcp.write_all(&frame)?;
        let mut reply = String::new();
        while reply.is_empty() {
            self.read(|text| reply.push_str(text))?;
        }
        Ok(reply)
    }

    fn read(&mut self, mut on: impl FnMut(&str)) -> Result<(), Failure> {
        let mut bytes = [0; 64 * 1024];
        let count = self.tcp.read(&mut bytes)?;
        if count == 0 {
            return Err("the connection has ended".into());
        }
        self.decoder.feed(&mut bytes[..count], &mut |event| {
            if let Event::Text(text) = event {
                on(text);
            }
            Flow::Continue
        })?;
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let subscribers = arguments.next().transpose()?.unwrap_or(100);
    let messages = arguments.next().transpose()?.unwrap_or(1_000_000);
    let per_second = arguments.next().transpose()?.unwrap_or(usize::MAX);
    let channels = arguments.next().transpose()?.unwrap_or(1).max(1);
    let names: Vec<String> = (0..channels).map(|number| format!("/news/{number}")).collect();
    let running =
        Server::builder().settings(Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() }).start()?;
    let (address, handle) = (running.address(), running.handle());
    // Each with the number of messages that it is to get.
    let open = |number: usize| -> Result<_, Failure> {
        let channel = number % channels;
        Ok((Subscriber::open(address, &names[channel])?, (messages + channels - 1 - channel) / channels))
    };
    let mut waiting = (0..subscribers).map(open).collect::<Result<Vec<_>, _>>()?;
    let deliveries: usize = waiting.iter().map(|(_, wanted)| wanted).sum();
    let reader = std::thread::spawn(move || -> Result<(), Failure> {
        for (subscriber, _) in &waiting {
            // A wait for one of them would let the others fall behind.
            subscriber.tcp.set_nonblocking(true)?;
        }
        while !waiting.is_empty() {
            let mut any = 0;
            waiting.retain(|(_, wanted)| *wanted > 0);
            for (subscriber, wanted) in &mut waiting {
                let mut got = 0;
                match subscriber.read(|_| got += 1) {
                    Err(error) if is_would_block(&*error) => continue,
                    result => result?,
                }
                // More than it wants would be a message twice.
                *wanted = wanted.checked_sub(got).ok_or("a message came twice")?;
                any += got;
            }
            if any == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    });
    let data = format!("\"{}\"", "x".repeat(48));
    let started = Instant::now();
    let mut busy = 0_u64;
    for number in 0..messages {
        while number as f64 > started.elapsed().as_secs_f64() * per_second as f64 {
            std::thread::sleep(Duration::from_micros(200));
        }
        while let Err(error) = handle.publish(&names[number % channels], &data) {
            if error != PublishError::Busy {
                return Err(error.into());
            }
            busy += 1;
            std::thread::yield_now();
        }
    }
    let published = started.elapsed().as_secs_f64();
    let on_processor = on_processor();
    reader.join().map_err(|_| "the reader has panicked")??;
    let arrived = started.elapsed().as_secs_f64();
    println!(
        "{subscribers} subscribers, {channels} channels: {:.0} messages/s taken, {:.0} deliveries/s arrived, busy {busy} times",
        messages as f64 / published,
        deliveries as f64 / arrived
    );
    if let Some(seconds) = on_processor {
        println!("the publishing thread: {:.0} ns of processor time a message", seconds * 1e9 / messages as f64);
    }
    handle.drain();
    running.join();
    Ok(())
}

fn is_would_block(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Seconds that this thread has been on a processor, where the system tells (Linux).
fn on_processor() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}
