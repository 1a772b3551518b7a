//! Pages that are part of the program.

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use http::{Request, Response, StatusCode};

use super::{Body, typed, with};
use crate::asset::{Asset, Encoded};

/// Answers with the asset of the request's path, if there is one.
pub(crate) fn answer<B>(assets: &'static [Asset], request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    let asset = assets.iter().find(|asset| asset.path == path)?;
    let form = preferred(asset.encoded, request.headers());
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

/// The form that a request prefers (RFC 9110 §12.5.3): the one with the highest weight, at equal weights the first. None
/// if the client takes none of them, or prefers the file itself.
fn preferred(forms: &'static [Encoded], headers: &HeaderMap) -> Option<&'static Encoded> {
    let weighed = |form: &'static Encoded| {
        (form, weight(headers, form.coding).or_else(|| weight(headers, "*")).unwrap_or_default())
    };
    let least = weight(headers, "identity").unwrap_or_default().max(1);
    // Of several greatest ones it is the last.
    let best = forms.iter().rev().map(weighed).max_by_key(|(_, weight)| *weight);
    best.filter(|(_, weight)| *weight >= least).map(|(form, _)| form)
}

/// The weight of a coding in thousandths; none if the request does not name it. A weight that cannot be read is 0.
fn weight(headers: &HeaderMap, coding: &str) -> Option<u16> {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut items = values.flat_map(|value| value.split(',')).map(|item| item.split(';').map(str::trim));
    let mut parameters = items.find_map(|mut parts| parts.next()?.eq_ignore_ascii_case(coding).then_some(parts))?;
    let Some(parameter) = parameters.next() else { return Some(1_000) };
    let value = parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight =
        value.and_then(|(_, value)| value.trim().parse::<f32>().ok()).filter(|weight| (0.0..=1.0).contains(weight));
    Some((weight.unwrap_or_default() * 1_000.0) as u16)
}

/// RFC 9110 §13.1.2, weak comparison.
fn matches(tags: &HeaderValue, etag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default();
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: &[Encoded] = &[Encoded::new("br", b"b", "\"1-br\""), Encoded::new("gzip", b"g", "\"1-gzip\"")];

    fn coding(accepted: &[&'static str]) -> &'static str {
        let mut headers = HeaderMap::new();
        for value in accepted {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        preferred(FORMS, &headers).map_or("identity", |form| form.coding)
    }

    #[test]
    fn the_coding_with_the_highest_weight_is_preferred_and_the_smallest_form_among_equals() {
        for (accepted, wanted) in [
            (&["gzip, deflate, br, zstd"][..], "br"),
            (&["gzip"], "gzip"),
            (&["GZIP ; Q=0.5 , br;q=0.25"], "gzip"),
            (&["gzip", "br"], "br"),
            (&["*"], "br"),
            (&["br;q=0, *"], "gzip"),
            (&["identity, br;q=0.5"], "identity"),
            (&["identity;q=0.5, gzip;q=0.5"], "gzip"),
        ] {
            assert_eq!(coding(accepted), wanted, "{accepted:?}");
        }
    }

    #[test]
    fn a_client_that_takes_no_form_gets_the_file_itself() {
        for accepted in
            [&[][..], &[""], &["deflate, zstd"], &["br;q=0, gzip;q=0.000"], &["*;q=0"], &["br;q=2"], &["br;x=1"]]
        {
            assert_eq!(coding(accepted), "identity", "{accepted:?}");
        }
    }
}
