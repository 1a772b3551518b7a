//! Ctrl-C: the first ends the measurement and gives the report so far, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

use crate::problem::Problem;

/// True once the run is to end early. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_set: AtomicBool,
    /// The process that a second signal ends, too; 0 for none.
    child: AtomicI32,
}

impl Interrupt {
    /// An interrupt that SIGINT and SIGTERM set; when one comes again, the process ends with code 130.
    ///
    /// # Errors
    /// The system gives no thread, or takes no handler.
    pub fn on_signals() -> Result<Interrupt, Problem> {
        let interrupt = Interrupt::default();
        let set = interrupt.clone();
        on_each_signal(move || {
            if set.is_set() {
                if let Some(child) = Pid::from_raw(set.0.child.load(Ordering::Relaxed)) {
                    // It may have ended by itself.
                    let _ = kill_process(child, Signal::KILL);
                }
                std::process::exit(ENDED_BY_SIGNAL);
            }
            set.set();
        })?;
        Ok(interrupt)
    }

    /// Ignores SIGINT, which a terminal sends to workers, too. The master stops them.
    ///
    /// # Errors
    /// As [`Interrupt::on_signals`].
    pub fn ignore_signals() -> Result<(), Problem> {
        on_each_signal(|| {})
    }

    /// Returns true if the run is to end.
    pub fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::Relaxed)
    }

    /// Makes a second signal, which leaves no time to clean up, end this process, too.
    pub fn take_along(&self, process: Option<Pid>) {
        self.0.child.store(Pid::as_raw(process), Ordering::Relaxed);
    }

    /// Ends the run.
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::Relaxed);
    }
}

/// Runs `act` for each SIGINT and SIGTERM, on a thread that ends with the process.
fn on_each_signal(act: impl Fn() + Send + 'static) -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let listen = |kind: SignalKind| -> Result<Signals, Problem> {
        let _inside = runtime.enter();
        Ok(signal(kind)?)
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let listening = move || {
        runtime.block_on(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => act(),
                    _ = terminate.recv() => act(),
                }
            }
        });
    };
    thread::Builder::new().name("signals".into()).spawn(listening)?;
    Ok(())
}

/// 128 plus the number of SIGINT, as in shells.
const ENDED_BY_SIGNAL: i32 = 130;
