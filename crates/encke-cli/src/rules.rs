//! The rules for the channels of sources: clients may not publish there, unless the file says so.

use encke::{ChannelRule, Patterns, Publishers};
use encke_sources::SourceSettings;

/// Adds what is implied by the sources to the rules. `says` tells of a rule, by its pattern, if the file says who may publish there: such a
/// rule stays as it is.
pub(crate) fn with_sources(rules: &mut Vec<ChannelRule>, says: impl Fn(&str) -> bool, sources: &[SourceSettings]) {
    for source in sources {
        close(rules, &says, source.pattern());
    }
}

/// Closes the channels of a pattern. Two patterns have no channel in common, or one matches all channels of the other.
fn close(rules: &mut Vec<ChannelRule>, says: &impl Fn(&str) -> bool, pattern: String) {
    for index in 0..rules.len() {
        let rule = &mut rules[index];
        let is_open = !says(&rule.pattern);
        if covers(&pattern, &rule.pattern) && is_open {
            rule.publishers = Publishers::Server;
        }
        if covers(&rule.pattern, &pattern) {
            // The first rule that matches a channel holds: a copy before this one, for the channels of the source only.
            if is_open && rule.pattern != pattern {
                let closed = ChannelRule { pattern, publishers: Publishers::Server, ..rule.clone() };
                rules.insert(index, closed);
            }
            return;
        }
    }
    rules.push(ChannelRule { pattern, publishers: Publishers::Server, ..ChannelRule::default() });
}

/// True if a pattern matches all channels that the other one matches.
fn covers(pattern: &str, other: &str) -> bool {
    Patterns::new([pattern]).is_ok_and(|patterns| patterns.allow(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of a file after a source on this channel is added. A rule with `!` says who may publish.
    fn rules(file: &[&str], channel: &str) -> Vec<(String, Publishers)> {
        let rule = |pattern: &&str| ChannelRule {
            pattern: pattern.trim_end_matches('!').into(),
            history_messages: 7,
            ..ChannelRule::default()
        };
        let mut rules: Vec<ChannelRule> = file.iter().map(rule).collect();
        close(&mut rules, &|pattern| file.contains(&format!("{pattern}!").as_str()), channel.into());
        assert_eq!(encke::hidden_rules(&rules), []);
        rules.into_iter().map(|rule| (rule.pattern, rule.publishers)).collect()
    }

    fn expected(rules: &[(&str, Publishers)]) -> Vec<(String, Publishers)> {
        rules.iter().map(|(pattern, publishers)| (pattern.to_string(), *publishers)).collect()
    }

    #[test]
    fn clients_may_not_publish_on_the_channels_of_a_source_unless_the_file_says_so() {
        use Publishers::{Anyone, Server};
        for (file, source, after) in [
            (&[][..], "/a", &[("/a", Server)][..]),
            (&["/b"], "/a", &[("/b", Anyone), ("/a", Server)]),
            (&["/a"], "/a", &[("/a", Server)]),
            (&["/a!"], "/a", &[("/a", Anyone)]),
            (&["/**"], "/a", &[("/a", Server), ("/**", Anyone)]),
            (&["/**!"], "/a", &[("/**", Anyone)]),
            (&["/s/x", "/s/**"], "/s/*", &[("/s/x", Server), ("/s/*", Server), ("/s/**", Anyone)]),
            (&["/s/x!", "/s/**"], "/s/*", &[("/s/x", Anyone), ("/s/*", Server), ("/s/**", Anyone)]),
            (&["/s/x/**"], "/s/*", &[("/s/x/**", Anyone), ("/s/*", Server)]),
        ] {
            assert_eq!(rules(file, source), expected(after), "{file:?} {source}");
        }
    }

    #[test]
    fn a_rule_for_a_source_keeps_the_history_of_the_rule_that_held_before() {
        let mut rules = vec![ChannelRule { pattern: "/**".into(), history_messages: 7, ..ChannelRule::default() }];
        close(&mut rules, &|_| false, "/a".into());
        assert_eq!((rules[0].pattern.as_str(), rules[0].history_messages), ("/a", 7));
    }
}
