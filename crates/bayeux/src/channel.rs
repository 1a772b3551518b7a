//! Channel names, channel patterns and the names in a subscription.

mod reach;

pub use reach::{covers, is_pattern, overlap};

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::error::BayeuxError;
use crate::json::RawJson;
use crate::limits::Limits;

/// The channel that opens a session.
pub const META_HANDSHAKE: &str = "/meta/handshake";
/// The channel that keeps a session alive and waits for messages.
pub const META_CONNECT: &str = "/meta/connect";
/// The channel that ends a session.
pub const META_DISCONNECT: &str = "/meta/disconnect";
/// The channel that adds subscriptions to a session.
pub const META_SUBSCRIBE: &str = "/meta/subscribe";
/// The channel that removes subscriptions from a session.
pub const META_UNSUBSCRIBE: &str = "/meta/unsubscribe";

/// True for the channels of the protocol itself.
#[inline]
pub fn is_meta(channel: &str) -> bool {
    channel.starts_with("/meta/")
}

/// A valid channel name or pattern (Bayeux 1.0, "Channels").
///
/// It begins with a slash and has one or more segments, none of them empty. Segments hold ASCII letters and digits,
/// space and `! # $ ( ) + - . @ _ { ~ }`, which CometD's server accepts, too; the specification's tokens are fewer. A star
/// may only be the whole last segment: `/a/*` is a pattern for exactly one more segment, `/a/**` for one or more.
///
/// ```
/// use bayeux::{ChannelKind, ChannelName, Limits};
///
/// let limits = Limits::default();
/// let pattern = ChannelName::parse("/stocks/**", &limits)?;
/// let name = ChannelName::parse("/stocks/lse/abc", &limits)?;
/// assert!(pattern.is_pattern() && pattern.matches(name));
/// assert_eq!(name.kind(), ChannelKind::Broadcast);
/// assert!(ChannelName::parse("/stocks/*/abc", &limits).is_err());
/// # Ok::<(), bayeux::ChannelError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelName<'a>(&'a str);

/// The purpose of a channel. Whole names are compared, not only their beginnings: `/meta/subscribe/x` is not a
/// subscribe (that mistake was CometD's CVE-2020-11020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelKind {
    /// `/meta/handshake`
    Handshake,
    /// `/meta/connect`
    Connect,
    /// `/meta/disconnect`
    Disconnect,
    /// `/meta/subscribe`
    Subscribe,
    /// `/meta/unsubscribe`
    Unsubscribe,
    /// Any other channel or pattern under `/meta/`.
    OtherMeta,
    /// Any channel or pattern under `/service/`: only the server receives its messages.
    Service,
    /// Any other channel, also `/meta` and `/service` themselves, as in CometD, which requires the second slash.
    Broadcast,
}

/// The reasons why a text is not a channel name. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// It breaks the rules for names.
    #[error("not a channel name")]
    Invalid,
    /// It has more bytes than [`Limits::channel_bytes_max`].
    #[error("channel name too long")]
    TooLong,
    /// It has more segments than [`Limits::channel_segments_max`].
    #[error("too many segments in a channel name")]
    TooManySegments,
}

/// The reasons to refuse a `subscription` field. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscriptionError {
    /// It is `null` or an empty array.
    #[error("no subscription named")]
    Missing,
    /// It is neither a string nor an array of strings.
    #[error("not a subscription")]
    Invalid,
    /// It has more names than [`Limits::subscription_names_max`].
    #[error("too many names in a subscription")]
    TooMany,
}

impl<'a> ChannelName<'a> {
    /// Checks a name or pattern.
    pub fn parse(text: &'a str, limits: &Limits) -> Result<Self, ChannelError> {
        if text.len() > limits.channel_bytes_max {
            return Err(ChannelError::TooLong);
        }
        let Some(path) = text.strip_prefix('/') else {
            return Err(ChannelError::Invalid);
        };
        // A slash at the end replaces the one that would begin the next segment.
        let mut segments = 0;
        let mut segment_bytes = 0;
        let mut star_seen = false;
        for byte in path.bytes().chain([b'/']) {
            match CLASSES[usize::from(byte)] {
                Class::Plain => segment_bytes += 1,
                Class::Slash if segment_bytes > 0 => {
                    segments += 1;
                    segment_bytes = 0;
                }
                Class::Star => {
                    star_seen = true;
                    segment_bytes += 1;
                }
                Class::Slash | Class::Forbidden => return Err(ChannelError::Invalid),
            }
        }
        if star_seen && !has_stars_only_as_last_segment(path) {
            return Err(ChannelError::Invalid);
        }
        if segments > limits.channel_segments_max {
            return Err(ChannelError::TooManySegments);
        }
        Ok(ChannelName(text))
    }

    /// A name that [`ChannelName::parse`] has returned before, with any limits. It is not checked again.
    pub fn known(text: &'a str) -> Self {
        debug_assert!(
            text.starts_with('/') && !text.contains(['"', '\\']) && !text.contains(char::is_control),
            "not a channel name: {text}"
        );
        ChannelName(text)
    }

    /// The name as on the wire. It needs no escapes in JSON.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The purpose of the channel.
    pub fn kind(self) -> ChannelKind {
        if is_meta(self.0) {
            return match self.0 {
                META_HANDSHAKE => ChannelKind::Handshake,
                META_CONNECT => ChannelKind::Connect,
                META_DISCONNECT => ChannelKind::Disconnect,
                META_SUBSCRIBE => ChannelKind::Subscribe,
                META_UNSUBSCRIBE => ChannelKind::Unsubscribe,
                _ => ChannelKind::OtherMeta,
            };
        }
        if self.0.starts_with("/service/") { ChannelKind::Service } else { ChannelKind::Broadcast }
    }

    /// True if it ends in `/*` or `/**`.
    pub fn is_pattern(self) -> bool {
        is_pattern(self.0)
    }

    /// Calls `f` with each pattern that matches this name, widest first: a name of *d* segments has *d* + 1, `/a/b` has
    /// `/**`, `/a/**` and `/a/*`. The name itself is not among them, and a pattern is matched by no other pattern.
    ///
    /// `scratch` is overwritten. Reusing it saves an allocation.
    pub fn patterns(self, scratch: &mut String, mut f: impl FnMut(&str)) {
        if self.is_pattern() {
            return;
        }
        // It always holds the name up to the last slash that was found.
        scratch.clear();
        for (at, byte) in self.0.bytes().enumerate() {
            if byte == b'/' {
                scratch.push_str(&self.0[scratch.len()..at]);
                scratch.push_str("/**");
                f(scratch);
                scratch.truncate(at);
            }
        }
        scratch.push_str("/*");
        f(scratch);
    }

    /// True if a subscription to this name or pattern receives a publication to `name`: they are equal, or the pattern covers
    /// the name. Only a subscription to the same pattern receives a publication to a pattern, as in CometD.
    pub fn matches(self, name: ChannelName<'_>) -> bool {
        if self.0 == name.0 {
            return true;
        }
        if name.is_pattern() {
            return false;
        }
        covers(self.0, name.0)
    }
}

/// The names in a raw `subscription` field: one string, or an array of strings.
///
/// The names are not checked as channels yet. CometD answers an invalid one with `403::subscription_invalid`.
pub fn subscription_names<'a>(
    raw: RawJson<'a>,
    limits: &Limits,
) -> Result<SmallVec<[Cow<'a, str>; 1]>, SubscriptionError> {
    let mut names = SmallVec::new();
    match raw.as_str().as_bytes().first() {
        Some(b'"') => names.push(raw.text().ok_or(SubscriptionError::Invalid)?),
        Some(b'[') => {
            for element in raw.elements() {
                if names.len() == limits.subscription_names_max {
                    return Err(SubscriptionError::TooMany);
                }
                names.push(element.text().ok_or(SubscriptionError::Invalid)?);
            }
        }
        _ if raw.is_null() => {}
        _ => return Err(SubscriptionError::Invalid),
    }
    if names.is_empty() { Err(SubscriptionError::Missing) } else { Ok(names) }
}

impl ChannelError {
    /// The Bayeux `error` field for it.
    pub fn error(&self) -> &'static str {
        BayeuxError::from(*self).as_str()
    }
}

impl SubscriptionError {
    /// The Bayeux `error` field for it.
    pub fn error(&self) -> &'static str {
        BayeuxError::from(*self).as_str()
    }
}

impl From<ChannelError> for BayeuxError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Invalid => BayeuxError::ChannelInvalid,
            ChannelError::TooLong => BayeuxError::ChannelTooLong,
            ChannelError::TooManySegments => BayeuxError::ChannelTooDeep,
        }
    }
}

impl From<SubscriptionError> for BayeuxError {
    fn from(error: SubscriptionError) -> Self {
        match error {
            SubscriptionError::Missing => BayeuxError::SubscriptionMissing,
            SubscriptionError::Invalid => BayeuxError::SubscriptionInvalid,
            SubscriptionError::TooMany => BayeuxError::SubscriptionNamesMax,
        }
    }
}

fn has_stars_only_as_last_segment(path: &str) -> bool {
    let (parents, last) = path.rsplit_once('/').unwrap_or(("", path));
    !parents.contains('*') && matches!(last, "*" | "**")
}

#[derive(Clone, Copy)]
enum Class {
    Forbidden,
    Plain,
    Slash,
    Star,
}

/// The role of each byte in a channel name. On the publish path a name costs one look-up for each byte.
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Forbidden; 256];
    let mut byte = 0;
    while byte < 128 {
        if (byte as u8).is_ascii_alphanumeric() {
            classes[byte] = Class::Plain;
        }
        byte += 1;
    }
    let marks = b" !#$()+-.@_{~}";
    let mut mark = 0;
    while mark < marks.len() {
        classes[marks[mark] as usize] = Class::Plain;
        mark += 1;
    }
    classes[b'/' as usize] = Class::Slash;
    classes[b'*' as usize] = Class::Star;
    classes
};

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ChannelName<'_> {
        ChannelName::parse(text, &Limits::default()).expect(text)
    }

    #[test]
    fn names_that_cometd_takes_are_taken() {
        for text in [
            "/a",
            "/a/b",
            "/*",
            "/**",
            "/a/*",
            "/a/b/**",
            "/a b/c",
            "/A-Z_0.9",
            "/!#$()+-.@_{~}",
            "/.",
            "/a/..",
            "/a.b",
            "/meta",
            "/ ",
        ] {
            assert_eq!(name(text).as_str(), text);
        }
    }

    #[test]
    fn names_that_break_the_rules_are_refused() {
        for text in [
            "",
            "/",
            "a",
            "a/b",
            "//",
            "/a/",
            "/a//b",
            "//a",
            "/a/*/b",
            "/**/a",
            "/*/**",
            "/a*",
            "/*a",
            "/***",
            "/a/***",
            "/é",
            "/a\0",
            "/a\"b",
            "/a\\b",
            "/a%2fb",
            "/a?b=c",
            "/a>b",
            "/a,b",
            "/a:b",
            "/\u{202e}a",
            "/a\n",
            "/[a]",
            "/a'b",
            "/a&b",
            "/a=b",
            "/a|b",
        ] {
            assert_eq!(ChannelName::parse(text, &Limits::default()), Err(ChannelError::Invalid), "{text:?}");
        }
    }

    #[test]
    fn long_and_deep_names_are_refused() {
        let limits = Limits::default();
        assert!(ChannelName::parse(&format!("/{}", "a".repeat(255)), &limits).is_ok());
        assert_eq!(ChannelName::parse(&format!("/{}", "a".repeat(256)), &limits), Err(ChannelError::TooLong));
        assert!(ChannelName::parse(&"/a".repeat(16), &limits).is_ok());
        assert_eq!(ChannelName::parse(&"/a".repeat(17), &limits), Err(ChannelError::TooManySegments));
    }

    /// CVE-2020-11020: a channel below a meta channel is not that meta channel.
    #[test]
    fn the_whole_name_decides_the_kind() {
        for (text, kind) in [
            ("/meta/handshake", ChannelKind::Handshake),
            ("/meta/connect", ChannelKind::Connect),
            ("/meta/disconnect", ChannelKind::Disconnect),
            ("/meta/subscribe", ChannelKind::Subscribe),
            ("/meta/unsubscribe", ChannelKind::Unsubscribe),
            ("/meta/subscribe/x", ChannelKind::OtherMeta),
            ("/meta/subscribes", ChannelKind::OtherMeta),
            ("/meta/*", ChannelKind::OtherMeta),
            ("/meta/**", ChannelKind::OtherMeta),
            ("/META/subscribe", ChannelKind::Broadcast),
            ("/meta", ChannelKind::Broadcast),
            ("/metadata/x", ChannelKind::Broadcast),
            ("/service", ChannelKind::Broadcast),
            ("/service/x", ChannelKind::Service),
            ("/service/**", ChannelKind::Service),
            ("/services/x", ChannelKind::Broadcast),
            ("/**", ChannelKind::Broadcast),
            ("/a", ChannelKind::Broadcast),
        ] {
            assert_eq!(name(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_name_of_d_segments_has_d_plus_one_patterns() {
        let patterns_of = |text| {
            let mut found = Vec::new();
            name(text).patterns(&mut "left over".to_owned(), |pattern| found.push(pattern.to_owned()));
            found
        };
        assert_eq!(patterns_of("/a"), ["/**", "/*"]);
        assert_eq!(patterns_of("/a/b"), ["/**", "/a/**", "/a/*"]);
        assert_eq!(patterns_of("/a/b/c"), ["/**", "/a/**", "/a/b/**", "/a/b/*"]);
        assert!(patterns_of("/a/*").is_empty());
    }

    /// Bayeux 1.0, "Channel globbing".
    #[test]
    fn patterns_match_below_their_parent_only() {
        for (pattern, text, matches) in [
            ("/foo/*", "/foo/bar", true),
            ("/foo/*", "/foo", false),
            ("/foo/*", "/foo/bar/x", false),
            ("/foo/*", "/foobar/x", false),
            ("/foo/**", "/foo/bar", true),
            ("/foo/**", "/foo/bar/x", true),
            ("/foo/**", "/foo", false),
            ("/foo/**", "/foox/y", false),
            ("/**", "/a", true),
            ("/*", "/a", true),
            ("/*", "/a/b", false),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/c/*", "/c/*", true),
            ("/c/**", "/c/*", false),
        ] {
            assert_eq!(name(pattern).matches(name(text)), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn subscriptions_are_a_string_or_an_array_of_strings() {
        let limits = Limits { subscription_names_max: 2, ..Limits::default() };
        let names = |raw| subscription_names(RawJson::trusted(raw), &limits).map(|names| names.join(" "));
        assert_eq!(names(r#""/a""#).as_deref(), Ok("/a"));
        assert_eq!(names(r#""\/a""#).as_deref(), Ok("/a"));
        assert_eq!(names(r#"["/b", "foo"]"#).as_deref(), Ok("/b foo"));
        for (raw, error) in [
            ("[]", "403::subscription_missing"),
            ("null", "403::subscription_missing"),
            ("3", "403::subscription_invalid"),
            ("{}", "403::subscription_invalid"),
            (r#"["/a",3]"#, "403::subscription_invalid"),
            (r#"[["/a"]]"#, "403::subscription_invalid"),
            (r#""\ud800""#, "403::subscription_invalid"),
            ("", "403::subscription_invalid"),
            (r#"["/a","/b","/c"]"#, "413::subscription_names_max"),
        ] {
            assert_eq!(names(raw).map_err(|why| why.error()), Err(error), "{raw}");
        }
    }
}
