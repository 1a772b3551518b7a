//! Pages that are part of the program.

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{Request, Response, StatusCode};

use super::coding::preferred;
use super::{Body, typed, with};
use crate::asset::Asset;

/// Answers with the asset of the request's path, if there is one.
pub(crate) fn answer<B>(assets: &'static [Asset], request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    let asset = assets.iter().find(|asset| asset.path == path)?;
    let form = preferred(asset.encoded, |form| form.coding, request.headers());
    let (body, etag) = form.map_or((asset.body, asset.etag), |form| (form.body, form.etag));
    let known = request.headers().get_all(IF_NONE_MATCH).iter().any(|tags| matches(tags, etag));
    let (status, body) = if known { (StatusCode::NOT_MODIFIED, &b""[..]) } else { (StatusCode::OK, body) };
    let fields = [(ETAG, etag), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, asset.content_security_policy)];
    let mut response = with(typed(status, asset.content_type, body), &fields);
    if !asset.encoded.is_empty() {
        response = with(response, &[(VARY, "accept-encoding")]);
    }
    Some(match form {
        Some(form) => with(response, &[(CONTENT_ENCODING, form.coding)]),
        None => response,
    })
}

/// RFC 9110 §13.1.2, weak comparison.
fn matches(tags: &HeaderValue, etag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default();
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}
