//! Channel names and patterns: what is valid needs no escapes, lies within the limits, and matches exactly the patterns it
//! lists.
//!
//! Input: two names, with a line break between them.

#![no_main]

use bayeux::{ChannelName, Limits};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let limits = Limits { channel_bytes_max: 40, channel_segments_max: 6, ..Limits::default() };
    let (left, right) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(left) = ChannelName::parse(left, &limits) else { return };
    check(left, &limits);
    let Ok(right) = ChannelName::parse(right, &limits) else { return };
    check(right, &limits);
    check_match(left, right);
    check_match(right, left);
});

fn check(name: ChannelName<'_>, limits: &Limits) {
    let text = name.as_str();
    assert!(text.len() <= limits.channel_bytes_max);
    assert_eq!(serde_json::to_string(text).ok(), Some(format!("\"{text}\"")), "needs escapes");
    let segments: Vec<&str> = text[1..].split('/').collect();
    assert!((1..=limits.channel_segments_max).contains(&segments.len()));
    let (last, parents) = segments.split_last().expect("at least one segment");
    assert!(parents.iter().all(|segment| !segment.is_empty() && !segment.contains('*')));
    assert!(!last.contains('*') || *last == "*" || *last == "**");
    assert_eq!(name.is_pattern(), last.contains('*'));

    let patterns = patterns(name);
    assert_eq!(patterns.len(), if name.is_pattern() { 0 } else { segments.len() + 1 });
    // A pattern may be a byte longer than the name.
    let wider = Limits { channel_bytes_max: limits.channel_bytes_max + 1, ..limits.clone() };
    for pattern in &patterns {
        let pattern = ChannelName::parse(pattern, &wider).expect("a pattern is a valid name");
        assert!(pattern.is_pattern() && pattern.matches(name));
    }
    let _ = name.kind();
}

fn check_match(pattern: ChannelName<'_>, name: ChannelName<'_>) {
    let listed = pattern == name || patterns(name).iter().any(|each| each == pattern.as_str());
    assert_eq!(pattern.matches(name), listed, "{} and {}", pattern.as_str(), name.as_str());
}

fn patterns(name: ChannelName<'_>) -> Vec<String> {
    let mut patterns = Vec::new();
    name.patterns(&mut String::new(), |pattern| patterns.push(pattern.to_owned()));
    patterns
}
