//! One request, from its URL to the last byte of its body.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, COOKIE, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::upgrade::Upgraded;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{Instant, timeout_at};

use crate::connector::Timed;
use crate::error::{self, FetchError};
use crate::hosts::Hosts;
use crate::limits::{HEAD_BYTES_MAX, HEADER_LIST_BYTES_MAX, Limits};
use crate::secret_url::shown;
use crate::{redirect, tls};

/// A client for HTTP requests with limits. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: Client<Timed<HttpsConnector<HttpConnector>>, Full<Bytes>>,
    hosts: Arc<Hosts>,
    limits: Limits,
}

impl Fetcher {
    /// A client that trusts the roots of the system, and those of a file of PEM certificates if one is given.
    ///
    /// # Errors
    /// [`FetchError::CaFile`].
    pub fn new(limits: Limits, ca_file: Option<&Path>) -> Result<Fetcher, FetchError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls::tls_config(ca_file)?);
        let https = tls.https_or_http().enable_all_versions().wrap_connector(http);
        let connector = Timed { connector: https, connect_timeout_ms: limits.connect_timeout_ms };
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_millis(limits.idle_timeout_ms))
            .pool_max_idle_per_host(limits.requests_per_host_max)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
            .build(connector);
        Ok(Fetcher { client, hosts: Hosts::new(limits.requests_per_host_max), limits })
    }

    /// The limits of its requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The same client with its connections, and other limits for one request: total time, bytes and redirects. Those of
    /// connections stay.
    #[must_use]
    pub fn limited(&self, limits: Limits) -> Fetcher {
        Fetcher {
            limits: Limits { requests_per_host_max: self.limits.requests_per_host_max, ..limits },
            ..self.clone()
        }
    }

    /// Requests a URL by `GET`.
    ///
    /// # Errors
    /// The reason why there is no response. A response with any status is none.
    pub async fn get(&self, url: &str) -> Result<Response<Bytes>, FetchError> {
        let uri = url.parse::<Uri>().map_err(|_| FetchError::Url { url: shown(url), reason: "not a URL" })?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri;
        self.send(request).await
    }

    /// Makes a request, whose URL is absolute.
    ///
    /// # Errors
    /// The reason why there is no response. A response with any status is none.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, FetchError> {
        let follows = [Method::GET, Method::HEAD].contains(request.method());
        self.run(request, follows, &mut |_| true).await
    }

    /// Makes a request, whose URL is absolute, and follows no redirect: a redirect is the response. `has_room` learns of the bytes of
    /// the body so far, and may refuse them.
    ///
    /// # Errors
    /// The reason why there is no response. A response with any status is none.
    pub async fn send_once(
        &self,
        request: Request<Bytes>,
        has_room: &mut HasRoom<'_>,
    ) -> Result<Response<Bytes>, FetchError> {
        self.run(request, false, has_room).await
    }

    /// Makes a request for another protocol, whose URL is absolute, and follows no redirect. Headers `Connection` and `Upgrade`
    /// name the protocol. With HTTP/2, which a server may choose on TLS, there are no such requests. `has_room` is that of
    /// [`Fetcher::send_once`].
    ///
    /// # Errors
    /// The reason why there is no response. A response with any status is none.
    pub async fn upgrade(&self, request: Request<Bytes>, has_room: &mut HasRoom<'_>) -> Result<Upgrade, FetchError> {
        let total_timeout_ms = self.limits.total_timeout_ms;
        let deadline = Instant::now() + Duration::from_millis(total_timeout_ms);
        host(request.uri())?;
        let exchange = async {
            let sent = self.client.request(request.map(Full::new)).await;
            let mut response = sent.map_err(|error| error::of_client(&error))?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Upgrade::Response(self.whole(response, has_room).await?));
            }
            let upgraded = hyper::upgrade::on(&mut response).await.map_err(|error| error::of_body(&error))?;
            Ok(Upgrade::Switched(response.map(|_| TokioIo::new(upgraded))))
        };
        timeout_at(deadline, exchange).await.map_err(|_| FetchError::TotalTimeout { total_timeout_ms })?
    }

    async fn run(
        &self,
        mut request: Request<Bytes>,
        follows: bool,
        has_room: &mut HasRoom<'_>,
    ) -> Result<Response<Bytes>, FetchError> {
        let total_timeout_ms = self.limits.total_timeout_ms;
        let deadline = Instant::now() + Duration::from_millis(total_timeout_ms);
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(USER_AGENT_VALUE));
        let mut asked = Vec::new();
        loop {
            let uri = request.uri().clone();
            let permit = timeout_at(deadline, self.hosts.permit(host(&uri)?)).await;
            let requests_per_host_max = self.limits.requests_per_host_max;
            let _permit = permit.map_err(|_| FetchError::HostBusy { requests_per_host_max })?;
            let in_time = timeout_at(deadline, self.exchange(&request, follows, has_room)).await;
            let to = match in_time.map_err(|_| FetchError::TotalTimeout { total_timeout_ms })?? {
                Answer::Response(response) => return Ok(response),
                Answer::Redirect(to) => to,
            };
            if asked.len() == self.limits.redirects_max {
                return Err(FetchError::TooManyRedirects { redirects_max: self.limits.redirects_max });
            }
            asked.push(uri.clone());
            if asked.contains(&to) {
                return Err(FetchError::RedirectLoop { url: shown(&to.to_string()) });
            }
            if !redirect::is_same_origin(&uri, &to) {
                for name in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    request.headers_mut().remove(name);
                }
            }
            *request.uri_mut() = to;
        }
    }

    /// One request and its answer. The body of a redirect is not read.
    async fn exchange(
        &self,
        request: &Request<Bytes>,
        follows: bool,
        has_room: &mut HasRoom<'_>,
    ) -> Result<Answer, FetchError> {
        let sent = request.clone().map(Full::new);
        let response = self.client.request(sent).await.map_err(|error| error::of_client(&error))?;
        if follows && let Some(to) = redirect::target(request.uri(), &response)? {
            return Ok(Answer::Redirect(to));
        }
        self.whole(response, has_room).await.map(Answer::Response)
    }

    /// The response with its whole body.
    async fn whole(
        &self,
        response: Response<Incoming>,
        has_room: &mut HasRoom<'_>,
    ) -> Result<Response<Bytes>, FetchError> {
        let (head, body) = response.into_parts();
        let body = read(body, self.limits.response_bytes_max, has_room).await?;
        Ok(Response::from_parts(head, body))
    }
}

/// True if there is room for a body of this many bytes. It is called as the body grows.
pub type HasRoom<'a> = dyn FnMut(usize) -> bool + Send + 'a;

/// The answer to a request for another protocol.
#[derive(Debug)]
pub enum Upgrade {
    /// The server has not switched: an ordinary response.
    Response(Response<Bytes>),
    /// The server has switched. The body is the connection.
    Switched(Response<TokioIo<Upgraded>>),
}

/// The answer to one request.
enum Answer {
    Response(Response<Bytes>),
    Redirect(Uri),
}

/// Reads a body, as long as it stays within its limit.
async fn read(mut body: Incoming, response_bytes_max: usize, has_room: &mut HasRoom<'_>) -> Result<Bytes, FetchError> {
    let too_large = FetchError::ResponseTooLarge { response_bytes_max };
    if body.size_hint().lower() > response_bytes_max as u64 {
        return Err(too_large);
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error::of_body(&error))?.into_data() else { continue };
        if data.len() > response_bytes_max - whole.len() {
            return Err(too_large);
        }
        whole.extend_from_slice(&data);
        if !has_room(whole.capacity()) {
            return Err(FetchError::NoRoom);
        }
    }
    Ok(whole.freeze())
}

/// The scheme, host and port of a URL that can be requested.
fn host(uri: &Uri) -> Result<String, FetchError> {
    let refused = |reason| FetchError::Url { url: shown(&uri.to_string()), reason };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(refused("not a URL that begins with http:// or https://"));
    };
    if authority.as_str().contains('@') {
        return Err(refused("name and password belong into a header, not into the URL"));
    }
    Ok(format!("{scheme}://{authority}"))
}

/// The name of this client.
const USER_AGENT_VALUE: &str = concat!("encke/", env!("CARGO_PKG_VERSION"));
