//! Finds if an event about a channel concerns a webhook.

use bayeux::channel::{covers, is_pattern};

/// True if a channel, or some channel that a pattern matches, is matched by one of `patterns`. A subscribe to `/**` concerns a webhook
/// that decides about `/orders/*`: it would get the messages of orders.
pub(crate) fn concern<'a>(patterns: impl IntoIterator<Item = &'a str>, name: &str) -> bool {
    patterns.into_iter().any(|pattern| overlap(pattern, name))
}

/// True if some channel is matched by both names.
fn overlap(one: &str, other: &str) -> bool {
    match (is_pattern(one), is_pattern(other)) {
        (_, false) => covers(one, other),
        (false, true) => covers(other, one),
        (true, true) => match (one.strip_suffix("/**"), other.strip_suffix("/**")) {
            (Some(one), Some(other)) => is_at_or_below(one, other) || is_at_or_below(other, one),
            // `/a/*` matches `/a/b`, which `/**` and `/a/**` match, too.
            (Some(deep), None) => is_at_or_below(other.trim_end_matches("/*"), deep),
            (None, Some(deep)) => is_at_or_below(one.trim_end_matches("/*"), deep),
            (None, None) => one == other,
        },
    }
}

/// True if `path` is `above`, or below it.
fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_overlap_if_some_channel_is_matched_by_both() {
        let names = [
            "/a", "/b", "/a/b", "/a/b/c", "/*", "/**", "/a/*", "/a/**", "/a/b/*", "/a/b/**", "/b/*", "/b/**", "/ab/**",
        ];
        let segments = ["a", "b", "c", "ab"];
        let mut channels: Vec<String> = segments.iter().map(|one| format!("/{one}")).collect();
        for _ in 0..3 {
            let longer: Vec<String> =
                channels.iter().flat_map(|name| segments.iter().map(move |one| format!("{name}/{one}"))).collect();
            channels.extend(longer);
        }
        for one in names {
            for other in names {
                let both = channels.iter().any(|channel| covers(one, channel) && covers(other, channel));
                assert_eq!(overlap(one, other), both, "{one} and {other}");
                assert_eq!(concern([one, one], other), both, "{one} and {other}");
            }
        }
    }
}
