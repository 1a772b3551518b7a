//! Finds the token of a handshake: in its `ext`, or in the head of the HTTP request.

use encke::Head;
use serde_json::Value;

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

/// The token in the `ext` of a message: a path such as `auth.token` names a member of a member.
fn of_ext(paths: &[String], ext: &str) -> Result<Option<String>, TokenError> {
    if paths.is_empty() {
        return Ok(None);
    }
    // The server has checked that it is JSON, but not how deep it is.
    let ext: Value = serde_json::from_str(ext).map_err(|_| TokenError::Malformed("the ext is nested too deeply"))?;
    for path in paths {
        match member(&ext, path) {
            None | Some(Value::Null) => {}
            Some(Value::String(token)) => return Ok(Some(token.clone())),
            Some(_) => return Err(TokenError::Malformed("the token in the ext is no text")),
        }
    }
    Ok(None)
}

/// The member at a path such as `auth.token`. Names may contain dots themselves: `com.example.login.token`.
fn member<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let deeper = || path.match_indices('.').find_map(|(at, _)| member(value.get(&path[..at])?, &path[at + 1..]));
    value.get(path).or_else(deeper)
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
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        for ext in [r#"{"token":7}"#, r#"{"auth":{"token":{}}}"#, &deep] {
            let error = token(&AuthSettings::default(), Some(ext), None).expect_err("no text");
            assert_eq!(error.reason(), "token_malformed");
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
