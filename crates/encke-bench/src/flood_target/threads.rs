//! A thread for each connection, woken by the timer's thread: the post's `TimedNotifier` and its `EventListener`s.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;

use super::request::{self, Request};
use super::{ACCEPT_RETRY, Entered, REQUEST_TIMEOUT, State};
use crate::problem::Problem;

/// The tick counter that one connection's thread waits for.
#[derive(Debug, Default)]
struct Listener {
    ticks: Mutex<u64>,
    ticked: Condvar,
}

/// The listeners to notify of ticks.
type Listeners = Arc<Mutex<Vec<Weak<Listener>>>>;

/// Starts the threads that accept and that tick.
pub(super) fn start(listener: TcpListener, state: Arc<State>) -> Result<(), Problem> {
    let listeners = Listeners::default();
    let (ticking, ticked) = (state.clone(), listeners.clone());
    thread::Builder::new().name("timed-notifier".into()).spawn(move || notify(&ticked, &ticking))?;
    thread::Builder::new().name("flood-target".into()).spawn(move || accept(&listener, &state, &listeners))?;
    Ok(())
}

fn accept(listener: &TcpListener, state: &Arc<State>, listeners: &Listeners) {
    loop {
        let tcp = match listener.accept() {
            Ok((tcp, _)) => tcp,
            Err(error) => {
                state.accept_failed(&error);
                thread::sleep(ACCEPT_RETRY);
                continue;
            }
        };
        let Some(entered) = state.enter() else {
            refuse(tcp);
            continue;
        };
        // The socket stays here until its thread exists, so that the client receives the reason if none can be made.
        let own = match tcp.try_clone() {
            Ok(own) => own,
            Err(error) => {
                state.accept_failed(&error);
                refuse(tcp);
                continue;
            }
        };
        let listeners = listeners.clone();
        let spawned = thread::Builder::new().stack_size(state.stack_bytes).spawn(move || {
            // A broken connection has ended; there is nothing to report.
            let _ = stream(own, &entered, &listeners);
        });
        if let Err(error) = spawned {
            state.short_of(|open| format!("no thread can be made: {error}; {open} are there"));
            refuse(tcp);
        }
    }
}

fn refuse(mut tcp: TcpStream) {
    // A fresh socket takes so few bytes at once.
    let _ = tcp.write_all(request::FULL.as_bytes());
}

/// The timer: wakes all listeners, one after another.
fn notify(listeners: &Listeners, state: &State) {
    let mut chunks = 0;
    loop {
        thread::sleep(state.chunk_every);
        let mut there = 0;
        listeners.lock().unwrap_or_else(PoisonError::into_inner).retain(|listener| {
            let Some(listener) = listener.upgrade() else { return false };
            *listener.ticks.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            listener.ticked.notify_one();
            there += 1;
            true
        });
        chunks += there;
        state.log(&format!("Listeners: {there}, chunks: {chunks}"));
    }
}

fn stream(mut tcp: TcpStream, entered: &Entered, listeners: &Listeners) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let id = match ask(&mut tcp)? {
        Ok(id) => id,
        Err(refusal) => return tcp.write_all(refusal.as_bytes()),
    };
    tcp.write_all(request::welcome(&id).as_bytes())?;
    entered.is_served();
    let listener = Arc::new(Listener::default());
    listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&listener));
    let mut sent = 0;
    loop {
        let ticks = listener.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let due = listener.ticked.wait_while(ticks, |ticks| *ticks == sent).unwrap_or_else(PoisonError::into_inner);
        let due = *due;
        while sent < due {
            sent += 1;
            tcp.write_all(request::line(sent, &id).as_bytes())?;
        }
    }
}

/// Returns the requested id, or the refusal to send.
fn ask(tcp: &mut TcpStream) -> io::Result<Result<String, &'static str>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        match tcp.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&piece[..read]),
        }
        match request::read(&head) {
            Request::Partial => {}
            Request::Stream(id) => return Ok(Ok(id)),
            Request::Refused(refusal) => return Ok(Err(refusal)),
        }
    }
}
