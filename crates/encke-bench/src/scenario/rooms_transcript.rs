//! The output of CometD's load client, without the lines that only apply to a Java machine.

use std::time::Duration;

use crate::machine;
use crate::outcome::Outcome;
use crate::report::Trial;
use crate::report::units;

/// The load of an iteration, as CometD's client prints it.
pub(super) struct Load {
    pub(super) clients: u32,
    pub(super) rooms: u32,
    pub(super) rooms_per_client: u32,
    pub(super) batches: u32,
    pub(super) batch_size: u32,
    pub(super) message_size: u32,
    pub(super) batch_pause: Duration,
}

/// The lines before an iteration.
pub(super) fn begin(load: &Load) -> Vec<String> {
    let facts = machine::facts();
    vec![
        format!("Statistics Started at {}", now()),
        format!("Operative System: {}", facts.system),
        format!("Processors: {}", facts.cores),
        format!(
            "System Memory: {:.5}% used of {:.6} GiB",
            machine::memory_used_share() * 100.0,
            facts.memory_bytes as f64 / GIB
        ),
        THIN.into(),
        format!("Testing {} clients in {} rooms, {} rooms/client", load.clients, load.rooms, load.rooms_per_client),
        format!(
            "Sending {} batches of {}x{} bytes messages every {} µs",
            load.batches,
            load.batch_size,
            load.message_size,
            load.batch_pause.as_micros()
        ),
        THIN.into(),
    ]
}

/// The lines after it.
pub(super) fn end(trial: &Trial, outcome: &Outcome) -> Vec<String> {
    let (outgoing, incoming) = (trial.outgoing, trial.incoming);
    let cores = machine::facts().cores * 100;
    let success = outcome.expected.saturating_sub(trial.faults.lost);
    let gathered = incoming.batches as f64 * 100.0 / incoming.messages.max(1) as f64;
    let mut lines = vec![
        format!("Statistics Ended at {}", now()),
        format!("Elapsed time: {} ms", outcome.elapsed_ms),
        format!("Average CPU Load: {:.5}/{cores}", trial.load_cores * 100.0),
        "-".repeat(40),
        format!(
            "Outgoing: Elapsed = {} ms | Rate = {:.0} msg/s = {:.0} req/s = {:5.1} Mbs",
            outgoing.window_ms,
            outgoing.messages_per_s(),
            outgoing.batches_per_s(),
            outgoing.bits_per_s() / MEGABIT
        ),
    ];
    lines.push(if trial.faults.lost == 0 {
        format!("All messages arrived {success}/{}", outcome.expected)
    } else {
        format!("Some messages lost {success}/{}", outcome.expected)
    });
    lines.push(format!("Messages - Success/Expected = {success}/{}", outcome.expected));
    lines.push(format!(
        "Incoming - Elapsed = {} ms | Rate = {:.0} msg/s - {:.0} resp/s({gathered:.2}%) = {:5.1} Mbs",
        incoming.window_ms,
        incoming.messages_per_s(),
        incoming.batches_per_s(),
        incoming.bits_per_s() / MEGABIT
    ));
    if let Some(latency) = &trial.latency {
        let ms = |us: f64| (us / 1000.0).round();
        lines.push(format!(
            "Messages - Wall Latency Min/Ave/Max = {}/{}/{} ms",
            ms(latency.min_us as f64),
            ms(latency.mean_us),
            ms(latency.max_us as f64)
        ));
        lines.push(format!(
            "Messages - Wall Latency 50%/90%/99%/99.9% = {:.1}/{:.1}/{:.1}/{:.1} ms",
            latency.p50_us as f64 / 1000.0,
            latency.p90_us as f64 / 1000.0,
            latency.p99_us as f64 / 1000.0,
            latency.p999_us as f64 / 1000.0
        ));
    }
    if let Some(server) = trial.server {
        lines.push(format!(
            "Server - Average CPU Load = {:.5}/{cores} | Memory = {:.4} MiB",
            server.cores * 100.0,
            server.rss_peak_bytes as f64 / MIB
        ));
    }
    lines
}

fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    units::date(since.map_or(0, |since| since.as_millis() as u64))
}

const THIN: &str = "- - - - - - - - - - - - - - - - - - - -";
const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;
/// CometD counts 1,048,576 bits as a megabit.
const MEGABIT: f64 = 1024.0 * 1024.0;
