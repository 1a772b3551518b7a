//! A service for the requests that are not the server's own.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Either;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::{Mutex, RwLock};

use crate::asset::Asset;
use crate::byte_stream::ByteStream;
use crate::files::Resource;
use crate::request_client::RequestClient;
use crate::stream_body::StreamBody;

/// An error of any kind.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request for a [`Fallback`]: over HTTP/1.1, over HTTP/2, or from another HTTP server.
pub type RequestBody = Either<hyper::body::Incoming, Either<StreamBody, OtherBody>>;
/// The body of a response of a [`Fallback`]: whole, or a stream.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// The body of a request that another HTTP server has read.
pub struct OtherBody(pub(crate) ResponseBody);

opaque!(OtherBody);

impl HttpBody for OtherBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The response of a [`Fallback`], which may take long: the client's connection needs few bytes meanwhile.
pub type FallbackResponse = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// Answers the requests that are not the server's own. [`Handle::set_fallback`](crate::Handle::set_fallback) installs it.
///
/// The server answers its Bayeux endpoint, `/api/v1/`, `/hold`, `/stream`, `/healthz`, `/readyz` and `/metrics` itself. Its futures run on
/// the threads of shards: they must not block.
pub trait Fallback: Send + Sync {
    /// True if it answers requests for this path. The server answers all others.
    fn takes(&self, path: &str) -> bool;

    /// Answers a request of this client. If it leaves, the future is dropped.
    fn answer(&self, request: Request<RequestBody>, client: RequestClient) -> FallbackResponse;
}

/// Takes the connection of a request over, for another protocol such as a WebSocket. A [`Fallback`] puts it into the extensions
/// of a response with the status 101 (RFC 9110 §15.2.2), and the server gives it the connection when the response is written. A WebSocket
/// over HTTP/2 comes as such a request, too, and the connection is its stream (RFC 8441).
#[derive(Clone)]
pub struct TakeOver(Arc<Mutex<Option<Task>>>);

/// Uses a connection, and the bytes that the client has sent after its request.
type Task = Box<dyn FnOnce(ByteStream, Vec<u8>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl TakeOver {
    /// The function gets the connection, and the bytes that the client has sent after its request. Its future runs on the thread
    /// of a shard: it must not block. It is dropped when the server drains.
    pub fn new<F>(task: impl FnOnce(ByteStream, Vec<u8>) -> F + Send + 'static) -> TakeOver
    where
        F: Future<Output = ()> + Send + 'static,
    {
        TakeOver(Arc::new(Mutex::new(Some(Box::new(|stream, rest| Box::pin(task(stream, rest)))))))
    }

    /// Runs it, once.
    pub(crate) async fn run(self, stream: ByteStream, rest: Vec<u8>) {
        let task = self.0.lock().take();
        if let Some(task) = task {
            task(stream, rest).await;
        }
    }
}

opaque!(TakeOver);

/// The answers to paths that are not the server's own: files and routes of the program, and the fallback, if there is one.
pub(crate) struct Pages {
    assets: HashMap<&'static str, Resource>,
    routes: Arc<dyn Fallback>,
    fallback: RwLock<Option<Arc<dyn Fallback>>>,
}

impl Pages {
    /// Files and routes, and no fallback.
    pub(crate) fn new(assets: &'static [Asset], routes: Arc<dyn Fallback>) -> Pages {
        // Of several files with one path the first one is served.
        let assets = assets.iter().rev().map(|asset| (asset.path, Resource::of_asset(asset))).collect();
        Pages { assets, routes, fallback: RwLock::default() }
    }

    /// The file of the program at a path.
    pub(crate) fn asset(&self, path: &str) -> Option<&Resource> {
        self.assets.get(path)
    }

    /// Replaces the fallback.
    pub(crate) fn set_fallback(&self, fallback: Option<Arc<dyn Fallback>>) {
        *self.fallback.write() = fallback;
    }

    /// The routes if they take a path, else the fallback if it does.
    pub(crate) fn of(&self, path: &str) -> Option<Arc<dyn Fallback>> {
        if self.routes.takes(path) {
            return Some(self.routes.clone());
        }
        self.fallback.read().as_ref().filter(|fallback| fallback.takes(path)).cloned()
    }
}
