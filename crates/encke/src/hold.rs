//! Requests and tasks of the program that wait: for messages, for a time, for a condition.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use tokio::time::Instant;

use crate::handle::Handle;
use encke_local::{Gap, Message, Start, SubscribeError, Subscription};

/// A wait for the first of several things: a message on one of several channels, a condition, the end of a time. It holds no
/// thread. Dropping it, or the future of a wait, ends it: so it ends when the client of its request leaves.
///
/// ```
/// use std::time::Duration;
///
/// use encke::{Handle, Release};
///
/// /// Answers as soon as an order of this user is complete.
/// async fn wait_for_order(handle: Handle, user: &str) -> Result<String, Box<dyn std::error::Error>> {
///     let mut hold = handle.hold().on(&format!("/orders/{user}"))?.timeout(Duration::from_secs(30));
///     let is_complete = |message: Option<&encke::Message>| message.is_some_and(|it| it.data().contains("complete"));
///     Ok(match hold.until(is_complete).await? {
///         Release::Message(message) => message.data().to_owned(),
///         _ => "null".to_owned(),
///     })
/// }
/// ```
///
/// Its time needs a tokio runtime, as hooks and handlers have it.
#[derive(Debug)]
pub struct Hold {
    handle: Handle,
    subscriptions: Vec<Subscription>,
    /// The subscription that is asked first. It changes, so that a busy channel does not hide the others.
    first: usize,
    deadline: Option<Instant>,
}

/// The end of a wait.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Release {
    /// A message came, and the condition is met.
    Message(Message),
    /// Messages are missing; only from [`Hold::next`].
    Gap(Gap),
    /// The condition is met without a message; only from [`Hold::until`].
    Met,
    /// The time is over.
    Timeout,
    /// The server has stopped.
    Stopped,
}

/// A condition has panicked. Its request should get the status 500; others are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a condition has panicked")]
pub struct ConditionPanicked;

impl Handle {
    /// A wait for messages, a time or a condition.
    pub fn hold(&self) -> Hold {
        Hold { handle: self.clone(), subscriptions: Vec::new(), first: 0, deadline: None }
    }
}

impl Hold {
    /// Waits for messages of a channel or pattern, too: for those published after this call.
    ///
    /// # Errors
    /// As [`Handle::subscribe`].
    pub fn on(self, pattern: &str) -> Result<Hold, SubscribeError> {
        self.on_from(pattern, &Start::Latest)
    }

    /// Waits for messages of a channel or pattern from a point in its past on.
    ///
    /// # Errors
    /// As [`Handle::subscribe_from`].
    pub fn on_from(mut self, pattern: &str, start: &Start) -> Result<Hold, SubscribeError> {
        self.subscriptions.push(self.handle.subscribe_from(pattern, start)?);
        Ok(self)
    }

    /// Waits for this time at most, from now on.
    pub fn timeout(mut self, timeout: Duration) -> Hold {
        self.deadline = Instant::now().checked_add(timeout);
        self
    }

    /// The channels and patterns, with their positions.
    pub fn subscriptions(&self) -> &[Subscription] {
        &self.subscriptions
    }

    /// Waits for the next message of any channel.
    pub async fn next(&mut self) -> Release {
        let mut end = pin!(self.deadline.map(tokio::time::sleep_until));
        poll_fn(|cx| {
            for _ in 0..self.subscriptions.len() {
                self.first = (self.first + 1) % self.subscriptions.len();
                if let Poll::Ready(item) = pin!(&mut self.subscriptions[self.first]).poll_next(cx) {
                    return Poll::Ready(match item {
                        Some(Ok(message)) => Release::Message(message),
                        Some(Err(gap)) => Release::Gap(gap),
                        None => Release::Stopped,
                    });
                }
            }
            match end.as_mut().as_pin_mut() {
                Some(end) => end.poll(cx).map(|()| Release::Timeout),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Waits until a condition is met. It is evaluated at once, without a message, then at each message, and without one
    /// after a gap. The channels are subscribed to already, so no change between the first look and the next message is
    /// missed.
    ///
    /// # Errors
    /// The condition has panicked. This is logged; nothing else is affected.
    pub async fn until(
        &mut self,
        mut condition: impl FnMut(Option<&Message>) -> bool,
    ) -> Result<Release, ConditionPanicked> {
        let mut is_met = |message: Option<&Message>| {
            catch_unwind(AssertUnwindSafe(|| condition(message))).map_err(|_| {
                tracing::error!("the condition of a held request has panicked");
                ConditionPanicked
            })
        };
        if is_met(None)? {
            return Ok(Release::Met);
        }
        loop {
            match self.next().await {
                Release::Message(message) if !is_met(Some(&message))? => {}
                Release::Gap(_) if is_met(None)? => return Ok(Release::Met),
                Release::Gap(_) => {}
                end => return Ok(end),
            }
        }
    }
}
