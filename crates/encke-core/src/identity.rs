//! The identity of a session: the result of its handshake's authentication. It goes with the session into every later
//! decision, and over restarts.

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use bayeux::{ChannelName, Limits};
use serde::{Deserialize, Serialize};

use crate::handshake_reply::{HandshakeReply, HandshakeReplyError};
use crate::session_terms::SessionTerms;

/// The owner of a session, and the rights that its credentials give.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name of the user. Empty: anonymous.
    pub user: Box<str>,
    /// The claims of the credentials: a raw JSON object, or nothing.
    pub claims: Box<str>,
    /// The id of the token, by which it can be revoked.
    pub token_id: Option<Box<str>>,
    /// The end of the credentials, in milliseconds since 1970. The session ends then, unless its client has refreshed them.
    pub expires_ms: Option<u64>,
    /// The channels and patterns to which the session may subscribe. `None`: the identity sets no limit.
    pub subscribe: Option<Patterns>,
    /// The channels on which the session may publish. `None`: the identity sets no limit.
    pub publish: Option<Patterns>,
    /// Limits of the session that differ from the settings.
    pub limits: SessionLimits,
    /// Terms of the session that differ from the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Box<SessionTerms>>,
    /// Additions to the reply to the handshake. The session does not retain them.
    #[serde(skip)]
    pub reply: Option<Box<HandshakeReply>>,
}

impl Identity {
    /// The identity of a user without further rights or limits.
    pub fn of_user(user: &str) -> Identity {
        Identity { user: user.into(), ..Identity::default() }
    }

    /// The same with terms of the session that differ from the settings. A handshake or a refresh with a number out of its range is
    /// refused (`503:session_terms_invalid`), and logged: see [`SessionTerms::check`].
    #[must_use]
    pub fn with_terms(self, terms: SessionTerms) -> Identity {
        Identity { terms: Some(Box::new(terms)), ..self }
    }

    /// Adds a member to the `ext` of the reply to the handshake, with raw JSON as its value. One that cannot be added is logged, and left
    /// out; see [`HandshakeReply::add_ext`].
    pub fn reply_ext(mut self, name: &str, value: &str) -> Identity {
        add_to_reply(&mut self.reply, name, |reply| reply.add_ext(name, value));
        self
    }

    /// Adds a field to the reply to the handshake, beside those of the protocol, with raw JSON as its value. One that cannot be added is
    /// logged, and left out; see [`HandshakeReply::add_field`].
    pub fn reply_field(mut self, name: &str, value: &str) -> Identity {
        add_to_reply(&mut self.reply, name, |reply| reply.add_field(name, value));
        self
    }

    /// True if its patterns allow a publication on this channel.
    pub fn may_publish(&self, channel: &str) -> bool {
        self.publish.as_ref().is_none_or(|patterns| patterns.allow(channel))
    }

    /// True if its patterns allow a subscription to this channel or pattern.
    pub fn may_subscribe(&self, channel: &str) -> bool {
        self.subscribe.as_ref().is_none_or(|patterns| patterns.allow(channel))
    }

    /// Its size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = self.user.len() + self.claims.len() + self.token_id.as_ref().map_or(0, |token_id| token_id.len());
        let patterns = [&self.subscribe, &self.publish].into_iter().flatten().map(Patterns::bytes).sum::<usize>();
        let terms = self.terms.as_ref().map_or(0, |_| size_of::<SessionTerms>());
        size_of::<Identity>() + texts + patterns + terms
    }

    /// True if its credentials have ended at this time, in milliseconds since 1970.
    pub fn has_expired(&self, wall_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= wall_ms)
    }
}

/// Adds to the reply to a handshake, or logs why it cannot.
pub(crate) fn add_to_reply(
    reply: &mut Option<Box<HandshakeReply>>,
    name: &str,
    add: impl FnOnce(&mut HandshakeReply) -> Result<(), HandshakeReplyError>,
) {
    if let Err(error) = add(reply.get_or_insert_default()) {
        tracing::error!(name, %error, "the reply to a handshake lacks what the application has added");
    }
}

/// A log shows neither claims nor the token's id.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Limits of one session. `None`: as the settings say. A rate of 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionLimits {
    /// Messages that its client may send in a second.
    pub messages_per_s_max: Option<u32>,
    /// Bytes of messages that its client may send in a second.
    pub bytes_per_s_max: Option<u32>,
    /// Subscriptions.
    pub subscriptions_max: Option<u32>,
}

/// A set of channels and patterns, prepared for fast checks.
///
/// ```
/// use encke_core::Patterns;
///
/// let rights = Patterns::new(["/orders/**", "/news"])?;
/// assert!(rights.allow("/orders/7/items") && rights.allow("/news") && !rights.allow("/news/sports"));
/// // A pattern is allowed if everything that it matches is.
/// assert!(rights.allow("/orders/7/*") && rights.allow("/orders/**") && !rights.allow("/**"));
/// # Ok::<(), encke_core::PatternError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Box<str>>", into = "Vec<Box<str>>")]
pub struct Patterns {
    /// All paths, one after the other: the channel, or the channel above the stars of a pattern. A token may have many, so
    /// each costs its bytes and four more.
    paths: Box<str>,
    /// Sorted. A name is found by a binary search for itself and for each pattern that may cover it.
    names: Box<[Name]>,
}

/// A channel or a pattern: the end of its path in the text times four, plus its [`Reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(u32);

/// The channels that a name covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    /// The channel itself.
    Itself,
    /// All channels one segment below: `/*`.
    Children,
    /// All channels below: `/**`.
    Below,
}

/// The error for a text that is neither a channel nor a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a channel or a pattern such as /orders/* or /orders/**")]
pub struct PatternError(Box<str>);

impl Patterns {
    /// Prepares these channels and patterns.
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn new<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Result<Patterns, PatternError> {
        // The settings limit what clients may name. A right to more does no harm.
        let limits = Limits { channel_bytes_max: usize::MAX, channel_segments_max: usize::MAX, ..Limits::default() };
        let mut prepared = Vec::new();
        for name in names {
            let name = name.as_ref();
            ChannelName::parse(name, &limits).map_err(|_| PatternError(name.into()))?;
            prepared.push(Box::<str>::from(name));
        }
        prepared.sort_unstable_by(|one, other| split(one).cmp(&split(other)));
        prepared.dedup();
        let (mut paths, mut names) = (String::new(), Vec::with_capacity(prepared.len()));
        for name in &prepared {
            let (path, reach) = split(name);
            paths.push_str(path);
            let end = u32::try_from(paths.len()).ok().filter(|end| *end <= u32::MAX / 4);
            names.push(Name(end.ok_or_else(|| PatternError(name.clone()))? * 4 + reach as u32));
        }
        Ok(Patterns { paths: paths.into(), names: names.into() })
    }

    /// The memory of its names, in bytes.
    pub fn bytes(&self) -> usize {
        self.paths.len() + size_of_val(&*self.names)
    }

    /// True if one of them covers a channel, or everything that a pattern matches. `name` must be a valid name.
    pub fn allow(&self, name: &str) -> bool {
        let (path, reach) = split(name);
        if self.has(path, reach) {
            return true;
        }
        // `/a/**` covers `/a/*`, and everything that is deeper.
        let mut above = match reach {
            Reach::Itself => parent(path),
            Reach::Children => Some(path),
            Reach::Below => parent(path),
        };
        if reach == Reach::Itself && above.is_some_and(|above| self.has(above, Reach::Children)) {
            return true;
        }
        while let Some(path) = above {
            if self.has(path, Reach::Below) {
                return true;
            }
            above = parent(path);
        }
        false
    }

    /// The channels and patterns, sorted.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.names.len()).map(|at| match self.at(at) {
            (path, Reach::Itself) => path.to_string(),
            (path, Reach::Children) => format!("{path}/*"),
            (path, Reach::Below) => format!("{path}/**"),
        })
    }

    fn at(&self, index: usize) -> (&str, Reach) {
        let start = index.checked_sub(1).map_or(0, |before| self.names[before].end());
        let name = self.names[index];
        (&self.paths[start..name.end()], name.reach())
    }

    fn has(&self, path: &str, reach: Reach) -> bool {
        let (mut from, mut to) = (0, self.names.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.at(middle).cmp(&(path, reach)) {
                Ordering::Less => from = middle + 1,
                Ordering::Equal => return true,
                Ordering::Greater => to = middle,
            }
        }
        false
    }
}

impl Name {
    fn end(self) -> usize {
        (self.0 / 4) as usize
    }

    fn reach(self) -> Reach {
        match self.0 % 4 {
            0 => Reach::Itself,
            1 => Reach::Children,
            _ => Reach::Below,
        }
    }
}

impl TryFrom<Vec<Box<str>>> for Patterns {
    type Error = PatternError;

    fn try_from(names: Vec<Box<str>>) -> Result<Patterns, PatternError> {
        Patterns::new(names)
    }
}

impl From<Patterns> for Vec<Box<str>> {
    fn from(patterns: Patterns) -> Vec<Box<str>> {
        patterns.names().map(Box::from).collect()
    }
}

/// The part of a name before its stars, and the channels that it covers.
fn split(name: &str) -> (&str, Reach) {
    match (name.strip_suffix("/**"), name.strip_suffix("/*")) {
        (Some(path), _) => (path, Reach::Below),
        (None, Some(path)) => (path, Reach::Children),
        (None, None) => (name, Reach::Itself),
    }
}

/// The channel above a channel. The empty path is above `/a`, and nothing is above that.
fn parent(path: &str) -> Option<&str> {
    path.rfind('/').map(|slash| &path[..slash])
}

/// The head of the HTTP request that opened a connection, for the authentication of handshakes. It is one allocation,
/// shared by all who keep it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The path and the query, then each name and each value, all ended by a line feed.
    text: Box<str>,
    peer: Option<IpAddr>,
    certificate: Option<Box<str>>,
}

impl Head {
    /// The head of a request for this path and query. Names must be in lower case, as HTTP libraries have them. A header
    /// with a line feed, or whose value is not UTF-8, is left out.
    pub fn new<'a>(target: &str, headers: impl IntoIterator<Item = (&'a str, &'a [u8])>, peer: Option<IpAddr>) -> Head {
        let mut text = String::new();
        let mut line = |part: &str| {
            text.push_str(part);
            text.push('\n');
        };
        line(if target.contains('\n') { "" } else { target });
        for (name, value) in headers {
            if let Ok(value) = std::str::from_utf8(value)
                && !name.contains('\n')
                && !value.contains('\n')
            {
                line(name);
                line(value);
            }
        }
        Head { text: text.into(), peer, certificate: None }
    }

    /// The same from a client whose certificate names this user.
    #[must_use]
    pub fn with_certificate(self, user: Option<&str>) -> Head {
        Head { certificate: user.map(Box::from), ..self }
    }

    /// The path and the query of the request.
    pub fn target(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Its size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Head>() + self.text.len() + self.certificate.as_ref().map_or(0, |user| user.len())
    }

    /// The address of the client, or of the proxy in front of it.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The user that the certificate of the client names, if it has shown one in the handshake of TLS. The server has checked it.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// All headers, in their order: name in lower case, and value.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut lines = self.text.split('\n').skip(1);
        std::iter::from_fn(move || Some((lines.next()?, lines.next()?)))
    }

    /// The value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The value of the cookie with this name.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let cookies = self.headers().filter(|(header, _)| *header == "cookie");
        let mut pairs = cookies.flat_map(|(_, value)| value.split(';')).filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| other.trim() == name).map(|(_, value)| value.trim().trim_matches('"'))
    }

    /// The value of a parameter in the query, percent-decoded by the caller.
    pub fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target().split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

/// A log does not show headers: they may contain credentials.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").field("peer", &self.peer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_allow_what_they_cover_and_nothing_else() {
        let names = ["/a", "/a/*", "/a/**", "/*", "/**", "/b/c", "/b/*", "/b/**", "/b/c/*", "/b/c/d/**", "/x/y/z"];
        let all = ["/a", "/a/b", "/a/b/c", "/b", "/b/c", "/b/c/d", "/b/c/d/e", "/b/c/d/e/f", "/x/y/z", "/ab", "/x"];
        // Everything that a pattern matches, among these channels.
        let matched = |name: &str| {
            all.into_iter().filter(move |channel| bayeux::channel::covers(name, channel)).collect::<Vec<_>>()
        };
        for right in names {
            let rights = Patterns::new([right]).expect("a name");
            for channel in all {
                assert_eq!(rights.allow(channel), bayeux::channel::covers(right, channel), "{right} for {channel}");
            }
            for wanted in names.into_iter().filter(|name| name.ends_with('*')) {
                if rights.allow(wanted) {
                    assert!(matched(wanted).iter().all(|channel| rights.allow(channel)), "{right} for {wanted}");
                }
            }
        }
        let deep = Patterns::new(["/b/**"]).expect("a name");
        assert!(deep.allow("/b/**") && deep.allow("/b/*") && deep.allow("/b/c/**") && deep.allow("/b/c/*"));
        assert!(!deep.allow("/b") && !deep.allow("/*") && !deep.allow("/**") && !deep.allow("/bc/*"));
        let flat = Patterns::new(["/b/*"]).expect("a name");
        assert!(flat.allow("/b/*") && !flat.allow("/b/**") && !flat.allow("/b/c/*"));
        assert!(!Patterns::default().allow("/a"));
    }

    #[test]
    fn patterns_read_back_as_they_were_given() {
        let names = ["/*", "/**", "/a", "/a/*", "/a/b/**"];
        let patterns = Patterns::new(names).expect("names");
        assert_eq!(patterns.names().collect::<Vec<_>>(), names);
        assert_eq!(Patterns::try_from(Vec::<Box<str>>::from(patterns.clone())), Ok(patterns));
        let many: Vec<String> = (0..700).map(|number| format!("/room/{number}")).collect();
        let rights = Patterns::new(&many).expect("names");
        assert!(rights.bytes() < 12_000, "{}", rights.bytes());
        assert!(many.iter().all(|name| rights.allow(name)) && !rights.allow("/room/700") && !rights.allow("/room/"));
        for wrong in ["", "a", "/", "/a/", "/a/*/b", "/a b\"", "/***"] {
            assert_eq!(Patterns::new([wrong]), Err(PatternError(wrong.into())));
        }
    }

    #[test]
    fn a_head_has_the_headers_cookies_and_parameters_of_its_request() {
        let lines: [(&str, &[u8]); 6] = [
            ("host", b"example.com"),
            ("cookie", b"a=1; session=\"x=y\""),
            ("x-empty", b""),
            ("cookie", b"b=2"),
            ("x-latin", b"\xe9"),
            ("x-split", b"1\n2"),
        ];
        let head = Head::new("/cometd?access_token=t&b", lines, None);
        assert_eq!(
            (head.header("Host"), head.header("x-empty"), head.header("none")),
            (Some("example.com"), Some(""), None)
        );
        assert_eq!((head.cookie("session"), head.cookie("b"), head.cookie("c")), (Some("x=y"), Some("2"), None));
        assert_eq!((head.query("access_token"), head.query("b")), (Some("t"), None));
        assert_eq!((head.headers().count(), head.header("x-latin"), head.header("x-split")), (4, None, None));
        let empty = Head::default();
        assert_eq!((empty.headers().count(), empty.target(), empty.header("host")), (0, "", None));
    }
}
