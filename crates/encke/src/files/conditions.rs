//! Conditional requests (RFC 9110 §13): the client tells what it has, or what it expects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};

/// By these a client recognises the content of a file.
#[derive(Clone, Debug)]
pub(super) struct Validators {
    /// The entity tag, with its quotes. It begins with `W/` if the file may have changed since without a trace.
    pub(super) etag: HeaderValue,
    /// The time of its last change, in whole seconds.
    pub(super) modified: Option<SystemTime>,
    /// True if no second change can have the same time.
    pub(super) is_date_strong: bool,
}

/// The result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The file is sent, or the part that a `Range` selects.
    Send,
    /// The whole file is sent: it is another one than that whose rest the client asks for.
    SendWhole,
    /// The client has it.
    NotModified,
    /// It is not the one that the client expects.
    Failed,
}

impl Validators {
    /// Those of a file that was last changed at this time, read at another.
    pub(super) fn of_file(
        modified: SystemTime,
        bytes: u64,
        coding: &str,
        is_fresh: bool,
        now: SystemTime,
    ) -> Validators {
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (weak, dash) = (if is_fresh { "W/" } else { "" }, if coding.is_empty() { "" } else { "-" });
        let etag = format!("{weak}\"{:x}-{bytes:x}{dash}{coding}\"", since.as_nanos());
        let etag = HeaderValue::try_from(etag).unwrap_or(HeaderValue::from_static("\"0\""));
        // A time that is still to come says nothing (RFC 9110 §8.8.2.1).
        let age = now.duration_since(modified).ok();
        let seconds = UNIX_EPOCH + Duration::from_secs(since.as_secs());
        let is_date_strong = age.is_some_and(|age| age.as_secs() >= 1);
        Validators { etag, modified: age.map(|_| seconds), is_date_strong }
    }

    /// Evaluates the conditions of a GET or HEAD request, in the order of RFC 9110 §13.2.2.
    pub(super) fn evaluate(&self, headers: &HeaderMap) -> Outcome {
        let expected = match headers.contains_key(IF_MATCH) {
            true => self.is_listed(headers, IF_MATCH, true),
            false => date(headers, IF_UNMODIFIED_SINCE)
                .is_none_or(|date| self.modified.is_none_or(|modified| modified <= date)),
        };
        if !expected {
            return Outcome::Failed;
        }
        let is_known = match headers.contains_key(IF_NONE_MATCH) {
            true => self.is_listed(headers, IF_NONE_MATCH, false),
            false => date(headers, IF_MODIFIED_SINCE)
                .is_some_and(|date| self.modified.is_some_and(|modified| modified <= date)),
        };
        if is_known {
            return Outcome::NotModified;
        }
        match headers.get(IF_RANGE) {
            Some(of) if !self.is_of_range(of) => Outcome::SendWhole,
            _ => Outcome::Send,
        }
    }

    /// True if the field lists the tag, or is `*`. No tag of this server has a comma.
    fn is_listed(&self, headers: &HeaderMap, field: HeaderName, is_strong: bool) -> bool {
        let own = self.etag.as_bytes();
        let is_own = |tag: &[u8]| match is_strong {
            true => tag == own && !own.starts_with(WEAK),
            false => opaque(tag) == opaque(own),
        };
        let lists = headers.get_all(field).iter();
        let mut tags = lists.flat_map(|tags| tags.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
        tags.any(|tag| tag == b"*" || is_own(tag))
    }

    /// True if `If-Range` names this content: by a strong tag, or a date that is one (§13.1.5).
    fn is_of_range(&self, of: &HeaderValue) -> bool {
        if of.as_bytes().contains(&b'"') {
            return of == self.etag && !self.etag.as_bytes().starts_with(WEAK);
        }
        self.is_date_strong && self.modified.is_some() && parsed(of) == self.modified
    }
}

/// A tag without the sign that it is weak.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(WEAK).unwrap_or(tag)
}

/// The date of a field, if it has one that is valid.
fn date(headers: &HeaderMap, field: HeaderName) -> Option<SystemTime> {
    parsed(headers.get(field)?)
}

fn parsed(date: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(date.to_str().ok()?).ok()
}

/// The beginning of a weak entity tag.
const WEAK: &[u8] = b"W/";

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Thu, 01 Jan 1970 00:16:39 GMT";
    const AT: &str = "Thu, 01 Jan 1970 00:16:40 GMT";
    const AFTER: &str = "Thu, 01 Jan 1970 00:16:41 GMT";

    fn outcome(etag: &'static str, fields: &[(HeaderName, &'static str)]) -> Outcome {
        let modified = Some(UNIX_EPOCH + Duration::from_secs(1_000));
        let validators = Validators { etag: HeaderValue::from_static(etag), modified, is_date_strong: true };
        let fields = fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        fields.for_each(|(name, value)| _ = headers.append(name, value));
        validators.evaluate(&headers)
    }

    #[test]
    fn a_client_that_has_the_file_gets_none() {
        for (name, value, wanted) in [
            (IF_NONE_MATCH, "\"1\"", Outcome::NotModified),
            (IF_NONE_MATCH, "\"0\" , W/\"1\"", Outcome::NotModified),
            (IF_NONE_MATCH, "*", Outcome::NotModified),
            (IF_NONE_MATCH, "\"1-br\"", Outcome::Send),
            (IF_NONE_MATCH, "1", Outcome::Send),
            (IF_MODIFIED_SINCE, AT, Outcome::NotModified),
            (IF_MODIFIED_SINCE, AFTER, Outcome::NotModified),
            (IF_MODIFIED_SINCE, BEFORE, Outcome::Send),
            (IF_MODIFIED_SINCE, "yesterday", Outcome::Send),
        ] {
            assert_eq!(outcome("\"1\"", &[(name.clone(), value)]), wanted, "{name}: {value}");
        }
        assert_eq!(outcome("W/\"1\"", &[(IF_NONE_MATCH, "\"1\"")]), Outcome::NotModified);
        // The tag decides where both are there (§13.1.3).
        assert_eq!(outcome("\"1\"", &[(IF_NONE_MATCH, "\"0\""), (IF_MODIFIED_SINCE, AT)]), Outcome::Send);
        assert_eq!(outcome("\"1\"", &[(IF_NONE_MATCH, "\"0\""), (IF_NONE_MATCH, "\"1\"")]), Outcome::NotModified);
    }

    #[test]
    fn a_client_that_expects_another_file_gets_none() {
        for (name, value, wanted) in [
            (IF_MATCH, "\"1\"", Outcome::Send),
            (IF_MATCH, "*", Outcome::Send),
            (IF_MATCH, "\"0\"", Outcome::Failed),
            (IF_MATCH, "W/\"1\"", Outcome::Failed),
            (IF_UNMODIFIED_SINCE, AT, Outcome::Send),
            (IF_UNMODIFIED_SINCE, BEFORE, Outcome::Failed),
            (IF_UNMODIFIED_SINCE, "yesterday", Outcome::Send),
        ] {
            assert_eq!(outcome("\"1\"", &[(name.clone(), value)]), wanted, "{name}: {value}");
        }
        assert_eq!(outcome("W/\"1\"", &[(IF_MATCH, "W/\"1\"")]), Outcome::Failed);
        assert_eq!(outcome("W/\"1\"", &[(IF_MATCH, "*")]), Outcome::Send);
        assert_eq!(outcome("\"1\"", &[(IF_MATCH, "\"1\""), (IF_UNMODIFIED_SINCE, BEFORE)]), Outcome::Send);
    }

    #[test]
    fn the_rest_of_another_file_is_not_sent() {
        for (value, wanted) in [
            ("\"1\"", Outcome::Send),
            ("\"0\"", Outcome::SendWhole),
            ("W/\"1\"", Outcome::SendWhole),
            (AT, Outcome::Send),
            (BEFORE, Outcome::SendWhole),
            (AFTER, Outcome::SendWhole),
        ] {
            assert_eq!(outcome("\"1\"", &[(IF_RANGE, value)]), wanted, "{value}");
        }
        assert_eq!(outcome("W/\"1\"", &[(IF_RANGE, "W/\"1\"")]), Outcome::SendWhole);
    }
}
