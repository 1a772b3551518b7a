//! Services: async functions that answer calls.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use encke_core::{Actions, Answer};

use super::call::{Calling, FromCall, Need};
use super::hook::poll_once;
use super::reply::{Failure, IntoReply};

/// An async function that answers calls of a service.
///
/// It takes one to four values, or none, from the call ([`FromCall`]) and returns a reply ([`IntoReply`]). `T` tells functions with
/// different arguments apart.
pub trait ServiceHandler<T>: Send + Sync + 'static {
    /// Answers a call, in the context of a tokio runtime: at once, if the function needs not wait.
    fn answer(&self, call: &Calling<'_>) -> Answer<Actions>;

    /// The states that it needs.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, Fut, R, $($argument),*> ServiceHandler<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoReply,
            $($argument: FromCall,)*
        {
            fn answer(&self, call: &Calling<'_>) -> Answer<Actions> {
                let _ = call;
                // The arguments are taken before the future starts, so it need hold neither the handler nor the call.
                let take = || Ok(self($($argument::from_call(call)?),*));
                let taken: Result<Fut, Failure> = take();
                match taken {
                    Ok(answer) => poll_once(Box::pin(async move { answer.await.into_reply() })),
                    Err(failure) => Answer::Now(failure.into_reply()),
                }
            }

            fn needs(&self) -> Vec<Need> {
                let needs: [Option<Need>; _] = [$($argument::needs()),*];
                needs.into_iter().flatten().collect()
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);

/// Limits the time of one service: after it the caller gets a failure of the class `timeout`, and the future is dropped.
/// [`Settings::call_timeout_ms`](crate::Settings::call_timeout_ms) limits all services.
pub fn with_timeout<T, H: ServiceHandler<T>>(timeout: Duration, handler: H) -> WithTimeout<T, H> {
    WithTimeout { handler, timeout, arguments: PhantomData }
}

/// A service with a separate time-out, made by [`with_timeout`].
#[derive(Debug)]
pub struct WithTimeout<T, H> {
    handler: H,
    timeout: Duration,
    arguments: PhantomData<fn(T)>,
}

impl<T: 'static, H: ServiceHandler<T>> ServiceHandler<WithTimeout<T, H>> for WithTimeout<T, H> {
    fn answer(&self, call: &Calling<'_>) -> Answer<Actions> {
        let timeout = self.timeout;
        match self.handler.answer(call) {
            Answer::Now(actions) => Answer::Now(actions),
            Answer::Later(answer) => Answer::Later(Box::pin(async move {
                let late = |_| Failure::new("timeout", "the service did not answer in time").into_reply();
                tokio::time::timeout(timeout, answer).await.unwrap_or_else(late)
            })),
        }
    }

    fn needs(&self) -> Vec<Need> {
        self.handler.needs()
    }
}

/// A registered service.
pub(crate) type AnswerCall = Arc<dyn Fn(&Calling<'_>) -> Answer<Actions> + Send + Sync>;
