//! Decisions and answers of the application that come later. A shard passes the future on as an effect, and gets the
//! result back as a message.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::application::{Action, Actions, Decision, Pending, Refusal, Replacement, Verdict};
use crate::identity::Identity;

/// Names a wait of a shard. The generation detects late results for a reused index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitKey {
    /// The index in the shard.
    pub index: u32,
    /// Increases with each wait.
    pub generation: u32,
}

/// The future for which a shard waits. The environment of the shard runs it and returns its result with
/// [`ShardMessage::Resolved`](crate::ShardMessage::Resolved).
pub enum Awaited {
    /// The decision on a handshake.
    Handshake(Pending<Result<Option<Identity>, Refusal>>),
    /// The check of new credentials.
    Refresh(Pending<Result<Identity, Refusal>>),
    /// The decision on a subscription, or on a call.
    Subscribe(Pending<Decision>),
    /// The verdict on a publication.
    Publish(Pending<Verdict>),
    /// The answer to a call.
    Service(Pending<Actions>),
}

/// The result of an [`Awaited`].
#[derive(Debug)]
pub enum Resolved {
    /// The decision on a handshake.
    Handshake(Result<Option<Identity>, Refusal>),
    /// The check of new credentials.
    Refresh(Result<Identity, Refusal>),
    /// The decision on a subscription, or on a call.
    Subscribe(Decision),
    /// The verdict on a publication.
    Publish(Verdict),
    /// The answer to a call.
    Service(Actions),
    /// The future has panicked.
    Failed,
}

impl Future for Awaited {
    type Output = Resolved;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resolved> {
        match &mut *self {
            Awaited::Handshake(future) => future.as_mut().poll(cx).map(Resolved::Handshake),
            Awaited::Refresh(future) => future.as_mut().poll(cx).map(Resolved::Refresh),
            Awaited::Subscribe(future) => future.as_mut().poll(cx).map(Resolved::Subscribe),
            Awaited::Publish(future) => future.as_mut().poll(cx).map(Resolved::Publish),
            Awaited::Service(future) => future.as_mut().poll(cx).map(Resolved::Service),
        }
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Awaited::Handshake(_) => "Handshake",
            Awaited::Refresh(_) => "Refresh",
            Awaited::Subscribe(_) => "Subscribe",
            Awaited::Publish(_) => "Publish",
            Awaited::Service(_) => "Service",
        })
    }
}

impl Resolved {
    /// The bytes of its texts.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Resolved::Handshake(Ok(Some(identity))) | Resolved::Refresh(Ok(identity)) => identity.claims.len(),
            Resolved::Publish(Verdict::Replace(data)) => data.len(),
            Resolved::Publish(Verdict::ReplaceMessage(replacement)) => {
                let Replacement { data, ext } = &**replacement;
                [data, ext].into_iter().flatten().map(String::len).sum()
            }
            Resolved::Service(actions) => actions.as_slice().iter().map(Action::bytes).sum(),
            _ => 0,
        }
    }
}
