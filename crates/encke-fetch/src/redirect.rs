//! The address that a redirect leads to (RFC 9110 §10.2.2, RFC 3986 §5).

use http::{Response, StatusCode, Uri};

use crate::error::FetchError;

/// The address that a response redirects to, if it does.
pub(crate) fn target<B>(from: &Uri, response: &Response<B>) -> Result<Option<Uri>, FetchError> {
    let refused = |reason| FetchError::RedirectRefused { reason };
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(http::header::LOCATION).filter(|_| is_redirect) else {
        return Ok(None);
    };
    let location = location.to_str().map_err(|_| refused("its address is not ASCII"))?;
    let to = resolve(from, location).ok_or(refused("its address is not a URL"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (Some("https"), Some("http")) => Err(refused("it leads from HTTPS to HTTP")),
        (_, Some("http" | "https")) => Ok(Some(to)),
        _ => Err(refused("it leads to neither HTTP nor HTTPS")),
    }
}

/// True if both addresses have the same scheme, host and port.
pub(crate) fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    one.scheme() == other.scheme() && one.host() == other.host() && port(one) == port(other)
}

fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    let is_absolute = location.split_once("://").is_some_and(|(scheme, _)| {
        scheme.chars().all(|char| char.is_ascii_alphanumeric() || "+-.".contains(char)) && !scheme.is_empty()
    });
    if is_absolute {
        return location.parse().ok();
    }
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    if location.starts_with("//") {
        return format!("{scheme}:{location}").parse().ok();
    }
    let (path, query) = match location.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (location, None),
    };
    let path = match path {
        "" => from.path().to_string(),
        absolute if absolute.starts_with('/') => absolute.to_string(),
        relative => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{relative}")
        }
    };
    let mut text = format!("{scheme}://{authority}{}", without_dots(&path));
    if let Some(query) = query {
        text.push('?');
        text.push_str(query);
    }
    text.parse().ok()
}

/// The path without `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut result: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    result.pop();
                }
                if is_last {
                    result.push("");
                }
            }
            name => result.push(name),
        }
    }
    format!("/{}", result.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(location: &str) -> String {
        let from: Uri = "https://a.example:8443/one/two?q=1".parse().expect("a URL");
        resolve(&from, location).map(|uri| uri.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_location_is_relative_to_the_address_that_answered() {
        for (location, expected) in [
            ("http://b.example/x", "http://b.example/x"),
            ("//b.example/x", "https://b.example/x"),
            ("/x?y=2#z", "https://a.example:8443/x?y=2"),
            ("x", "https://a.example:8443/one/x"),
            ("../x", "https://a.example:8443/x"),
            ("./../../../x/.", "https://a.example:8443/x/"),
            ("?r=2", "https://a.example:8443/one/two?r=2"),
            ("/x?to=http://b.example/", "https://a.example:8443/x?to=http://b.example/"),
            ("http://", ""),
            ("/a b", ""),
        ] {
            assert_eq!(resolved(location), expected, "{location}");
        }
    }

    #[test]
    fn a_redirect_never_leaves_https() {
        let refusal = |location: &str| {
            let response = Response::builder().status(302).header("location", location).body(()).expect("a response");
            target(&"https://a.example/".parse().expect("a URL"), &response)
        };
        assert!(matches!(refusal("http://a.example/"), Err(FetchError::RedirectRefused { .. })));
        assert!(matches!(refusal("file:///etc/passwd"), Err(FetchError::RedirectRefused { .. })));
        assert!(matches!(refusal("/x"), Ok(Some(_))));
    }

    #[test]
    fn the_port_of_an_origin_may_be_implied() {
        let is_same = |one: &str, other: &str| is_same_origin(&one.parse().expect("a"), &other.parse().expect("b"));
        assert!(is_same("https://a.example/x", "https://a.example:443/y"));
        assert!(!is_same("https://a.example/", "https://a.example:444/"));
        assert!(!is_same("http://a.example/", "https://a.example/"));
        assert!(!is_same("http://a.example/", "http://b.example/"));
    }
}
