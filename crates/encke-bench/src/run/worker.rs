//! A worker: a process that runs its share of orders, which it receives on stdin.

use std::io::{StdinLock, Stdout, stdin, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::interrupt::Interrupt;
use super::plan::Share;
use super::trial_run::{self, Coordinator, Event};
use super::wire::{self, FromWorker, ToWorker};
use crate::engine::{Clients, Published};
use crate::machine;
use crate::order::{ClientsSpec, Order};
use crate::problem::Problem;

/// Works until it is asked to disconnect, or until its stdin closes.
///
/// # Errors
/// The problem that ended it, which it has also reported on stdout.
pub fn work() -> Result<(), Problem> {
    Interrupt::ignore_signals()?;
    let mut worker = Worker { orders: listen(), out: stdout(), stopped: false };
    let worked = worker.work();
    if let Err(problem) = worked {
        let text = problem.to_string();
        worker.send(&FromWorker::Failed(problem.into()))?;
        return Err(Problem::Machine(text));
    }
    Ok(())
}

/// A worker's connection to its master.
struct Worker {
    orders: Receiver<Result<Option<ToWorker>, Problem>>,
    out: Stdout,
    stopped: bool,
}

impl Worker {
    fn work(&mut self) -> Result<(), Problem> {
        let Some(ToWorker::Open { spec, worker, workers, core }) = self.next()? else { return Ok(()) };
        if let Some(core) = core {
            machine::pin(core)?;
        }
        let mut clients = Clients::open(&spec, worker, workers, &mut |open| {
            // A master that cannot be reached is not waiting either.
            self.send(&FromWorker::Opening(open)).is_ok() && !self.is_stopped()
        })?;
        self.send(&FromWorker::Opened)?;
        let mut published = vec![clients.published().clone(); workers as usize];
        loop {
            match self.next_while_idle(&mut clients)? {
                Some(ToWorker::RunTrial { order, begin_us }) => {
                    let who = (&spec, Share { worker, workers });
                    published = self.run_trial(&mut clients, who, &order, (begin_us, &published))?;
                }
                Some(ToWorker::Disconnect) | None => break,
                Some(_) => {}
            }
        }
        clients.disconnect();
        Ok(())
    }

    fn run_trial(
        &mut self,
        clients: &mut Clients,
        who: (&ClientsSpec, Share),
        order: &Order,
        from: (u64, &[Published]),
    ) -> Result<Vec<Published>, Problem> {
        self.stopped = false;
        let mut coordinator = RemoteCoordinator { worker: self, sent_totals: false };
        let (outcome, published) = trial_run::run_trial(clients, who, order, from, &mut coordinator)?;
        self.send(&FromWorker::Done(Box::new(outcome)))?;
        Ok(published)
    }

    fn send(&mut self, message: &FromWorker) -> Result<(), Problem> {
        wire::write(&mut self.out, message)
    }

    fn next(&mut self) -> Result<Option<ToWorker>, Problem> {
        self.orders.recv().unwrap_or(Ok(None))
    }

    /// Waits for the next order and keeps sessions alive meanwhile.
    fn next_while_idle(&mut self, clients: &mut Clients) -> Result<Option<ToWorker>, Problem> {
        loop {
            match self.orders.recv_timeout(Duration::ZERO) {
                Ok(order) => return order,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => clients.turn(IDLE_TURN)?,
            }
        }
    }

    /// Returns true if the master asked to stop, or is gone.
    fn is_stopped(&mut self) -> bool {
        match self.orders.try_recv() {
            Ok(Ok(Some(ToWorker::Stop))) | Ok(Ok(None)) | Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                self.stopped = true;
            }
            Ok(Ok(Some(_))) | Err(TryRecvError::Empty) => {}
        }
        self.stopped
    }
}

/// The coordinator of one worker among several.
struct RemoteCoordinator<'a> {
    worker: &'a mut Worker,
    sent_totals: bool,
}

impl Coordinator for RemoteCoordinator<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Snapshot(snapshot) = event {
            // A broken pipe is noticed when the next order is waited for.
            let _ = self.worker.send(&FromWorker::Snapshot(snapshot.clone()));
        }
    }

    fn should_continue(&mut self) -> bool {
        // After the last publication, `totals` takes the next order.
        self.sent_totals || !self.worker.is_stopped()
    }

    fn totals(&mut self, own: &Published) -> Result<Option<Vec<Published>>, Problem> {
        if !self.sent_totals {
            self.sent_totals = true;
            self.worker.send(&FromWorker::Sent(own.next.clone()))?;
        }
        match self.worker.orders.try_recv() {
            Ok(Ok(Some(ToWorker::Totals(all)))) => {
                self.sent_totals = false;
                Ok(Some(wire::published(&all)))
            }
            Ok(Ok(Some(ToWorker::Stop))) => {
                self.worker.stopped = true;
                Ok(None)
            }
            Ok(Ok(Some(_))) | Err(TryRecvError::Empty) => Ok(None),
            Ok(Err(problem)) => Err(problem),
            Ok(Ok(None)) | Err(TryRecvError::Disconnected) => Err(Problem::Machine("the master is gone".into())),
        }
    }
}

/// Reads orders on a separate thread, so that clients never wait for them.
fn listen() -> Receiver<Result<Option<ToWorker>, Problem>> {
    let (sender, receive) = channel();
    thread::spawn(move || {
        let mut lines: StdinLock<'static> = stdin().lock();
        loop {
            let read = wire::read(&mut lines);
            let is_last = !matches!(read, Ok(Some(_)));
            if sender.send(read).is_err() || is_last {
                return;
            }
        }
    });
    receive
}

const IDLE_TURN: Duration = Duration::from_millis(5);
