//! The content coding that a client prefers (RFC 9110 §12.5.3).

use http::header::{ACCEPT_ENCODING, HeaderMap};

/// The form that a request prefers: the one with the highest weight, at equal weights the first. None if the client takes
/// none of them, or prefers the body itself.
pub(crate) fn preferred<'f, F>(forms: &'f [F], coding: impl Fn(&F) -> &str, headers: &HeaderMap) -> Option<&'f F> {
    let weighed = |form: &'f F| {
        let weight = weight(headers, coding(form)).or_else(|| weight(headers, "*"));
        (form, weight.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn coding(accepted: &[&'static str]) -> &'static str {
        let mut headers = HeaderMap::new();
        for value in accepted {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        preferred(&["br", "gzip"], |coding| coding, &headers).map_or("identity", |coding| coding)
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
    fn a_client_that_takes_no_form_gets_the_body_itself() {
        for accepted in
            [&[][..], &[""], &["deflate, zstd"], &["br;q=0, gzip;q=0.000"], &["*;q=0"], &["br;q=2"], &["br;x=1"]]
        {
            assert_eq!(coding(accepted), "identity", "{accepted:?}");
        }
    }
}
