//! Small fixed workloads for callgrind to count; see `scripts/instructions.sh`.
//!
//! `instructions CASE N` does the setup and then runs the workload N times. The count with N minus the count with 0 is
//! the cost of the workload alone.

use std::hint::black_box;
use std::process::ExitCode;

use bayeux::{Limits, parse_batch};
use benches::lone_shard::LoneShard;
use clap::{Parser, ValueEnum};
use encke_bench::engine::stamp::Stamp;
use encke_core::{ChannelRule, Settings};

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
        Case::Publish => publish(&mut shard(0), times, 0, 1),
        Case::Fanout => publish(&mut shard(0), times / SUBSCRIBERS, SUBSCRIBERS, 1),
        Case::FanoutGathered => publish(&mut shard(0), times / SUBSCRIBERS, SUBSCRIBERS, 32),
        Case::FanoutHistory => publish(&mut shard(RETAINED), times / SUBSCRIBERS, SUBSCRIBERS, 1),
        Case::FanoutReplay => {
            let mut shard = shard(RETAINED);
            shard.replays = true;
            publish(&mut shard, times / SUBSCRIBERS, SUBSCRIBERS, 1)
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
fn publish(shard: &mut LoneShard, times: u32, subscribers: u32, gathered: u32) -> Option<()> {
    let publisher = shard.open()?;
    for _ in 0..subscribers {
        let subscriber = shard.open()?;
        shard.subscribe(&subscriber, CHANNEL, "");
    }
    let text = publication(&publisher.id, 1);
    shard.take_written();
    for index in 0..times {
        shard.send(publisher.socket, black_box(&text));
        if (index + 1) % gathered == 0 || index + 1 == times {
            shard.turn();
        }
    }
    // Each delivery contains at least its data.
    (shard.take_written() >= times as usize * subscribers as usize * DATA_BYTES).then_some(())
}

fn publication(client_id: &str, sequence: u32) -> String {
    let mut data = Vec::new();
    Stamp { sequence, room: 0, worker: 0, publisher: 0, planned_us: 0 }.write(DATA_BYTES, &mut data);
    let data = String::from_utf8_lossy(&data);
    format!(r#"[{{"channel":"{CHANNEL}","id":"{sequence}","clientId":"{client_id}","data":"{data}"}}]"#)
}

/// A shard whose channels retain this many messages.
fn shard(history_messages: usize) -> LoneShard {
    let rule = ChannelRule { pattern: "/**".into(), history_messages, ..ChannelRule::default() };
    let channels = if history_messages > 0 { vec![rule] } else { Vec::new() };
    LoneShard::new(Settings { channels, ..Settings::default() })
}

const CHANNEL: &str = "/bench/a";
const DATA_BYTES: usize = 50;
const SUBSCRIBERS: u32 = 1000;
/// The number of messages that a channel with a history retains.
const RETAINED: usize = 1000;
