//! Measures publishing over the HTTP API beside publishing over a WebSocket, and beside a floor that answers the same requests: rate, and processor time of the server for each publication.
//!
//! ```text
//! api ENCKE FLOOR --core 0 --seconds 5 --into docs/benchmarks/api.md
//! ```
//!
//! The server is another process with one shard; a subscriber reads everything. Publishers are closed loops: each sends
//! a request, or a frame, when it has the answer to the one before.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

#[derive(Parser)]
struct Args {
    /// The program to measure.
    encke: PathBuf,
    /// The program `api_floor`.
    floor: PathBuf,
    /// The core of the server.
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// The time of each measurement, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Measurements of each kind; the page shows the median.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The page to write.
    #[arg(long)]
    into: Option<PathBuf>,
}

/// A way to publish.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Publications in one request or frame.
    batch: usize,
    /// Publishers at once.
    connections: usize,
    way: Way,
    /// The least rate that Encke promises, in publications for each second of processor time.
    promised: Option<f64>,
}

/// The transport and the server of publications.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Http,
    WebSocket,
    /// HTTP, to the floor.
    Floor,
}

/// Those that are compared stand together, in the order of [`Way`].
const KINDS: [Kind; 6] = [
    Kind { name: "HTTP API, batches of 100", batch: 100, connections: 4, way: Way::Http, promised: Some(200_000.0) },
    Kind { name: "WebSocket, batches of 100", batch: 100, connections: 4, way: Way::WebSocket, promised: None },
    Kind { name: "Floor, batches of 100", batch: 100, connections: 4, way: Way::Floor, promised: None },
    Kind { name: "HTTP API, singly", batch: 1, connections: 16, way: Way::Http, promised: Some(15_000.0) },
    Kind { name: "WebSocket, singly", batch: 1, connections: 16, way: Way::WebSocket, promised: None },
    Kind { name: "Floor, singly", batch: 1, connections: 16, way: Way::Floor, promised: None },
];

/// The outcome of one measurement.
#[derive(Clone, Copy)]
struct Outcome {
    /// Publications in a second.
    rate: f64,
    /// Publications in a second of the server's processor time.
    per_core: f64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("api: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> io::Result<bool> {
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); KINDS.len()];
    for round in 0..args.rounds {
        for (kind, outcomes) in KINDS.iter().zip(&mut outcomes) {
            let outcome = measure(args, *kind)?;
            eprintln!("{round} {}: {:.0}/s, {:.0}/s of a core", kind.name, outcome.rate, outcome.per_core);
            outcomes.push(outcome);
        }
    }
    let medians: Vec<Outcome> = outcomes.into_iter().map(median).collect();
    let page = page(&medians);
    print!("{page}");
    if let Some(path) = &args.into {
        std::fs::write(path, page)?;
    }
    let keeps = |(kind, outcome): (&Kind, &Outcome)| kind.promised.is_none_or(|least| outcome.per_core >= least);
    Ok(KINDS.iter().zip(&medians).all(keeps))
}

fn median(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.sort_by(|one, other| one.per_core.total_cmp(&other.per_core));
    outcomes[outcomes.len() / 2]
}

fn page(medians: &[Outcome]) -> String {
    let mut page = String::from(
        "# Publishing over the HTTP API

Made by `make bench-api`. The server has one shard on one core, and a subscriber that gets every message. Publishers are closed loops with
connections that stay open: 4 that send batches of 100, 16 that send messages singly. A message has about 50 bytes of data, on one of ten
channels. *Of a core* are publications for each second of processor time of the server, which other work on the machine does not change
much. The floor (`benches/src/bin/api_floor.rs`) answers the same requests with the same bytes and checks nothing; *CPU ÷ floor* is the processor
time of a publication, divided by the floor's.

| publisher | publications/s | of a core | promised | × WebSocket | CPU ÷ floor |
| --- | ---: | ---: | ---: | ---: | ---: |
",
    );
    for (index, (kind, outcome)) in KINDS.iter().zip(medians).enumerate() {
        let promised = kind.promised.map_or(String::new(), |least| format!("{least:.0}"));
        let group = index - index % 3;
        let (websocket, floor) = (medians[group + 1].per_core, medians[group + 2].per_core);
        let (ratio, of_floor) = (outcome.per_core / websocket, floor / outcome.per_core);
        let _ = writeln!(
            page,
            "| {} | {:.0} | {:.0} | {promised} | {ratio:.2} | {of_floor:.2} |",
            kind.name, outcome.rate, outcome.per_core
        );
    }
    page
}

/// A running server, ended on drop.
struct Server {
    process: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

impl Server {
    fn start(args: &Args, way: Way) -> io::Result<Server> {
        let mut command = Command::new("taskset");
        command.args(["-c", &args.core.to_string()]);
        match way {
            Way::Floor => command.arg(&args.floor),
            Way::Http | Way::WebSocket => command.arg(&args.encke).args(SERVE),
        };
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let out = process.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        io::BufRead::read_line(&mut io::BufReader::new(out), &mut line)?;
        let address = line.trim().rsplit(['/', ' ']).next().unwrap_or_default().to_owned();
        Ok(Server { process, address })
    }

    /// The processor time of the process so far.
    fn cpu(&self) -> io::Result<Duration> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            total += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Duration::from_nanos(total))
    }
}

fn measure(args: &Args, kind: Kind) -> io::Result<Outcome> {
    let server = Server::start(args, kind.way)?;
    let mut subscriber = WebSocket::open(&server.address)?;
    let id = subscriber.id.clone();
    subscriber
        .call(&format!(r#"[{{"channel":"/meta/subscribe","clientId":"{id}","subscription":"/bench/*","id":"s"}}]"#))?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut drain = subscriber.tcp.try_clone()?;
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            while drain.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        let publishers: Vec<_> = (0..kind.connections)
            .map(|_| {
                let (address, ends) = (&server.address, &ends);
                scope.spawn(move || {
                    if kind.way == Way::WebSocket {
                        on_websocket(address, kind.batch, ends)
                    } else {
                        over_http(address, kind.batch, ends)
                    }
                })
            })
            .collect();
        thread::sleep(WARM_UP);
        let (started, cpu, before) = (Instant::now(), server.cpu()?, published(&server.address)?);
        thread::sleep(Duration::from_secs(args.seconds));
        let (elapsed, cpu, after) = (started.elapsed(), server.cpu()? - cpu, published(&server.address)?);
        ends.store(true, Ordering::Relaxed);
        for publisher in publishers {
            publisher.join().map_err(|_| io::ErrorKind::Other)??;
        }
        subscriber.tcp.shutdown(std::net::Shutdown::Both)?;
        let count = (after - before) as f64;
        Ok(Outcome { rate: count / elapsed.as_secs_f64(), per_core: count / cpu.as_secs_f64() })
    })
}

/// The number of publications, as the server counts them.
fn published(address: &str) -> io::Result<u64> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.write_all(format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut page = String::new();
    tcp.read_to_string(&mut page)?;
    let value = page.lines().find_map(|line| line.strip_prefix("encke_publications_total "));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn data(number: usize) -> String {
    format!(r#"{{"bid":42.25,"ask":42.5,"last":42.375,"n":{number}}}"#)
}

fn over_http(address: &str, batch: usize, ends: &AtomicBool) -> io::Result<()> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    let message = |number: usize| format!(r#"{{"channels":["/bench/{}"],"data":{}}}"#, number % 10, data(number));
    let (path, body) = if batch == 1 {
        ("publish", format!(r#"{{"channel":"/bench/1","data":{}}}"#, data(1)))
    } else {
        let messages: Vec<String> = (0..batch).map(message).collect();
        ("publish/batch", format!(r#"{{"messages":[{}]}}"#, messages.join(",")))
    };
    let fields = format!("host: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let request = format!("POST /api/v1/{path} HTTP/1.1\r\n{fields}\r\n{body}");
    let mut buffer = vec![0; 4096];
    while !ends.load(Ordering::Relaxed) {
        tcp.write_all(request.as_bytes())?;
        let mut length = 0;
        // The answer is an object without objects, and the head has no brace.
        while length == 0 || buffer[length - 1] != b'}' {
            let count = tcp.read(&mut buffer[length..])?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            length += count;
        }
        if !buffer.starts_with(b"HTTP/1.1 200") {
            return Err(io::Error::other(String::from_utf8_lossy(&buffer[..length]).into_owned()));
        }
    }
    Ok(())
}

fn on_websocket(address: &str, batch: usize, ends: &AtomicBool) -> io::Result<()> {
    let mut socket = WebSocket::open(address)?;
    let id = socket.id.clone();
    let message = |number: usize| {
        let channel = if batch == 1 { 1 } else { number % 10 };
        format!(r#"{{"channel":"/bench/{channel}","clientId":"{id}","id":"{number}","data":{}}}"#, data(number))
    };
    let messages: Vec<String> = (0..batch).map(message).collect();
    let frame = masked(&format!("[{}]", messages.join(",")));
    while !ends.load(Ordering::Relaxed) {
        socket.tcp.write_all(&frame)?;
        socket.next()?;
    }
    Ok(())
}

/// A text frame of a client, masked with zeros.
fn masked(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match text.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        medium @ 126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(medium as u16).to_be_bytes());
        }
        long => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// A WebSocket with a session.
struct WebSocket {
    tcp: TcpStream,
    id: String,
}

impl WebSocket {
    fn open(address: &str) -> io::Result<WebSocket> {
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
        tcp.write_all(format!("GET /cometd HTTP/1.1\r\nhost: {address}\r\n{fields}\r\n\r\n").as_bytes())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tcp.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let mut socket = WebSocket { tcp, id: String::new() };
        let reply = socket.call(
            r#"[{"channel":"/meta/handshake","version":"1.0","id":"h","supportedConnectionTypes":["websocket"]}]"#,
        )?;
        let id = reply.split(r#""clientId":""#).nth(1).and_then(|rest| rest.split('"').next());
        socket.id = id.ok_or(io::ErrorKind::InvalidData)?.to_owned();
        let connect = format!(
            r#"[{{"channel":"/meta/connect","clientId":"{}","id":"c","connectionType":"websocket"}}]"#,
            socket.id
        );
        socket.call(&connect)?;
        Ok(socket)
    }

    fn call(&mut self, text: &str) -> io::Result<String> {
        self.tcp.write_all(&masked(text))?;
        self.next()
    }

    /// The next frame's text.
    fn next(&mut self) -> io::Result<String> {
        let mut head = [0; 2];
        self.tcp.read_exact(&mut head)?;
        let length = match head[1] {
            126 => {
                let mut bytes = [0; 2];
                self.tcp.read_exact(&mut bytes)?;
                usize::from(u16::from_be_bytes(bytes))
            }
            127 => {
                let mut bytes = [0; 8];
                self.tcp.read_exact(&mut bytes)?;
                u64::from_be_bytes(bytes) as usize
            }
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.tcp.read_exact(&mut payload)?;
        Ok(String::from_utf8_lossy(&payload).into_owned())
    }
}

const SERVE: [&str; 9] =
    ["serve", "--listen", "127.0.0.1:0", "--shards", "1", "--no-demo", "--log", "warn", "--api-loopback"];
/// The time before a measurement.
const WARM_UP: Duration = Duration::from_millis(500);
