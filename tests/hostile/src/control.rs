//! The delay of the machine itself, measured while witnesses wait. It does not count against the server.
//!
//! For each interval of 10 ms it is the greatest of these:
//! - the time a thread of the server was ready to run without a processor (the kernel counts it),
//! - the same of the witnesses' thread,
//! - the delay of a timer, and the time of a byte to an echo on loopback and back.
//!
//! A message is with one of them at a time, so this is the most by which the machine can have delayed it. A server
//! that computes, waits or sleeps while it has a processor gets no allowance for it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Measures until it is dropped.
pub struct Control {
    curve: Arc<Mutex<Curve>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The accumulated delay of the machine, at increasing times.
#[derive(Clone, Debug)]
pub struct Curve {
    zero: Instant,
    /// Time since zero, and the machine's delays up to then.
    points: Vec<(Duration, Duration)>,
}

impl Control {
    /// Starts to measure. Times count from `zero`. `tasks` is the server's folder of threads, `task` another thread.
    ///
    /// # Errors
    /// Loopback or a thread is not available.
    pub fn start(zero: Instant, tasks: PathBuf, task: PathBuf) -> io::Result<Control> {
        let mut echo = echo()?;
        let curve = Arc::new(Mutex::new(Curve { zero, points: Vec::new() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (to, until) = (curve.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            let mut waits = Waits { tasks, task, so_far: HashMap::new() };
            waits.most();
            let (mut last, mut total) = (Instant::now(), Duration::ZERO);
            while !until.load(Ordering::Relaxed) {
                let planned = Instant::now() + EVERY;
                std::thread::sleep(EVERY);
                let woke = Instant::now();
                let mut byte = [0];
                // If the echo has ended, only its share is missing.
                let _ = echo.write_all(&byte).and_then(|()| echo.read_exact(&mut byte));
                let now = Instant::now();
                let late = woke.saturating_duration_since(planned) + now.saturating_duration_since(woke);
                total += waits.most().max(late.saturating_sub(USUAL)).min(now - last);
                last = now;
                lock(&to).points.push((now.saturating_duration_since(zero), total));
            }
        })?;
        Ok(Control { curve, stop, thread: Some(thread) })
    }

    /// The measurements so far.
    pub fn curve(&self) -> Curve {
        lock(&self.curve).clone()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Curve {
    /// The delay of the machine between two times since zero.
    pub fn between(&self, from: Duration, to: Duration) -> Duration {
        // The interval that contains `from` counts as a whole.
        self.at(to, 0).saturating_sub(self.at(from, 1)).min(to.saturating_sub(from))
    }

    /// A moment as a time since zero.
    pub fn time(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.zero)
    }

    /// The machine's share of the time between two moments, 0 to 1.
    pub fn share(&self, from: Instant, to: Instant) -> f64 {
        let (from, to) = (self.time(from), self.time(to));
        self.between(from, to).as_secs_f64() / to.saturating_sub(from).as_secs_f64().max(1e-3)
    }

    /// The sum at the end of the interval that contains `time`, or `earlier` intervals before it.
    fn at(&self, time: Duration, earlier: usize) -> Duration {
        let index = self.points.partition_point(|(at, _)| *at < time).min(self.points.len().saturating_sub(1));
        index.checked_sub(earlier).and_then(|index| self.points.get(index)).map_or(Duration::ZERO, |(_, sum)| *sum)
    }
}

/// The times that threads have waited for a processor.
struct Waits {
    tasks: PathBuf,
    task: PathBuf,
    /// The wait of each thread, by its folder.
    so_far: HashMap<PathBuf, Duration>,
}

impl Waits {
    /// The longest wait of one of them since the last look.
    fn most(&mut self) -> Duration {
        let threads = fs::read_dir(&self.tasks).into_iter().flatten().flatten().map(|thread| thread.path());
        let mut most = Duration::ZERO;
        for thread in threads.chain([self.task.clone()]) {
            let waited = wait_of(&thread);
            let before = self.so_far.insert(thread, waited).unwrap_or(waited);
            most = most.max(waited.saturating_sub(before));
        }
        most
    }
}

/// The time a thread was ready to run and did not, over its whole life.
fn wait_of(thread: &Path) -> Duration {
    let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|waited| waited.parse().ok()).unwrap_or(0))
}

/// A connection to a thread that echoes its input, and ends with it.
fn echo() -> io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    std::thread::Builder::new().name("echo".into()).spawn(move || {
        let mut byte = [0];
        while other.read_exact(&mut byte).and_then(|()| other.write_all(&byte)).is_ok() {}
    })?;
    Ok(stream)
}

/// A panic under the lock leaves the data consistent.
fn lock(curve: &Mutex<Curve>) -> std::sync::MutexGuard<'_, Curve> {
    curve.lock().unwrap_or_else(PoisonError::into_inner)
}

const EVERY: Duration = Duration::from_millis(10);
/// The time of a timer and an echo on a quiet machine.
const USUAL: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_of_the_machine_is_known_for_any_interval() {
        let ms = Duration::from_millis;
        let points = [(10, 0), (20, 0), (120, 90), (130, 90)].map(|(at, sum)| (ms(at), ms(sum)));
        let curve = Curve { zero: Instant::now(), points: points.to_vec() };
        assert_eq!(curve.between(ms(5), ms(15)), ms(0));
        assert_eq!(curve.between(ms(15), ms(125)), ms(90));
        assert_eq!(curve.between(ms(50), ms(60)), ms(10), "no more than the time itself");
        assert_eq!(curve.between(ms(125), ms(500)), ms(0), "what was not measured is the server's");
    }
}
