//! The browser's cookie: `BAYEUX_BROWSER` (Bayeux 1.0 §1.8; names and options as CometD's).

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};

use encke_core::{Id, Settings};

/// The browser id of a request. A cookie with any other value is ignored.
pub(crate) fn browser(headers: &HeaderMap, settings: &Settings) -> Option<Id> {
    values(headers, settings).find_map(Id::parse)
}

/// True if a request has the cookie, with any value.
pub(crate) fn is_sent(headers: &HeaderMap, settings: &Settings) -> bool {
    values(headers, settings).next().is_some()
}

fn values<'a>(headers: &'a HeaderMap, settings: &'a Settings) -> impl Iterator<Item = &'a str> {
    let value = |pair: &'a [u8]| {
        let value = pair.trim_ascii().strip_prefix(settings.cookie_name.as_bytes())?.strip_prefix(b"=")?;
        Some(str::from_utf8(value).ok()?.trim_matches('"'))
    };
    headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).filter_map(value)
}

/// The `Set-Cookie` field of a new browser id. A cookie that was set over TLS is never sent without.
pub(crate) fn set(browser: &Id, settings: &Settings, is_https: bool) -> Option<HeaderValue> {
    let mut cookie = format!("{}={browser}", settings.cookie_name);
    let given = |text| Some(text).filter(|text: &&str| !text.is_empty());
    let max_age = Some(settings.cookie_max_age_s).filter(|age| *age >= 0).map(|age| age.to_string());
    for (attribute, value) in [
        ("; Path=", given(&settings.cookie_path)),
        ("; Domain=", given(&settings.cookie_domain)),
        ("; Max-Age=", max_age.as_deref()),
        ("; HttpOnly", settings.cookie_http_only.then_some("")),
        ("; Secure", (settings.cookie_secure || is_https).then_some("")),
        ("; Partitioned", settings.cookie_partitioned.then_some("")),
        ("; SameSite=", given(&settings.cookie_same_site)),
    ] {
        if let Some(value) = value {
            cookie = cookie + attribute + value;
        }
    }
    HeaderValue::try_from(cookie).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id {
        Id::parse(&"0".repeat(32)).expect("an id")
    }

    #[test]
    fn the_cookie_is_found_among_others_and_junk_is_ignored() {
        let settings = Settings::default();
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=b; BAYEUX_BROWSER=junk"));
        assert_eq!(browser(&headers, &settings), None);
        let line = format!("x; BAYEUX_BROWSER={}; c=d", id());
        headers.append(COOKIE, HeaderValue::try_from(line).expect("a header"));
        assert_eq!(browser(&headers, &settings), Some(id()));
    }

    #[test]
    fn the_cookie_is_set_with_its_attributes() {
        let settings = Settings { cookie_secure: true, cookie_max_age_s: 60, ..Settings::default() };
        let value = set(&id(), &settings, false).expect("a header");
        let expected = format!("BAYEUX_BROWSER={}; Path=/; Max-Age=60; HttpOnly; Secure; SameSite=Lax", id());
        assert_eq!(value, expected.as_str());
        let is_secure = |is_https| {
            let value = set(&id(), &Settings::default(), is_https).expect("a header");
            value.to_str().expect("ASCII").contains("; Secure")
        };
        assert_eq!((is_secure(true), is_secure(false)), (true, false));
    }
}
