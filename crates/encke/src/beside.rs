//! A tower service as the fallback of a server: it runs on the threads of the application.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tower_service::Service;

use crate::asset::Asset;
use crate::fallback::{BoxError, Fallback, FallbackResponse, RequestBody, ResponseBody};
use crate::http::of_status;
use crate::request_client::RequestClient;

type Answer = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, BoxError>> + Send>>;

/// A service of the program that does not run yet.
pub(crate) struct Beside(Box<dyn Fn(Request<RequestBody>) -> Answer + Send + Sync>);

/// A service of the program.
pub(crate) struct Tower {
    pub(crate) service: Beside,
    pub(crate) threads: Handle,
    /// The files beside the endpoint, which are the server's.
    pub(crate) assets: &'static [Asset],
}

impl Beside {
    pub(crate) fn new<S, B>(service: S) -> Beside
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>,
        S: Clone + Send + Sync + 'static,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Beside(Box::new(move |request| {
            let mut service = service.clone();
            Box::pin(async move {
                std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
                let response = service.call(request).await.map_err(Into::into)?;
                let (parts, body) = response.into_parts();
                Ok(Response::from_parts(parts, pass(body).await?))
            })
        }))
    }
}

impl Fallback for Tower {
    fn takes(&self, path: &str) -> bool {
        !self.assets.iter().any(|asset| asset.path == path)
    }

    fn answer(&self, mut request: Request<RequestBody>, client: RequestClient) -> FallbackResponse {
        if let Some(address) = client.address {
            request.extensions_mut().insert(address);
        }
        run_on(&self.threads, (self.service.0)(request))
    }
}

/// Runs the future of a response on other threads. It is dropped if its client leaves.
pub(crate) fn run_on(
    threads: &Handle,
    answer: impl Future<Output = Result<Response<ResponseBody>, BoxError>> + Send + 'static,
) -> FallbackResponse {
    let mut task = JoinSet::new();
    task.spawn_on(answer, threads);
    Box::pin(async move {
        match task.join_next().await {
            Some(Ok(Ok(response))) => return response,
            Some(Ok(Err(error))) => tracing::error!(%error, "the program could not answer a request"),
            // It panicked, which is in the log already.
            _ => {}
        }
        let text = Full::from("the request could not be answered\n").map_err(Into::into);
        of_status(StatusCode::INTERNAL_SERVER_ERROR, Response::new(ResponseBody::new(text)))
    })
}

/// A body whose pieces another thread makes.
struct Pieces {
    pieces: mpsc::Receiver<Result<Frame<Bytes>, BoxError>>,
    hint: SizeHint,
    /// Ends the task when the client leaves.
    _task: JoinSet<()>,
}

/// Takes a body that is small, or starts a task that reads it: the thread of a shard does none of its work.
async fn pass(
    body: impl HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
) -> Result<ResponseBody, BoxError> {
    let hint = body.size_hint();
    if hint.exact().is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX) {
        let whole = body.collect().await.map_err(Into::into)?.to_bytes();
        return Ok(ResponseBody::new(Full::new(whole).map_err(Into::into)));
    }
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut body = std::pin::pin!(body.map_err(Into::<BoxError>::into));
        while let Some(piece) = body.frame().await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
    });
    Ok(ResponseBody::new(Pieces { pieces, hint, _task: task }))
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let piece = ready!(self.pieces.poll_recv(cx));
        self.hint = SizeHint::default();
        Poll::Ready(piece)
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

/// A body of at most this many bytes comes to the shard in one piece.
const WHOLE_BYTES_MAX: u64 = 64 * 1024;
/// The pieces of a body that wait for its client.
const PIECES_MAX: usize = 4;
