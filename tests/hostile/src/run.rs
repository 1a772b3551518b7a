//! One run: a server, its witnesses, the attack; then, during the next run, the memory that the server frees.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::attack::{self, Arena, Outcome};
use crate::control::{Control, Curve};
use crate::program::{Program, kernel_bytes, wait_until};
use crate::report::{KERNEL_NOISE_BYTES, Latency, Memory, Report, Trip};
use crate::scenario::Scenario;
use crate::unattacked::Unattacked;
use crate::witness::Witnesses;

/// A run whose attack is over.
pub struct Attacked {
    scenario: Scenario,
    shards: usize,
    program: Program,
    witnesses: Witnesses,
    unattacked: Unattacked,
    control: Control,
    outcome: Outcome,
    began: Instant,
    ended: Instant,
    memory: Memory,
}

/// Starts a server and attacks it.
///
/// # Errors
/// The server does not start, or has no witnesses.
pub fn start(encke: &Path, scenario: Scenario, shards: usize) -> io::Result<Attacked> {
    let program = Program::start(encke, scenario, shards, "attacked")?;
    let zero = Instant::now();
    let unattacked = Unattacked::start(encke, scenario, shards, zero)?;
    let witnesses = Witnesses::start(&program, shards, zero)?;
    let control = Control::start(zero, program.tasks(), witnesses.task.clone())?;
    std::thread::sleep(WARM_UP);
    let before = program.resident_bytes();
    let memory = Memory {
        before,
        peak_max: before + (scenario.grows_mib_max << 20),
        after_max: before + before / 5 + (scenario.retains_mib << 20) + NOISE_BYTES * shards as u64,
        kernel_max: scenario.kernel_mib_max.map(|mib| mib << 20),
        ..Memory::default()
    };
    let began = Instant::now();
    let until = began + Duration::from_millis(scenario.lasts_ms);
    let arena = Arena { address: program.address, unattacked: unattacked.address(), shards, until };
    let kernel = KernelWatch::start(program.address)?;
    let outcome = carry_out(scenario, arena)?;
    let ended = Instant::now();
    let kernel = kernel.most();
    std::thread::sleep(COOL_DOWN);
    std::thread::scope(|scope| {
        scope.spawn(|| unattacked.rest());
        witnesses.rest();
    });
    Ok(Attacked {
        scenario,
        shards,
        program,
        witnesses,
        unattacked,
        control,
        outcome,
        began,
        ended,
        memory: Memory { kernel, ..memory },
    })
}

impl Attacked {
    /// Waits until the server has freed the memory of the attack, and checks that all witnesses are still there.
    pub fn settle(self) -> Report {
        let Attacked { scenario, shards, program, witnesses, unattacked, control, outcome, began, ended, mut memory } =
            self;
        let curve: Curve = control.curve();
        drop(control);
        let (alone, unattacked_faults) = unattacked.end();
        let latency = Latency::of(witnesses.notes().trips(), alone, &curve);
        let trip = |(began, ended)| Trip { left: curve.time(began), came: curve.time(ended) };
        let others = outcome.others.attacked.iter().copied().map(trip);
        let others = Latency::of(others, outcome.others.unattacked, &curve);
        let has_settled = || program.resident_bytes() <= memory.after_max && is_given_back(&program, &memory);
        wait_until(SETTLE_MAX, has_settled);
        let took = ended.elapsed();
        memory.after = program.resident_bytes();
        memory.kernel_after = kernel_bytes(program.address);
        memory.settled = (memory.after <= memory.after_max).then_some(took);
        // One more message to all of them at the end.
        witnesses.live(1);
        memory.peak = program.resident_peak_bytes();
        let mut broken = outcome.broken;
        broken.extend(unattacked_faults);
        if memory.peak == 0 {
            broken.push(format!("the server is gone: {}", program.last_log()));
        }
        let faults = witnesses.notes().faults;
        let more = faults.len().saturating_sub(FAULTS_SHOWN);
        broken.extend(faults.into_iter().take(FAULTS_SHOWN));
        broken.extend((more > 0).then(|| format!("and {more} more")));
        let machine = curve.share(began, ended);
        let Outcome { amount, did, .. } = outcome;
        Report { name: scenario.name.into(), shards, amount, did, latency, others, memory, machine, broken }
    }
}

/// True if the kernel holds no more bytes for clients that are gone.
fn is_given_back(program: &Program, memory: &Memory) -> bool {
    memory.kernel_max.is_none() || kernel_bytes(program.address) <= KERNEL_NOISE_BYTES
}

/// Runs the attack; the attackers' sockets are closed at its end.
fn carry_out(scenario: Scenario, arena: Arena) -> io::Result<Outcome> {
    let outcome =
        attack::elsewhere(arena, move || (scenario.attack)(arena)).blocking_recv().map_err(io::Error::other)?;
    Ok(outcome
        .unwrap_or_else(|error| Outcome::did(0, "an attack cut short").broke(Some(format!("an attacker: {error}")))))
}

/// Samples the bytes that the kernel holds.
struct KernelWatch {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl KernelWatch {
    fn start(server: SocketAddr) -> io::Result<KernelWatch> {
        let watch = KernelWatch { most: Arc::default(), stop: Arc::default() };
        let (most, stop) = (watch.most.clone(), watch.stop.clone());
        std::thread::Builder::new().name("kernel".into()).spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(kernel_bytes(server), Ordering::Relaxed);
                std::thread::sleep(KERNEL_EVERY);
            }
        })?;
        Ok(watch)
    }

    fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for KernelWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The time in which a quiet server reaches its normal size.
const WARM_UP: Duration = Duration::from_millis(300);
/// The time for which witnesses continue after the attack.
const COOL_DOWN: Duration = Duration::from_millis(200);
/// Sessions that lost their connection live for 10 s, and their memory is freed some seconds later.
/// A session that got a response of 256 KiB may read it for 64 s before it expires.
const SETTLE_MAX: Duration = Duration::from_secs(150);
/// The noise of the pages that an allocator retains for each shard.
const NOISE_BYTES: u64 = 3 << 20;
const KERNEL_EVERY: Duration = Duration::from_millis(100);
const FAULTS_SHOWN: usize = 4;
