//! A client that takes nothing of a response.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::node::Node;

/// The time for which a client has taken nothing. It is allocated only while that lasts.
#[derive(Default)]
pub(crate) struct Stall(Option<Box<Stalled>>);

struct Stalled {
    since: Instant,
    /// The timer of the next check.
    look: Pin<Box<Sleep>>,
}

impl Stall {
    /// Ready when the client has taken nothing for `wait`. Where responses have little room left, that time is short.
    pub(crate) fn poll(&mut self, node: &Node, wait: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let look = || Box::pin(tokio::time::sleep(STALL_LOOK.min(wait)));
        let stalled = self.0.get_or_insert_with(|| Box::new(Stalled { since: Instant::now(), look: look() }));
        while stalled.look.as_mut().poll(cx).is_ready() {
            if stalled.since.elapsed() >= wait || node.shard().is_short_of_responses() {
                return Poll::Ready(());
            }
            stalled.look = look();
        }
        Poll::Pending
    }

    /// True while the client takes nothing.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The client has taken something.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}

/// The interval at which a stalled response is checked, and how long it may stall while other responses lack room.
const STALL_LOOK: Duration = Duration::from_secs(1);
