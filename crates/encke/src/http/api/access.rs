//! The right to use the HTTP API and `/metrics`: that of a key, or of a program on this machine if the settings say so.

use http::header::{AUTHORIZATION, HeaderName, ORIGIN};
use http::{HeaderMap, Request, Version};

use super::problem::{Kind, Problem};
use crate::api_keys::{ApiKeys, Scope};
use crate::http::connection::Connection;
use crate::http::host;
use encke_core::Settings;

/// Checks that a request may do what needs this scope. Returns the name of its key, or an empty name for a program on
/// this machine without a key.
pub(super) fn check<B>(
    connection: &Connection,
    settings: &Settings,
    keys: &ApiKeys,
    request: &Request<B>,
    scope: Scope,
) -> Result<Box<str>, Problem> {
    let headers = request.headers();
    let refused = |detail| Err(Problem::new(Kind::UNAUTHORIZED, detail));
    let Ok(given) = key_of(headers) else {
        return refused("name one key: Authorization: Bearer KEY, or X-API-Key: KEY");
    };
    let Some(given) = given else {
        if settings.api_loopback && is_from_here(connection, request) && !is_of_page(headers) {
            return Ok("".into());
        }
        return refused("give a key: Authorization: Bearer KEY, or X-API-Key: KEY");
    };
    let Some(holder) = keys.find(given) else { return refused("the key is not valid") };
    if holder.has(scope) {
        return Ok(holder.name.clone());
    }
    Err(Problem::new(Kind::FORBIDDEN, format!("the key {:?} lacks the scope {}", holder.name, scope.name())))
}

/// True if a request has a key with the scope `metrics`.
pub(crate) fn may_read_metrics(keys: &ApiKeys, headers: &HeaderMap) -> bool {
    let given = key_of(headers).ok().flatten();
    given.and_then(|given| keys.find(given)).is_some_and(|holder| holder.has(Scope::Metrics))
}

/// The key of a request, if it has one. An error if it has several, or another kind of authorization.
fn key_of(headers: &HeaderMap) -> Result<Option<&[u8]>, ()> {
    let bearer = headers.get_all(AUTHORIZATION).iter().map(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("bearer ".len()).ok_or(())?;
        if scheme.eq_ignore_ascii_case(b"bearer ") { Ok(key.trim_ascii()) } else { Err(()) }
    });
    let plain = headers.get_all("x-api-key").iter().map(|value| Ok(value.as_bytes()));
    let mut keys = bearer.chain(plain);
    match (keys.next(), keys.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => only.map(Some),
        (Some(_), Some(_)) => Err(()),
    }
}

/// True if a page in a browser made the request. A page needs a key, because a foreign one must not use the rights of
/// its visitor's machine.
fn is_of_page(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN) || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"))
}

/// True for a request of a program on this machine, false for one that a proxy on this machine forwards. The peer and all hosts are
/// loopback, and no field is one that proxies add. HTTP/1.0 counts as such a field: older nginx speaks it by default and adds none.
pub(crate) fn is_from_here<B>(connection: &Connection, request: &Request<B>) -> bool {
    let is_proxied = |name: &HeaderName| {
        matches!(name.as_str(), "forwarded" | "via" | "x-real-ip") || name.as_str().starts_with("x-forwarded-")
    };
    connection.remote.is_loopback()
        && request.version() != Version::HTTP_10
        && host::is_loopback(request)
        && !request.headers().keys().any(is_proxied)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(fields: &[(&'static str, &'static str)]) -> Result<Option<String>, ()> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        key_of(&headers).map(|key| key.map(|key| String::from_utf8_lossy(key).into_owned()))
    }

    #[test]
    fn a_request_names_one_key_in_one_of_two_headers() {
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[("authorization", "Bearer abc")]), Ok(Some("abc".into())));
        assert_eq!(key(&[("authorization", "bearer  abc")]), Ok(Some("abc".into())));
        assert_eq!(key(&[("x-api-key", "abc")]), Ok(Some("abc".into())));
        for wrong in ["Basic YTpi", "abc", "Bearer", ""] {
            assert_eq!(key(&[("authorization", wrong)]), Err(()), "{wrong}");
        }
        assert_eq!(key(&[("authorization", "Bearer a"), ("x-api-key", "a")]), Err(()));
        assert_eq!(key(&[("x-api-key", "a"), ("x-api-key", "b")]), Err(()));
    }
}
