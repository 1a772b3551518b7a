//! A worker: a process that carries out its share of orders, as it is told on stdin.

use std::io::{StdinLock, Stdout, stdin, stdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use super::carry::{self, Event, Link};
use super::interrupt::Interrupt;
use super::order::{CrowdSpec, Order};
use super::plan::Share;
use super::wire::{self, FromWorker, ToWorker};
use crate::engine::{Crowd, Published};
use crate::machine;
use crate::problem::Problem;

/// Works until it is told to leave, or until nobody is there to tell.
///
/// # Errors
/// What it could not go on from; it has been told on stdout, too.
pub fn work() -> Result<(), Problem> {
    Interrupt::ignore_signals()?;
    let mut desk = Desk { orders: listen(), out: stdout(), stopped: false };
    let worked = desk.work();
    if let Err(problem) = worked {
        let text = problem.to_string();
        desk.say(&FromWorker::Failed(problem.into()))?;
        return Err(Problem::Machine(text));
    }
    Ok(())
}

/// Where a worker is told what to do, and tells what came of it.
struct Desk {
    orders: Receiver<Result<Option<ToWorker>, Problem>>,
    out: Stdout,
    stopped: bool,
}

impl Desk {
    fn work(&mut self) -> Result<(), Problem> {
        let Some(ToWorker::Open { spec, worker, workers, core }) = self.next()? else { return Ok(()) };
        if let Some(core) = core {
            machine::pin(core)?;
        }
        let mut crowd = Crowd::open(&spec, worker, workers, &mut |open| {
            // Whoever cannot be told any more is not waiting either.
            self.say(&FromWorker::Opening(open)).is_ok() && !self.is_stopped()
        })?;
        self.say(&FromWorker::Opened)?;
        let mut published = vec![crowd.published().clone(); workers as usize];
        loop {
            match self.next_while_idle(&mut crowd)? {
                Some(ToWorker::Carry { order, begin_us }) => {
                    let who = (&spec, Share { worker, workers });
                    published = self.carry(&mut crowd, who, &order, (begin_us, &published))?;
                }
                Some(ToWorker::Leave) | None => break,
                Some(_) => {}
            }
        }
        crowd.leave();
        Ok(())
    }

    fn carry(
        &mut self,
        crowd: &mut Crowd,
        who: (&CrowdSpec, Share),
        order: &Order,
        from: (u64, &[Published]),
    ) -> Result<Vec<Published>, Problem> {
        self.stopped = false;
        let mut link = Linked { desk: self, said: false };
        let (outcome, published) = carry::carry_out(crowd, who, order, from, &mut link)?;
        self.say(&FromWorker::Done(Box::new(outcome)))?;
        Ok(published)
    }

    fn say(&mut self, message: &FromWorker) -> Result<(), Problem> {
        wire::write(&mut self.out, message)
    }

    fn next(&mut self) -> Result<Option<ToWorker>, Problem> {
        self.orders.recv().unwrap_or(Ok(None))
    }

    /// Waits for the next order while sessions are kept alive.
    fn next_while_idle(&mut self, crowd: &mut Crowd) -> Result<Option<ToWorker>, Problem> {
        loop {
            match self.orders.recv_timeout(Duration::ZERO) {
                Ok(order) => return order,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => crowd.turn(IDLE_TURN)?,
            }
        }
    }

    /// Whether it was told to stop, or nobody is there any more.
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

/// The link of one worker among several.
struct Linked<'a> {
    desk: &'a mut Desk,
    said: bool,
}

impl Link for Linked<'_> {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Look(look) = event {
            // A broken pipe is noticed when the next order is waited for.
            let _ = self.desk.say(&FromWorker::Look(look.clone()));
        }
    }

    fn go_on(&mut self) -> bool {
        // After the last publication, the next order is for `totals` to take.
        self.said || !self.desk.is_stopped()
    }

    fn totals(&mut self, own: &Published) -> Result<Option<Vec<Published>>, Problem> {
        if !self.said {
            self.said = true;
            self.desk.say(&FromWorker::Sent(own.next.clone()))?;
        }
        match self.desk.orders.try_recv() {
            Ok(Ok(Some(ToWorker::Totals(all)))) => {
                self.said = false;
                Ok(Some(wire::published(&all)))
            }
            Ok(Ok(Some(ToWorker::Stop))) => {
                self.desk.stopped = true;
                Ok(None)
            }
            Ok(Ok(Some(_))) | Err(TryRecvError::Empty) => Ok(None),
            Ok(Err(problem)) => Err(problem),
            Ok(Ok(None)) | Err(TryRecvError::Disconnected) => Err(Problem::Machine("the master is gone".into())),
        }
    }
}

/// Reads orders on a thread of its own, so that a crowd never waits for them.
fn listen() -> Receiver<Result<Option<ToWorker>, Problem>> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut lines: StdinLock<'static> = stdin().lock();
        loop {
            let read = wire::read(&mut lines);
            let is_last = !matches!(read, Ok(Some(_)));
            if send.send(read).is_err() || is_last {
                return;
            }
        }
    });
    receive
}

const IDLE_TURN: Duration = Duration::from_millis(5);
