//! Names of channels as subjects of the engine, and back.
//!
//! A subject is a list of tokens with dots between them. `*` as a token of a subscription stands for one token, `>` as the
//! last one for one or more, as `*` and `**` do in a pattern of Bayeux. Engines read spaces and tabs in a subject as the end of
//! it, so every byte that is no letter, digit, `_` or `-` is escaped: `=` and two hexadecimal digits.
//!
//! ```text
//!   /stocks/lse/a.b   encke.NAME.c.stocks.lse.a=2Eb
//!   /stocks/*         encke.NAME.c.stocks.*            as a subscription
//!   /stocks/*         encke.NAME.c.stocks.=2A          as the channel of a publication
//! ```

use std::fmt::Write as _;

use bayeux::channel::is_pattern;
use encke_core::NodeTag;

/// The most bytes of the name of a cluster.
pub const NAME_BYTES_MAX: usize = 32;
/// The most bytes of a subject. NATS ends a connection that sends a longer line than 4,096 bytes.
pub const SUBJECT_BYTES_MAX: usize = 1_024;
/// The bytes of a subject for each byte of a channel, at most.
const ESCAPED_BYTES: usize = 3;

/// The most bytes of a channel name whose subject is never too long.
pub const fn channel_bytes_max() -> usize {
    (SUBJECT_BYTES_MAX - PREFIX.len() - NAME_BYTES_MAX - KIND.len()) / ESCAPED_BYTES
}

const PREFIX: &str = "encke.";
const KIND: &str = ".c.";

/// The subjects of one cluster.
#[derive(Clone, Debug)]
pub struct Subjects {
    prefix: String,
    /// The beginning of the subjects of nodes.
    nodes: String,
    /// The beginning of the subjects of histories.
    histories: String,
    /// The beginning of the subjects of remote calls.
    remote_calls: String,
}

impl Subjects {
    /// The subjects of the cluster with this name. None if it has other characters than letters, digits, `_` and `-`, none, or
    /// too many.
    pub fn of(name: &str) -> Option<Subjects> {
        let is_valid = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain);
        let of = |kind: &str| format!("{PREFIX}{name}{kind}");
        is_valid.then(|| Subjects { prefix: of(KIND), nodes: of(".n."), histories: of(".h."), remote_calls: of(".r.") })
    }

    /// The subject by which nodes learn of each other.
    pub(crate) fn of_all_nodes(&self) -> String {
        format!("{}all", self.remote_calls)
    }

    /// The subject by which nodes tell what users have and use.
    pub fn of_users(&self) -> String {
        format!("{}users", self.remote_calls)
    }

    /// The subject of remote calls to a node.
    pub(crate) fn of_remote_calls(&self, node: u64) -> String {
        format!("{}n.{node:016x}", self.remote_calls)
    }

    /// The subject of the log of histories, which all nodes read.
    pub(crate) fn of_histories_log(&self) -> String {
        format!("{}log", self.histories)
    }

    /// The subject of messages about histories to a node.
    pub(crate) fn of_histories_node(&self, node: u64) -> String {
        format!("{}n.{node:016x}", self.histories)
    }

    /// The subject of the questions to a node.
    pub fn of_node(&self, node: NodeTag) -> String {
        format!("{}{}", self.nodes, node.as_str())
    }

    /// The subject of publications on a channel.
    pub fn of_channel(&self, channel: &str) -> String {
        let mut subject = self.prefix.clone();
        escape(channel, &mut subject);
        subject
    }

    /// The subject by which a channel or pattern is subscribed to.
    pub fn of_subscription(&self, name: &str) -> String {
        if !is_pattern(name) {
            return self.of_channel(name);
        }
        let mut subject = self.prefix.clone();
        let at = name.rfind('/').unwrap_or_default();
        if at > 0 {
            escape(&name[..at], &mut subject);
            subject.push('.');
        }
        subject.push(if name.ends_with("/**") { '>' } else { '*' });
        subject
    }

    /// The channel whose publications have this subject. None if no channel has it.
    pub fn channel(&self, subject: &str) -> Option<String> {
        let mut channel = String::with_capacity(subject.len());
        for token in subject.strip_prefix(self.prefix.as_str())?.split('.') {
            channel.push('/');
            let mut bytes = token.bytes();
            if token.is_empty() {
                return None;
            }
            while let Some(byte) = bytes.next() {
                let byte = match byte {
                    b'=' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
                    plain if is_plain(plain) => plain,
                    _ => return None,
                };
                channel.push(char::from(byte));
            }
        }
        (self.of_channel(&channel) == subject).then_some(channel)
    }
}

fn escape(name: &str, subject: &mut String) {
    for byte in name.strip_prefix('/').unwrap_or(name).bytes() {
        match byte {
            b'/' => subject.push('.'),
            plain if is_plain(plain) => subject.push(char::from(plain)),
            // Writing to a text never fails.
            other => _ = write!(subject, "={other:02X}"),
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The value of a hexadecimal digit as [`escape`] writes it.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bayeux::{ChannelName, Limits};
    use proptest::prelude::*;

    use super::*;

    fn subjects() -> Subjects {
        Subjects::of("test").expect("a valid name")
    }

    /// True if a subscription of NATS matches a subject.
    fn matches(subscription: &str, subject: &str) -> bool {
        let (mut wanted, mut tokens) = (subscription.split('.'), subject.split('.'));
        loop {
            match (wanted.next(), tokens.next()) {
                (None, None) => return true,
                (Some(">"), Some(_)) => return true,
                (Some("*"), Some(_)) => {}
                (Some(one), Some(other)) if one == other => {}
                _ => return false,
            }
        }
    }

    #[test]
    fn segments_are_tokens_and_stars_are_wildcards() {
        let of = subjects();
        assert_eq!(of.of_channel("/stocks/lse/a.b c"), "encke.test.c.stocks.lse.a=2Eb=20c");
        assert_eq!(of.of_subscription("/stocks/lse"), "encke.test.c.stocks.lse");
        assert_eq!(of.of_subscription("/stocks/*"), "encke.test.c.stocks.*");
        assert_eq!(of.of_subscription("/**"), "encke.test.c.>");
        assert_eq!(of.of_channel("/stocks/**"), "encke.test.c.stocks.=2A=2A");
        for name in ["", "a.b", "a b", "*", ">", "\u{e4}", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(Subjects::of(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_subject_that_no_channel_has_is_refused() {
        for subject in [
            "encke.test.c.",
            "encke.test.c.a..b",
            "encke.test.c.=2",
            "encke.test.c.=61",
            "encke.test.c.a b",
            "encke.other.c.a",
        ] {
            assert_eq!(subjects().channel(subject), None, "{subject}");
        }
    }

    #[test]
    fn the_longest_channel_has_a_subject_that_is_not_too_long() {
        let subjects = Subjects::of(&"x".repeat(NAME_BYTES_MAX)).expect("a valid name");
        let longest = format!("/{}", ".".repeat(channel_bytes_max() - 1));
        let bytes = subjects.of_channel(&longest).len();
        assert!((SUBJECT_BYTES_MAX - 2 * ESCAPED_BYTES..=SUBJECT_BYTES_MAX).contains(&bytes), "{bytes}");
    }

    proptest! {
        #[test]
        fn a_channel_comes_back_from_its_subject(
            segments in prop::collection::vec("[A-Za-z0-9 !#$()+.@_{~}-]{1,9}", 1..5),
            stars in prop::sample::select(vec!["", "/*", "/**"]),
        ) {
            let channel = format!("/{}{stars}", segments.join("/"));
            prop_assert!(ChannelName::parse(&channel, &Limits::default()).is_ok());
            let subject = subjects().of_channel(&channel);
            prop_assert!(subject.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.=".contains(&byte)), "{}", subject);
            prop_assert_eq!(subjects().channel(&subject), Some(channel));
        }

        #[test]
        fn any_text_that_comes_back_as_a_channel_has_that_subject(subject in "encke\\.test\\.c\\.[A-Z0-9=.*> ]{0,12}") {
            if let Some(channel) = subjects().channel(&subject) {
                prop_assert_eq!(subjects().of_channel(&channel), subject);
            }
        }

        #[test]
        fn a_subscription_matches_what_its_name_matches(
            name in prop::collection::vec("[ab.]", 1..4),
            name_stars in prop::sample::select(vec!["", "/*", "/**"]),
            channel in prop::collection::vec("[ab.]", 1..4),
        ) {
            let name = format!("/{}{name_stars}", name.join("/"));
            let channel = format!("/{}", channel.join("/"));
            let known = ChannelName::known;
            let (of, subject) = (subjects(), subjects().of_channel(&channel));
            prop_assert_eq!(matches(&of.of_subscription(&name), &subject), known(&name).matches(known(&channel)));
        }
    }
}
