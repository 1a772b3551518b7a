//! How much the load itself can receive: a thread of the same process sends ready-made frames as fast as it can.
//!
//! A figure that comes near this one says something about the load, not about the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use websocket::{Opcode, frame, handshake};

use crate::dialect::{Dialect, FANOUT_CHANNEL};
use crate::load::Load;
use crate::machine::{own_cpu, pin};
use crate::problem::Problem;
use crate::reader::Faults;
use crate::session::{Plan, Purpose, Session};
use crate::stamp;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Sockets to receive from.
    #[arg(long, default_value_t = 1000)]
    pub sessions: usize,
    /// Length of the measurement, in seconds.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// The core that sends; the load itself is to be pinned to another.
    #[arg(long, default_value_t = 0)]
    pub sender_core: usize,
}

/// Measures; the frames look like deliveries in `dialect`.
pub fn run(dialect: Dialect, options: &Options) -> Result<(String, Value), Problem> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (sessions, core, stopped) = (options.sessions, options.sender_core, Arc::clone(&stop));
    let sender = std::thread::spawn(move || send(&listener, sessions, dialect, core, &stopped));
    let mut load = Load::<Session>::new(dialect)?;
    let plan = Plan { dialect: Dialect::Floor, path: "/sub".into(), purpose: Purpose::Subscribe };
    load.open(server, &plan, sessions, 64)?;
    load.idle_until(Instant::now() + Duration::from_millis(500))?;
    let first = load.reader.received();
    let (begin, own) = (Instant::now(), own_cpu());
    load.reader.restart(0, 64);
    while begin.elapsed().as_secs_f64() < options.seconds {
        load.turn(Duration::from_millis(1))?;
    }
    let per_s = load.reader.received() as f64 / begin.elapsed().as_secs_f64();
    let both_busy = (own_cpu() - own).as_secs_f64() / begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut faults = Faults::default();
    load.clients().for_each(|client| faults += client.tally.faults(client.tally.next()));
    drop(load);
    sender.join().map_err(|_| Problem::Machine("the sending thread ended in a panic".into()))??;
    if !faults.none() || first == 0 {
        return Err(Problem::Machine(format!("the ceiling's own messages did not arrive in order: {faults:?}")));
    }
    let name = format!("{dialect:?}").to_lowercase();
    let report = json!({ "mode": "ceiling", "dialect": name, "sessions": sessions, "delivered_per_s": per_s.round() });
    let text = format!("the load receives {per_s:.0} deliveries/s ({name}), both cores {:.0} %", both_busy * 100.0);
    Ok((text, report))
}

/// Accepts the sockets, then sends every one of them the same numbered frames.
fn send(
    listener: &TcpListener,
    sessions: usize,
    dialect: Dialect,
    core: usize,
    stop: &AtomicBool,
) -> Result<(), Problem> {
    pin(core)?;
    let sockets: Vec<TcpStream> = (0..sessions).map(|_| upgraded(listener)).collect::<Result<_, _>>()?;
    let mut next = 0;
    let mut frames = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        frames.clear();
        (next..next + FRAMES_PER_ROUND).for_each(|sequence| delivery(dialect, sequence, &mut frames));
        next += FRAMES_PER_ROUND;
        let mut waiting: Vec<(&TcpStream, usize)> = sockets.iter().map(|socket| (socket, 0)).collect();
        while !waiting.is_empty() && !stop.load(Ordering::Relaxed) {
            for (socket, at) in &mut waiting {
                match socket.write(&frames[*at..]) {
                    Ok(sent) => *at += sent,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    // The load has closed its sockets: done.
                    Err(_) => return Ok(()),
                }
            }
            waiting.retain(|(_, at)| *at < frames.len());
        }
    }
    Ok(())
}

fn upgraded(listener: &TcpListener) -> Result<TcpStream, Problem> {
    let (mut socket, _) = listener.accept()?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1024];
        let read = socket.read(&mut byte)?;
        if read == 0 || head.len() > 4096 {
            return Err(Problem::Machine("the load sent no upgrade".into()));
        }
        head.extend_from_slice(&byte[..read]);
    }
    let head = String::from_utf8_lossy(&head);
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap_or_default();
    let accept = handshake::accept(key);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    socket.write_all(answer.as_bytes())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn delivery(dialect: Dialect, sequence: u32, out: &mut Vec<u8>) {
    let mut data = Vec::new();
    stamp::write(sequence, 0, &mut data);
    if dialect == Dialect::Bayeux {
        let text = format!(r#"[{{"channel":"{FANOUT_CHANNEL}","data":"{}"}}]"#, String::from_utf8_lossy(&data));
        data = text.into_bytes();
    }
    frame::message(Opcode::Text, &data, out);
}

/// About the size of one read of the load.
const FRAMES_PER_ROUND: u32 = 512;
