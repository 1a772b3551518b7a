//! The cookies of one server. CometD knows a browser by `BAYEUX_BROWSER` and refuses sessions that come without theirs.

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue};

/// Names and values, as they go back. There is one server and one path: domains, paths and dates do not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Takes what an answer sets (RFC 6265 §5.2). A cookie that is not text, or over the limits, is ignored.
    pub(crate) fn take(&mut self, headers: &HeaderMap) {
        for cookie in headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            let mut parts = cookie.split(';');
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || name.len() + value.len() > COOKIE_BYTES_MAX {
                continue;
            }
            self.0.retain(|(known, _)| known != name);
            if !value.is_empty() && !parts.any(is_expired) && self.0.len() < COOKIES_MAX {
                self.0.push((name.into(), value.into()));
            }
        }
    }

    /// The value of the `Cookie` header, if there are cookies (RFC 6265 §5.4).
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!pairs.is_empty()).then(|| HeaderValue::from_str(&pairs.join("; ")).ok()).flatten()
    }
}

/// True if an attribute says that the cookie is gone.
fn is_expired(attribute: &str) -> bool {
    attribute.split_once('=').is_some_and(|(name, value)| {
        name.trim().eq_ignore_ascii_case("max-age") && value.trim().parse().is_ok_and(|seconds: i64| seconds <= 0)
    })
}

/// The limit of cookies.
const COOKIES_MAX: usize = 32;

/// The longest cookie, in bytes (RFC 6265 §6.1).
const COOKIE_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(set: &[&str]) -> Option<String> {
        let mut cookies = Cookies::default();
        for value in set {
            let mut headers = HeaderMap::new();
            headers.append(SET_COOKIE, HeaderValue::from_str(value).expect("a header"));
            cookies.take(&headers);
        }
        cookies.header().map(|value| value.to_str().expect("text").into())
    }

    #[test]
    fn cookies_go_back_as_they_came() {
        assert_eq!(after(&[]), None);
        assert_eq!(
            after(&["BAYEUX_BROWSER=1h45; Path=/; HttpOnly", "a=b=c"]).as_deref(),
            Some("BAYEUX_BROWSER=1h45; a=b=c")
        );
    }

    #[test]
    fn newer_cookies_replace_older_ones_and_expired_ones_leave() {
        assert_eq!(after(&["a=1", "b=2", "a=3"]).as_deref(), Some("b=2; a=3"));
        assert_eq!(after(&["a=1", "b=2", "a=; Max-Age=0"]).as_deref(), Some("b=2"));
        assert_eq!(after(&["a=1", "a=x; max-age=-5"]), None);
        assert_eq!(after(&["a=1", "a=x; max-age=5"]).as_deref(), Some("a=x"));
    }

    #[test]
    fn cookies_are_bounded() {
        let many: Vec<String> = (0..100).map(|number| format!("c{number}=1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(after(&many).expect("some").split("; ").count(), COOKIES_MAX);
        assert_eq!(after(&[&format!("a={}", "x".repeat(COOKIE_BYTES_MAX)), "=b", "none"]), None);
    }
}
