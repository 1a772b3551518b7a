//! Routes of the program: async functions that answer ordinary HTTP requests, and may hold them.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use tokio::runtime;

use super::call::{Calling, Context, FromCall, Need};
use super::patterns::Patterns;
use super::reply::{Data, Failure, Raw};
use crate::beside::run_on;
use crate::caught::Caught;
use crate::fallback::{Fallback, FallbackResponse, RequestBody, ResponseBody};
use crate::handle::Handle;
use crate::hold::{ConditionPanicked, Hold};
use crate::http::of_status;
use crate::request_client::RequestClient;
use encke_local::SubscribeError;

/// A request for a route of the program.
#[derive(Debug)]
pub struct RouteRequest {
    request: Request<RequestBody>,
    peer: Option<IpAddr>,
    handle: Handle,
}

impl RouteRequest {
    /// Its path, as it arrived.
    pub fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// The last segment of its path, as it arrived.
    pub fn last_segment(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// The address of the client.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// A handle of the server.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// A wait for messages, a time or a condition: the request is held meanwhile. It ends when the client leaves.
    pub fn hold(&self) -> Hold {
        self.handle.hold()
    }

    /// The request with its head.
    pub fn request(&self) -> &Request<RequestBody> {
        &self.request
    }
}

/// A value that the handler of a route may return: a text, [`Data`], [`Raw`], a status, a status with one of these, a whole
/// response, and results of these. A [`ConditionPanicked`] is the status 500, a [`SubscribeError`] 400.
pub trait RouteReply {
    /// The response.
    fn into_response(self) -> Response<ResponseBody>;
}

impl RouteReply for Response<ResponseBody> {
    fn into_response(self) -> Response<ResponseBody> {
        self
    }
}

impl RouteReply for String {
    fn into_response(self) -> Response<ResponseBody> {
        whole(StatusCode::OK, "text/plain; charset=utf-8", self)
    }
}

impl RouteReply for &'static str {
    fn into_response(self) -> Response<ResponseBody> {
        self.to_owned().into_response()
    }
}

impl RouteReply for Raw {
    fn into_response(self) -> Response<ResponseBody> {
        whole(StatusCode::OK, "application/json", self.0)
    }
}

impl<T: Serialize> RouteReply for Data<T> {
    fn into_response(self) -> Response<ResponseBody> {
        match serde_json::to_string(&self.0) {
            Ok(text) => Raw(text).into_response(),
            Err(error) => {
                tracing::error!(%error, "the reply of a route is no JSON");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

impl RouteReply for StatusCode {
    fn into_response(self) -> Response<ResponseBody> {
        let text = format!("{}\n", self.canonical_reason().unwrap_or_default());
        whole(self, "text/plain; charset=utf-8", text)
    }
}

impl<R: RouteReply> RouteReply for (StatusCode, R) {
    fn into_response(self) -> Response<ResponseBody> {
        of_status(self.0, self.1.into_response())
    }
}

impl RouteReply for ConditionPanicked {
    fn into_response(self) -> Response<ResponseBody> {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{self}\n")).into_response()
    }
}

impl RouteReply for SubscribeError {
    fn into_response(self) -> Response<ResponseBody> {
        (StatusCode::BAD_REQUEST, format!("{self}\n")).into_response()
    }
}

impl<R: RouteReply, E: RouteReply> RouteReply for Result<R, E> {
    fn into_response(self) -> Response<ResponseBody> {
        match self {
            Ok(reply) => reply.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

fn whole(status: StatusCode, content_type: &'static str, text: String) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = of_status(status, Response::new(ResponseBody::new(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An async function that answers HTTP requests, from a [`RouteRequest`] and up to two further values ([`FromCall`]) to a [`RouteReply`].
/// `T` tells functions with different arguments apart.
pub trait RouteHandler<T>: Send + Sync + 'static {
    /// Answers a request.
    ///
    /// # Errors
    /// There is no value that it takes.
    fn answer(self: Arc<Self>, request: RouteRequest, calling: &Calling<'_>) -> Result<RouteAnswer, Failure>;

    /// The states that it needs.
    fn needs(&self) -> Vec<Need>;
}

type RouteAnswer = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

macro_rules! answers {
    ($($argument:ident $value:ident)*) => {
        impl<F, Fut, R, $($argument,)*> RouteHandler<($($argument,)*)> for F
        where
            F: Fn(RouteRequest, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: RouteReply,
            $($argument: FromCall + Send + 'static,)*
        {
            fn answer(self: Arc<Self>, request: RouteRequest, calling: &Calling<'_>) -> Result<RouteAnswer, Failure> {
                let _ = calling;
                $(let $value = $argument::from_call(calling)?;)*
                Ok(Box::pin(async move { self(request, $($value),*).await.into_response() }))
            }

            fn needs(&self) -> Vec<Need> {
                let needs: [Option<Need>; _] = [$($argument::needs()),*];
                needs.into_iter().flatten().collect()
            }
        }
    };
}

answers!();
answers!(A a);
answers!(A a B b);

/// A registered route.
pub(crate) struct Route {
    /// Its path, pattern or template.
    path: Box<str>,
    answer: Box<AnswerRoute>,
    pub(crate) needs: Vec<Need>,
}

type AnswerRoute = dyn Fn(RouteRequest, &Calling<'_>) -> RouteAnswer + Send + Sync;

impl Route {
    pub(crate) fn new<T, H: RouteHandler<T>>(path: &str, handler: H) -> Route {
        let (needs, handler) = (handler.needs(), Arc::new(handler));
        let answer = move |request: RouteRequest, calling: &Calling<'_>| -> RouteAnswer {
            let path = request.path().to_owned();
            let started = handler.clone().answer(request, calling);
            Box::pin(async move {
                let answer = match started {
                    Ok(answer) => answer,
                    Err(failure) => {
                        tracing::error!(path, failure = failure.data(), "the handler of a route did not run");
                        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
                    }
                };
                // A panic fails only this request.
                Caught(answer).await.unwrap_or_else(|_| {
                    tracing::error!(path, "the handler of a route has panicked");
                    StatusCode::INTERNAL_SERVER_ERROR.into_response()
                })
            })
        };
        Route { path: path.into(), answer: Box::new(answer), needs }
    }
}

/// The routes of a server, in front of its fallback.
pub(crate) struct Routes {
    routes: Patterns<Route>,
    context: Arc<Context>,
    threads: runtime::Handle,
}

impl Routes {
    /// The routes of a server, on these threads.
    pub(crate) fn new(routes: Patterns<Route>, context: Arc<Context>, threads: runtime::Handle) -> Routes {
        Routes { routes, context, threads }
    }
}

impl Fallback for Routes {
    fn takes(&self, path: &str) -> bool {
        self.routes.closest(path).is_some()
    }

    fn answer(&self, request: Request<RequestBody>, client: RequestClient) -> FallbackResponse {
        let path = request.uri().path().to_owned();
        let route = self.routes.closest(&path);
        let Some((route, handle)) = route.zip(self.context.handle()) else {
            return Box::pin(std::future::ready(StatusCode::SERVICE_UNAVAILABLE.into_response()));
        };
        let calling = Calling::of_nobody(&path, None, &self.context).of_hook(&route.path);
        let answer = (route.answer)(RouteRequest { request, peer: client.address, handle }, &calling);
        run_on(&self.threads, async { Ok(answer.await) })
    }
}
