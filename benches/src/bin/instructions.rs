//! Small fixed workloads for callgrind to count; see `scripts/instructions.sh`.
//!
//! `instructions CASE N` does the setup and then runs the workload N times. The count with N minus the count with 0 is
//! the cost of the workload alone.

use std::hint::black_box;
use std::io::{self, IoSlice};
use std::process::ExitCode;
use std::sync::Arc;

use bayeux::{Limits, parse_batch};
use clap::{Parser, ValueEnum};
use encke_bench::engine::stamp::Stamp;
use encke_core::{ChannelRule, NoApplication, Settings};
use encke_core::{Now, Shard, Shared, SocketKey, Wire};

/// Runs a workload a number of times.
#[derive(Debug, Parser)]
struct Arguments {
    /// The workload.
    #[arg(value_enum)]
    case: Case,
    /// The number of repetitions.
    times: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Case {
    /// Parse a publish of 133 bytes.
    Parse,
    /// Process a publish without subscribers and write its reply.
    Publish,
    /// Deliver to one of 1,000 subscribers, one publication a turn.
    Fanout,
    /// Deliver to one of 1,000 subscribers, 32 publications a turn.
    FanoutGathered,
    /// Deliver to one of 1,000 subscribers of a channel with a history, one publication a turn.
    FanoutHistory,
    /// Like `fanout-history`, with subscribers that asked for positions.
    FanoutReplay,
}

fn main() -> ExitCode {
    let Arguments { case, times } = Arguments::parse();
    let done = match case {
        Case::Parse => parse(times),
        Case::Publish => publish(&mut Core::new(0), times, 0, 1),
        Case::Fanout => publish(&mut Core::new(0), times / SUBSCRIBERS, SUBSCRIBERS, 1),
        Case::FanoutGathered => publish(&mut Core::new(0), times / SUBSCRIBERS, SUBSCRIBERS, 32),
        Case::FanoutHistory => publish(&mut Core::new(RETAINED), times / SUBSCRIBERS, SUBSCRIBERS, 1),
        Case::FanoutReplay => {
            let mut core = Core { replays: true, ..Core::new(RETAINED) };
            publish(&mut core, times / SUBSCRIBERS, SUBSCRIBERS, 1)
        }
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("instructions: the core did not do what was asked of it");
            ExitCode::FAILURE
        }
    }
}

fn parse(times: u32) -> Option<()> {
    let text = publication("0123456789abcdefghijklmnop", 1);
    debug_assert_eq!(text.len(), 133);
    let limits = Limits::default();
    for _ in 0..times {
        let messages = parse_batch(black_box(&text), &limits).ok()?;
        black_box(&messages);
    }
    Some(())
}

/// `times` publications from one session to `subscribers` others, `gathered` in each turn.
fn publish(core: &mut Core, times: u32, subscribers: u32, gathered: u32) -> Option<()> {
    let (publisher, client_id) = core.open()?;
    for _ in 0..subscribers {
        let (socket, client_id) = core.open()?;
        core.send(
            socket,
            &format!(
                r#"[{{"id":"3","channel":"/meta/subscribe","clientId":"{client_id}","subscription":"{CHANNEL}"}}]"#
            ),
        );
        core.turn();
    }
    let text = publication(&client_id, 1);
    core.wire.written = 0;
    for index in 0..times {
        core.send(publisher, black_box(&text));
        if (index + 1) % gathered == 0 || index + 1 == times {
            core.turn();
        }
    }
    // Each delivery contains at least its data.
    (core.wire.written >= times as usize * subscribers as usize * DATA_BYTES).then_some(())
}

fn publication(client_id: &str, sequence: u32) -> String {
    let mut data = Vec::new();
    Stamp { sequence, room: 0, worker: 0, publisher: 0, planned_us: 0 }.write(DATA_BYTES, &mut data);
    let data = String::from_utf8_lossy(&data);
    format!(r#"[{{"channel":"{CHANNEL}","id":"{sequence}","clientId":"{client_id}","data":"{data}"}}]"#)
}

/// A shard, and sockets that accept everything.
struct Core {
    shard: Shard,
    wire: Sink,
    /// True if sessions ask for positions.
    replays: bool,
}

#[derive(Default)]
struct Sink {
    written: usize,
    last: Vec<u8>,
}

impl Core {
    /// A core whose channels retain this many messages.
    fn new(history_messages: usize) -> Self {
        let shared = Arc::new(Shared::new(1, Box::new(NoApplication)));
        // Fixed ids make every run do the same work.
        let mut state = 1_u64;
        let entropy = Box::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
        });
        let rule = ChannelRule { pattern: "/**".into(), history_messages, ..ChannelRule::default() };
        let channels = if history_messages > 0 { vec![rule] } else { Vec::new() };
        let settings = Arc::new(Settings { channels, ..Settings::default() });
        Core { shard: Shard::new(0, shared, settings, entropy, NOW), wire: Sink::default(), replays: false }
    }

    /// Opens a WebSocket with a session. Returns its socket and client id.
    fn open(&mut self) -> Option<(SocketKey, String)> {
        let socket = self.shard.socket_opened(NOW, None);
        let ext = if self.replays { r#","ext":{"replay":true}"# } else { "" };
        self.send(
            socket,
            &format!(
                r#"[{{"id":"1","channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["websocket"]{ext}}}]"#
            ),
        );
        self.turn();
        let reply = String::from_utf8_lossy(&self.wire.last);
        let client_id = reply.split(r#""clientId":""#).nth(1)?.split('"').next()?.to_owned();
        self.send(
            socket,
            &format!(
                r#"[{{"id":"2","channel":"/meta/connect","clientId":"{client_id}","connectionType":"websocket"}}]"#
            ),
        );
        self.turn();
        Some((socket, client_id))
    }

    fn send(&mut self, socket: SocketKey, text: &str) {
        black_box(self.shard.socket_text(NOW, socket, text));
    }

    fn turn(&mut self) {
        self.shard.flush(NOW, &mut self.wire, &mut || false);
        black_box(self.shard.take_effects());
    }
}

impl Wire for Sink {
    fn write(&mut self, _socket: SocketKey, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.last.clear();
        slices.iter().take(1).for_each(|slice| self.last.extend_from_slice(&slice[..slice.len().min(LAST_BYTES_MAX)]));
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        self.written += bytes;
        Ok(bytes)
    }
}

const NOW: Now = Now { ms: 1, wall_ms: 1_800_000_000_000 };
const CHANNEL: &str = "/bench/a";
const DATA_BYTES: usize = 50;
const SUBSCRIBERS: u32 = 1000;
/// The number of messages that a channel with a history retains.
const RETAINED: usize = 1000;
/// The bytes of a reply that are stored: enough to find the client id.
const LAST_BYTES_MAX: usize = 512;
