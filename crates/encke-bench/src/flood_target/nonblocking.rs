//! One thread for all connections: a task for each, woken by epoll.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::request::{self, Request};
use super::{ACCEPT_RETRY, Entered, REQUEST_TIMEOUT, State};
use crate::problem::Problem;

/// Starts the thread.
pub(super) fn start(listener: TcpListener, state: Arc<State>) -> Result<(), Problem> {
    listener.set_nonblocking(true)?;
    // Like a shard of the server: epoll, and tasks that never leave their thread.
    let serve = move || -> io::Result<()> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build_local(Default::default())?.block_on(serve(listener, &state))
    };
    let thread = move || {
        if let Err(error) = serve() {
            eprintln!("encke: the thread that serves has ended: {error}");
        }
    };
    thread::Builder::new().name("flood-target".into()).spawn(thread)?;
    Ok(())
}

async fn serve(listener: TcpListener, state: &Arc<State>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (notifier, ticks) = watch::channel(0);
    spawn_local(notify(notifier, state.clone()));
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => match state.enter() {
                Some(entered) => drop(spawn_local(stream(tcp, entered, ticks.clone()))),
                // A fresh socket takes so few bytes at once.
                None => drop(tcp.try_write(request::FULL.as_bytes())),
            },
            Err(error) => {
                state.accept_failed(&error);
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The timer: publishes the number of ticks to all listeners.
async fn notify(notifier: watch::Sender<u64>, state: Arc<State>) {
    let mut ticks = interval_at(Instant::now() + state.chunk_every, state.chunk_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut chunks = 0;
    loop {
        ticks.tick().await;
        notifier.send_modify(|ticks| *ticks += 1);
        // The accepting loop has one, too.
        let listeners = notifier.receiver_count() - 1;
        chunks += listeners;
        state.log(&format!("Listeners: {listeners}, chunks: {chunks}"));
    }
}

async fn stream(mut tcp: TcpStream, entered: Entered, ticks: watch::Receiver<u64>) {
    // A broken connection has ended; there is nothing to report.
    let _ = serve_one(&mut tcp, &entered, ticks).await;
}

async fn serve_one(tcp: &mut TcpStream, entered: &Entered, mut ticks: watch::Receiver<u64>) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let id = match timeout(REQUEST_TIMEOUT, ask(tcp)).await?? {
        Ok(id) => id,
        Err(refusal) => return tcp.write_all(refusal.as_bytes()).await,
    };
    tcp.write_all(request::welcome(&id).as_bytes()).await?;
    entered.is_served();
    let first = *ticks.borrow_and_update();
    let mut sent = 0;
    loop {
        let mut unexpected = [0];
        tokio::select! {
            changed = ticks.changed() => changed.map_err(io::Error::other)?,
            // The client has gone, or sends more than one request.
            _ = tcp.read(&mut unexpected) => return Ok(()),
        }
        let due = *ticks.borrow_and_update() - first;
        while sent < due {
            sent += 1;
            tcp.write_all(request::line(sent, &id).as_bytes()).await?;
        }
    }
}

/// Returns the requested id, or the refusal to send.
async fn ask(tcp: &mut TcpStream) -> io::Result<Result<String, &'static str>> {
    let mut head = Vec::new();
    loop {
        if tcp.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match request::read(&head) {
            Request::Partial => {}
            Request::Stream(id) => return Ok(Ok(id)),
            Request::Refused(refusal) => return Ok(Err(refusal)),
        }
    }
}
