//! Pages that are part of the program.

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, Response, StatusCode};

use super::{Body, whole};
use crate::asset::Asset;

/// Answers with the asset of the request's path, if there is one.
pub(crate) fn answer<B>(assets: &'static [Asset], request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    let asset = assets.iter().find(|asset| asset.path == path)?;
    let known = request.headers().get(IF_NONE_MATCH).is_some_and(|tags| matches(tags, asset.etag));
    let mut response = Response::new(whole(if known { b"" } else { asset.body }));
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, asset.content_type),
        (ETAG, asset.etag),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// RFC 9110 §13.1.2, weak comparison.
fn matches(tags: &HeaderValue, etag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default();
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}

/// The pages load only their own files, and no page may frame them.
const POLICY: &str =
    "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
