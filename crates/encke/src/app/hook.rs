//! One hook about a message: a plain function, or an async one.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use encke_core::{Answer, Pending};
use tokio::runtime::Handle;

/// The subject of a hook, such as an operation or a publication. A plain function sees it by reference. An async one owns it,
/// because its future may outlive the message.
pub(crate) trait Subject: 'static {
    /// The subject as it borrows from the message.
    type View<'a>;

    /// The same, without references.
    fn of(view: &Self::View<'_>) -> Self;
}

/// A hook that answers with `A`.
pub(crate) enum Hook<S: Subject, A> {
    /// It answers at once.
    Plain(Box<Plain<S, A>>),
    /// It may wait.
    Async(Box<Async<S, A>>),
}

type Plain<S, A> = dyn Fn(&<S as Subject>::View<'_>) -> A + Send + Sync;
type Async<S, A> = dyn Fn(S) -> Pending<A> + Send + Sync;

impl<S: Subject, A: Send + 'static> Hook<S, A> {
    pub(crate) fn of_async<F, Fut>(function: F) -> Hook<S, A>
    where
        F: Fn(S) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
    {
        Hook::Async(Box::new(move |subject| Box::pin(function(subject))))
    }

    /// Asks it. A future is polled once, in the context of the runtime. A plain function costs its call and nothing else.
    pub(crate) fn ask(&self, view: &S::View<'_>, runtime: &Handle) -> Answer<A> {
        match self {
            Hook::Plain(function) => Answer::Now(function(view)),
            Hook::Async(function) => {
                let _entered = runtime.enter();
                poll_once(function(S::of(view)))
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
