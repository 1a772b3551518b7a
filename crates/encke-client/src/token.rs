//! The program's function that gets tokens, and the one call of it that is in progress.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::LostReason;

/// A program's source of tokens; see [`ClientBuilder::token`](crate::ClientBuilder::token).
#[derive(Clone)]
pub(crate) struct TokenProvider(Arc<dyn Fn() -> TokenFuture<String> + Send + Sync>);

/// A call in progress: a token, or the reason why there is none.
type TokenFuture<E> = Pin<Box<dyn Future<Output = Result<String, E>> + Send>>;

/// The tokens of a client.
#[derive(Default)]
pub(crate) struct Tokens {
    provider: Option<TokenProvider>,
    /// The call in progress.
    call: Option<TokenFuture<LostReason>>,
    /// The time of the next call after one that has failed while the session was open.
    again_at: Option<Instant>,
}

impl TokenProvider {
    pub(crate) fn new<F, Fut, E>(provider: F) -> TokenProvider
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: fmt::Display,
    {
        TokenProvider(Arc::new(move || {
            let token = provider();
            Box::pin(async move { token.await.map_err(|error| error.to_string()) })
        }))
    }
}

impl Tokens {
    pub(crate) fn new(provider: Option<TokenProvider>) -> Tokens {
        Tokens { provider, ..Tokens::default() }
    }

    /// Calls the program's function, which may take this time, unless a call is in progress.
    pub(crate) fn request(&mut self, time: Duration) {
        self.again_at = None;
        if let Some(TokenProvider(provider)) = self.provider.as_ref().filter(|_| self.call.is_none()) {
            let token = provider();
            self.call = Some(Box::pin(async move {
                let token = timeout(time, token).await.unwrap_or_else(|_| Err(format!("none within {time:?}")));
                token.map_err(LostReason::Token)
            }));
        }
    }

    /// The result of the call in progress. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<String, LostReason> {
        let Some(call) = &mut self.call else { return pending().await };
        let token = call.await;
        self.call = None;
        token
    }

    /// Calls again after a while.
    pub(crate) fn try_later(&mut self) {
        self.again_at = Some(Instant::now() + RETRY_PAUSE);
    }

    /// The time of the next call, if there is one.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }
}

impl fmt::Debug for TokenProvider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenProvider")
    }
}

/// The pause after a call that has failed while the session was open. Servers announce the end of a token once.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
