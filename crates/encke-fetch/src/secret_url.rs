//! URLs whose secret parts no log, error or list shows.

use std::fmt;

use serde::Deserialize;

/// A URL of a configuration. Its user information and its query are often secrets: they are shown as `***`.
///
/// ```
/// use encke_fetch::SecretUrl;
///
/// let url = SecretUrl::from("https://ann:hunter2@example.org/keys?token=abc");
/// assert_eq!(url.to_string(), "https://***@example.org/keys?***");
/// assert_eq!(format!("{url:?}"), "\"https://***@example.org/keys?***\"");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The whole URL. Whoever calls this must not show it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<String>> From<T> for SecretUrl {
    fn from(url: T) -> SecretUrl {
        SecretUrl(url.into())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&shown(&self.0), f)
    }
}

/// A URL without its secret parts, also if it is not a valid one.
pub(crate) fn shown(url: &str) -> String {
    let (before, query) = match url.find(['?', '#']) {
        Some(at) => (&url[..at], "?***"),
        None => (url, ""),
    };
    let start = before.find("://").map_or(0, |at| at + "://".len());
    let end = before[start..].find('/').map_or(before.len(), |at| start + at);
    match before[start..end].rfind('@') {
        Some(at) => format!("{}***{}{query}", &before[..start], &before[start + at..]),
        None => format!("{before}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_information_and_the_query_are_not_shown() {
        for (url, expected) in [
            ("https://example.org/keys", "https://example.org/keys"),
            ("https://example.org/a@b", "https://example.org/a@b"),
            ("https://example.org?key=1", "https://example.org?***"),
            ("https://example.org/#key", "https://example.org/?***"),
            ("http://u:p@ss@example.org:1/a?b#c", "http://***@example.org:1/a?***"),
            ("u:p@example.org", "***@example.org"),
            ("hunter2?", "hunter2?***"),
            ("", ""),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
