//! One hook about a message: a plain function, or an async one.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use encke_core::{Answer, Pending};
use tokio::runtime::Handle;

use super::call::Calling;
use super::reply::Failure;

/// The subject of a hook, such as an operation or a publication. A plain function sees it by reference. An async one owns it,
/// because its future may outlive the message.
pub(crate) trait Subject: 'static {
    /// The subject as it borrows from the message.
    type View<'a>;
}

/// The answer of a hook.
pub(crate) trait HookAnswer: Send + 'static {
    /// The answer if the hook did not run, because the message has no value that it takes.
    fn without(failure: &Failure) -> Self;
}

/// A hook that answers with `A`.
pub(crate) enum Hook<S: Subject, A> {
    /// It answers at once.
    Plain(Arc<Plain<S, A>>),
    /// It may wait.
    Async(Arc<Async<S, A>>),
}

impl<S: Subject, A> Clone for Hook<S, A> {
    fn clone(&self) -> Hook<S, A> {
        match self {
            Hook::Plain(function) => Hook::Plain(function.clone()),
            Hook::Async(function) => Hook::Async(function.clone()),
        }
    }
}

type Plain<S, A> = dyn Fn(&<S as Subject>::View<'_>, &Calling<'_>) -> Result<A, Failure> + Send + Sync;
type Async<S, A> = dyn Fn(&<S as Subject>::View<'_>, &Calling<'_>) -> Result<Pending<A>, Failure> + Send + Sync;

impl<S: Subject, A: HookAnswer> Hook<S, A> {
    /// Asks it. A future is polled once, in the context of the runtime. A plain function costs its call and nothing else. `calling` has
    /// the values that it takes.
    pub(crate) fn ask(&self, view: &S::View<'_>, calling: &Calling<'_>, runtime: &Handle) -> Answer<A> {
        let refused = |failure| Answer::Now(A::without(&failure));
        match self {
            Hook::Plain(function) => function(view, calling).map_or_else(refused, Answer::Now),
            Hook::Async(function) => {
                let _entered = runtime.enter();
                function(view, calling).map_or_else(refused, poll_once)
            }
        }
    }
}

/// Polls a future once. A result that is ready needs no other thread.
pub(crate) fn poll_once<T>(mut future: Pending<T>) -> Answer<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Answer::Now(answer),
        Poll::Pending => Answer::Later(future),
    }
}
