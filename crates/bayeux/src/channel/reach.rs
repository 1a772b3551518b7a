//! The channels that a name or pattern reaches.

/// True if a name or pattern covers a channel: `*` is one segment, `**` one or more. For texts that are known to be valid; see
/// `ChannelName::matches` for names that are checked.
///
/// ```
/// use bayeux::channel::covers;
///
/// assert!(covers("/a/*", "/a/b") && covers("/a/**", "/a/b/c") && covers("/a", "/a"));
/// assert!(!covers("/a/*", "/a/b/c") && !covers("/a/**", "/a") && !covers("/a/*", "/ab/c") && !covers("/a", "/a/b"));
/// ```
pub fn covers(name: &str, channel: &str) -> bool {
    let below = |parent: &str| channel.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/'));
    if let Some(parent) = name.strip_suffix("/**") {
        below(parent).is_some()
    } else if let Some(parent) = name.strip_suffix("/*") {
        below(parent).is_some_and(|rest| !rest.contains('/'))
    } else {
        name == channel
    }
}

/// True if some channel is covered by both names: by the channel or pattern `one`, and by `other`. For valid names.
///
/// ```
/// use bayeux::channel::overlap;
///
/// assert!(overlap("/a/*", "/**") && overlap("/a/**", "/a/b/*") && overlap("/a/*", "/a/b"));
/// assert!(!overlap("/a/*", "/a/b/**") && !overlap("/a/**", "/a") && !overlap("/a/*", "/b/*"));
/// ```
pub fn overlap(one: &str, other: &str) -> bool {
    match (is_pattern(one), is_pattern(other)) {
        (_, false) => covers(one, other),
        (false, true) => covers(other, one),
        (true, true) => match (one.strip_suffix("/**"), other.strip_suffix("/**")) {
            (Some(one), Some(other)) => is_at_or_below(one, other) || is_at_or_below(other, one),
            // `/a/*` covers `/a/b`, which `/**` and `/a/**` cover, too.
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

/// True for a valid name that is a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.ends_with('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_overlap_if_some_channel_is_covered_by_both() {
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
            }
        }
    }
}
