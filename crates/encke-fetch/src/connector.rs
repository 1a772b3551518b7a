//! A limit of time around the making of a connection.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use tower_service::Service;

use crate::error::ConnectTimedOut;

type BoxError = Box<dyn Error + Send + Sync>;

/// A connector whose connections are open in time, or fail.
#[derive(Clone, Debug)]
pub(crate) struct Timed<C> {
    pub(crate) connector: C,
    pub(crate) connect_timeout_ms: u64,
}

impl<C> Service<Uri> for Timed<C>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, connect_timeout_ms) = (self.connector.call(to), self.connect_timeout_ms);
        Box::pin(async move {
            match tokio::time::timeout(Duration::from_millis(connect_timeout_ms), connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(ConnectTimedOut(connect_timeout_ms).into()),
            }
        })
    }
}
