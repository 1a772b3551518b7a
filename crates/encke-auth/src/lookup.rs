//! Finds the token of a handshake: in its `ext`, or in the head of the HTTP request.

use std::borrow::Cow;

use bayeux::json;
use encke::Head;

use crate::error::TokenError;
use crate::settings::AuthSettings;

/// The first token among the sources that are configured.
pub(crate) fn token(
    settings: &AuthSettings,
    ext: Option<&str>,
    head: Option<&Head>,
) -> Result<Option<String>, TokenError> {
    if let Some(token) = ext.map(|ext| of_ext(&settings.token_ext, ext)).transpose()?.flatten() {
        return Ok(Some(token));
    }
    let Some(head) = head else { return Ok(None) };
    let bearer = head.header("authorization").filter(|_| settings.token_bearer).and_then(bearer);
    let named = |name: &str| !name.is_empty();
    let cookie = || head.cookie(&settings.token_cookie).filter(|_| named(&settings.token_cookie));
    let query = || head.query(&settings.token_query).filter(|_| named(&settings.token_query));
    Ok(bearer.or_else(cookie).or_else(query).map(String::from))
}

/// The token in the `ext` of a message: a path such as `auth.token` names a member of a member. Nobody is known yet, so the
/// text is scanned, and no tree is built of it.
fn of_ext(paths: &[String], ext: &str) -> Result<Option<String>, TokenError> {
    for path in paths {
        match member(ext, path) {
            None | Some("null") => {}
            Some(value) => {
                let token = json::decode_string(value).map(Cow::into_owned);
                return token.map(Some).ok_or(TokenError::Malformed("the token in the ext is no text"));
            }
        }
    }
    Ok(None)
}

/// The token of a refresh: a text, or an object with one as `token`.
pub(crate) fn of_refresh(credentials: &str) -> Option<String> {
    json::decode_string(json::member(credentials, "token").unwrap_or(credentials.trim())).map(Cow::into_owned)
}

/// The raw member at a path such as `auth.token`. Names may contain dots themselves: `com.example.login.token`.
fn member<'a>(object: &'a str, path: &str) -> Option<&'a str> {
    let deeper =
        || path.match_indices('.').find_map(|(at, _)| member(json::member(object, &path[..at])?, &path[at + 1..]));
    json::member(object, path).or_else(deeper)
}

/// The token of a header such as `Bearer abc` (RFC 6750 §2.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(settings: &AuthSettings, ext: Option<&str>, head: Option<&Head>) -> Option<String> {
        token(settings, ext, head).expect("a token, or none")
    }

    #[test]
    fn a_token_is_found_where_the_settings_say() {
        let headers: [(&str, &[u8]); 2] = [("authorization", b"bearer of-header"), ("cookie", b"a=1; jwt=of-cookie")];
        let head = Head::new("/cometd?access_token=of-query", headers, None);
        let mut settings = AuthSettings { token_bearer: false, ..AuthSettings::default() };
        assert_eq!(find(&settings, Some(r#"{"auth":{"token":"a"},"token":"b"}"#), Some(&head)).as_deref(), Some("a"));
        assert_eq!(find(&settings, Some(r#"{"auth":{"token":null},"token":"b"}"#), None).as_deref(), Some("b"));
        assert_eq!(find(&settings, Some(r#"{"auth":"x"}"#), Some(&head)), None);
        settings.token_query = "access_token".into();
        assert_eq!(find(&settings, None, Some(&head)).as_deref(), Some("of-query"));
        settings.token_cookie = "jwt".into();
        assert_eq!(find(&settings, None, Some(&head)).as_deref(), Some("of-cookie"));
        settings.token_bearer = true;
        assert_eq!(find(&settings, None, Some(&head)).as_deref(), Some("of-header"));
        let dotted = AuthSettings { token_ext: vec!["com.example.login.token".into()], ..AuthSettings::default() };
        let ext = r#"{"com.example":{},"com.example.login":{"token":"d"}}"#;
        assert_eq!(find(&dotted, Some(ext), None).as_deref(), Some("d"));
        let ignored = AuthSettings { token_ext: Vec::new(), ..AuthSettings::default() };
        assert_eq!(find(&ignored, Some(r#"{"token":"b"}"#), None), None);
    }

    #[test]
    fn a_token_that_is_no_text_is_refused() {
        for ext in [r#"{"token":7}"#, r#"{"auth":{"token":{}}}"#, r#"{"token":"\ud800"}"#] {
            let error = token(&AuthSettings::default(), Some(ext), None).expect_err("no text");
            assert_eq!(error.reason(), "token_malformed");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(find(&AuthSettings::default(), Some(&deep), None), None);
    }

    #[test]
    fn a_refresh_has_its_token_as_a_text_or_as_a_member() {
        for credentials in [r#""a""#, r#" "\u0061" "#, r#"{"type":"jwt","token":"a"}"#] {
            assert_eq!(of_refresh(credentials).as_deref(), Some("a"), "{credentials}");
        }
        for credentials in ["null", "7", "{}", r#"{"token":7}"#, "[]"] {
            assert_eq!(of_refresh(credentials), None, "{credentials}");
        }
    }

    #[test]
    fn other_schemes_than_bearer_are_no_token() {
        for value in ["Basic dTpw", "Bearer", "", "Bearers x"] {
            assert_eq!(bearer(value), None, "{value}");
        }
        assert_eq!(bearer("BEARER  x "), Some("x"));
    }
}
