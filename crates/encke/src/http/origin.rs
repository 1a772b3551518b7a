//! Pages that may use the server: its own, and those of allowed origins (RFC 6454, Fetch §3.2).
//!
//! A browser sends the origin of the page with every WebSocket and every POST. Programs send none and are not
//! restricted. The host of the request is checked before ([`super::host`]).

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, HOST, HeaderName, HeaderValue, ORIGIN, REFERER, USER_AGENT,
    VARY,
};
use http::{HeaderMap, Uri};

use crate::authority::{self, Host};
use crate::request_client::RequestClient;
use encke_core::Settings;

/// The relation of a request's origin to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The request names none: it comes from a program or from the browser itself.
    None,
    /// A page of this server.
    Own,
    /// A page of an allowed origin; the response names it.
    Allowed(HeaderValue),
    /// A page of any origin (`*`); the response allows it without credentials.
    Anybody,
    /// A page of an origin that is not allowed.
    Foreign,
}

/// Classifies the origin of a request.
pub(crate) fn of(headers: &HeaderMap, uri: &Uri, settings: &Settings, client: &RequestClient) -> Origin {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return of_site(headers, Origin::None) };
    let text = origin.to_str().unwrap_or_default();
    if origins.next().is_some() || text.len() > ORIGIN_BYTES_MAX {
        return Origin::Foreign;
    }
    of_site(headers, judge(text, origin, headers, uri, settings, client))
}

/// Classifies a script request (JSONP). Such a request names no origin, so other fields of the browser decide.
pub(crate) fn of_script(headers: &HeaderMap, uri: &Uri, settings: &Settings, client: &RequestClient) -> Origin {
    if headers.contains_key(ORIGIN) {
        return of(headers, uri, settings, client);
    }
    let site = Site::of(headers);
    if site == Site::Own {
        return Origin::Own;
    }
    match headers.get(REFERER).and_then(|referer| referer.to_str().ok()).and_then(origin_of_url) {
        Some(origin) => match HeaderValue::try_from(origin.as_str()) {
            Ok(value) => of_site(headers, judge(&origin, &value, headers, uri, settings, client)),
            Err(_) => Origin::Foreign,
        },
        // The page hides its origin. Browsers also omit `Sec-Fetch-Site` where they do not trust the server's
        // address.
        None if site != Site::Unknown || is_browser(headers) => anybody(settings),
        None => Origin::None,
    }
}

/// Refuses requests that another site caused, unless its origin is allowed. No page can change the `Sec-Fetch-Site`
/// of its browser.
fn of_site(headers: &HeaderMap, origin: Origin) -> Origin {
    let is_foreign = Site::of(headers) == Site::Other;
    if is_foreign && matches!(origin, Origin::None | Origin::Own) { Origin::Foreign } else { origin }
}

/// The relation of a page to the server, by its browser (`Sec-Fetch-Site`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Site {
    /// The browser does not name it, or the client is no browser.
    Unknown,
    /// The page is of the server, or the user made the request.
    Own,
    /// Another host of the same site.
    Same,
    /// Another site. So is everything that no browser sends: other values, and several.
    Other,
}

impl Site {
    fn of(headers: &HeaderMap) -> Site {
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter().map(HeaderValue::as_bytes);
        match (sites.next(), sites.next()) {
            (None, _) => Site::Unknown,
            (Some(b"same-origin" | b"none"), None) => Site::Own,
            (Some(b"same-site"), None) => Site::Same,
            _ => Site::Other,
        }
    }
}

/// True for a request of a browser: all browsers send this agent, and no page can change it for a script element.
fn is_browser(headers: &HeaderMap) -> bool {
    headers.get(USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// The origin of an unknown page.
fn anybody(settings: &Settings) -> Origin {
    if settings.allowed_origins.iter().any(|allowed| allowed == "*") { Origin::Anybody } else { Origin::Foreign }
}

/// Classifies an origin. Where the client speaks TLS with the server or a trusted proxy, the server's pages are those of `https`; otherwise a
/// proxy that is not known may speak it.
fn judge(
    text: &str,
    origin: &HeaderValue,
    headers: &HeaderMap,
    uri: &Uri,
    settings: &Settings,
    client: &RequestClient,
) -> Origin {
    if settings.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text)) {
        return Origin::Allowed(origin.clone());
    }
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    let of_target = uri.authority().map(|authority| authority.as_str());
    let host = client.forwarded_host.as_deref().or(of_target).or(named);
    let same = text.split_once("://").is_some_and(|(scheme, rest)| {
        (scheme == "https" || scheme == "http" && !client.is_https)
            && host.is_some_and(|host| same_host(scheme, rest, host))
    });
    if same && host.and_then(Host::parse).is_some_and(|host| host.is_ours(settings)) {
        return Origin::Own;
    }
    if host.is_some_and(|host| is_loopback_twin(text, host, settings, client.is_https)) {
        return Origin::Allowed(origin.clone());
    }
    anybody(settings)
}

/// True for `http://localhost:8080` beside `127.0.0.1:8080` and the like, where the server listens on loopback alone: a
/// page loaded under one name of loopback, from this server or another on its port, calls this server by another
/// name.
fn is_loopback_twin(origin: &str, host: &str, settings: &Settings, is_https: bool) -> bool {
    let is_twin = |authority: &str| Host::parse(authority).is_some_and(Host::is_this_machine);
    settings.is_on_loopback()
        && origin.strip_prefix(if is_https { "https://" } else { "http://" }).is_some_and(|origin| {
            is_twin(origin) && is_twin(host) && authority::port_of(origin) == authority::port_of(host)
        })
}

/// True if an origin's host and port equal those of the request, with default ports filled in.
fn same_host(scheme: &str, origin: &str, host: &str) -> bool {
    let port = if scheme == "https" { ":443" } else { ":80" };
    let strip = |name: &str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
    strip(origin) == strip(host)
}

/// The origin of a URL: scheme, host and port.
fn origin_of_url(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Some(format!("{scheme}://{}", &rest[..end]))
}

/// True if a response names the origin: [`allow`] adds fields.
pub(crate) fn is_named(origin: &Origin) -> bool {
    matches!(origin, Origin::Allowed(_) | Origin::Anybody)
}

/// Adds the fields that let a page of another origin read the response.
pub(crate) fn allow(origin: &Origin, headers: &mut HeaderMap) {
    match origin {
        Origin::Allowed(value) => {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, value.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        Origin::Anybody => {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        Origin::None | Origin::Own | Origin::Foreign => {}
    }
}

/// The remaining fields of a preflight response.
pub(crate) const PREFLIGHT: &[(HeaderName, &str)] = &[
    (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS"),
    (ACCESS_CONTROL_ALLOW_HEADERS, "content-type, x-requested-with, authorization, last-event-id"),
    (ACCESS_CONTROL_MAX_AGE, "600"),
];

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Longer origins are treated as foreign.
const ORIGIN_BYTES_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(host: &str, origins: &[&str], settings: &Settings) -> Origin {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).expect("a host"));
        for origin in origins {
            headers.append(ORIGIN, HeaderValue::from_bytes(origin.as_bytes()).expect("a value"));
        }
        of(&headers, &Uri::from_static("/cometd"), settings, &RequestClient::default())
    }

    fn public() -> Settings {
        Settings { listen: ([0, 0, 0, 0], 80).into(), ..Settings::default() }
    }

    #[test]
    fn a_program_has_no_origin_and_own_pages_have_the_servers() {
        assert_eq!(judged("example.com", &[], &public()), Origin::None);
        for (host, origin) in [
            ("example.com", "http://example.com"),
            ("example.com:80", "http://example.com"),
            ("example.com", "https://example.com:443"),
            ("EXAMPLE.com:8080", "http://example.com:8080"),
        ] {
            assert_eq!(judged(host, &[origin], &public()), Origin::Own, "{host} {origin}");
        }
    }

    #[test]
    fn similar_names_null_other_ports_and_two_origins_are_foreign() {
        for origin in [
            "null",
            "",
            "http://evil-example.com",
            "http://example.com.evil.io",
            "http://example.com:81",
            "http://example.com.",
            "http://example.com/",
            "http://user@example.com",
            "ftp://example.com",
            "http://xn--exmple-cua.com",
            "http://ex\u{e4}mple.com",
        ] {
            assert_eq!(judged("example.com", &[origin], &public()), Origin::Foreign, "{origin}");
        }
        let twice = ["http://example.com", "http://example.com"];
        assert_eq!(judged("example.com", &twice, &public()), Origin::Foreign);
        assert_eq!(judged("example.com", &[&"h".repeat(65_536)], &public()), Origin::Foreign);
    }

    #[test]
    fn an_allowed_origin_is_allowed_exactly() {
        let settings = Settings { allowed_origins: vec!["https://app.example".into()], ..public() };
        let allowed = Origin::Allowed(HeaderValue::from_static("https://app.example"));
        assert_eq!(judged("x", &["https://app.example"], &settings), allowed);
        assert_eq!(judged("x", &["https://app.example.evil.io"], &settings), Origin::Foreign);
        assert_eq!(judged("x", &["http://app.example"], &settings), Origin::Foreign);
    }

    #[test]
    fn a_loopback_server_is_not_fooled_by_a_name_that_points_to_it() {
        let settings = Settings::default();
        assert_eq!(judged("evil.com:8080", &["http://evil.com:8080"], &settings), Origin::Foreign);
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "app.localhost:8080"] {
            assert_eq!(judged(host, &[&format!("http://{host}")], &settings), Origin::Own, "{host}");
        }
    }

    #[test]
    fn a_script_of_another_site_is_foreign() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost:8080"));
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            of_script(&headers, &Uri::from_static("/cometd"), &Settings::default(), &RequestClient::default())
        };
        assert_eq!(headers(&[]), Origin::None);
        assert_eq!(headers(&[("sec-fetch-site", "same-origin")]), Origin::Own);
        assert_eq!(headers(&[("sec-fetch-site", "cross-site")]), Origin::Foreign);
        assert_eq!(headers(&[("referer", "http://evil.com/page")]), Origin::Foreign);
        assert_eq!(headers(&[("referer", "http://localhost:8080/demo")]), Origin::Own);
    }
}
