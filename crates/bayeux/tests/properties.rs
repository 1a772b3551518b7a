//! Properties of all inputs, with serde_json as the judge of what is JSON.

use std::borrow::Cow;

use bayeux::{ChannelName, ClientAdvice, Id, Limits, Message, Publication, RawJson, escape_into, json, parse_batch};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::value::RawValue;

/// Deeper than any text made here.
fn limits() -> Limits {
    Limits { json_depth_max: 128, batch_messages_max: 10_000, ..Limits::default() }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// JSON as people and machines write it, with the spellings that trees lose.
fn json_text() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        string_text(),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,4})?",
        select(vec!["true", "false", "null", "1e400", "-0", "12345678901234567890"]).prop_map(str::to_owned),
    ];
    scalar.prop_recursive(5, 40, 5, |inner| {
        let member = (space(), string_text(), space(), inner.clone())
            .prop_map(|(a, key, b, value)| format!("{a}{key}{b}:{a}{value}{b}"));
        prop_oneof![
            (prop::collection::vec(inner, 0..5), space())
                .prop_map(|(all, s)| format!("[{s}{}{s}]", all.join(&format!("{s},{s}")))),
            prop::collection::vec(member, 0..5).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

fn string_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -!#-\\[\\]-~é😀\u{2028}]{0,12}",
        select(vec!["\\n", "\\\"", "\\\\", "\\/", "\\u0041", "\\ud83d\\ude00", "\\ud800", "\\uDFFF"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = String> {
    select(vec!["", "", "", " ", "\n", "\t \r"]).prop_map(str::to_owned)
}

/// A text with one character removed, doubled or replaced by one that matters.
fn mutated(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let replacement = select("[]{},:\"\\ 0-.eEu1tn\n\u{1}\u{1f}é".chars().map(Some).chain([None]).collect::<Vec<_>>());
    (text, any::<prop::sample::Index>(), replacement, any::<bool>()).prop_map(|(text, at, replacement, insert)| {
        let mut chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len().max(1));
        let removed = usize::from(!insert && at < chars.len());
        chars.splice(at..at + removed, replacement);
        chars.into_iter().collect()
    })
}

/// Texts that are nearly JSON by accident.
fn json_soup() -> impl Strategy<Value = String> {
    "([\\[\\]{},:\"\\\\ 0-9eE+.\\-\n\u{1}u]|true|false|null|\"a\"){0,30}"
}

/// A top-level field: a known or unknown key, spelt plainly or not.
fn key() -> impl Strategy<Value = String> {
    let known = vec![
        "channel",
        "clientId",
        "id",
        "data",
        "ext",
        "subscription",
        "advice",
        "connectionType",
        "version",
        "supportedConnectionTypes",
        "timestamp",
        "successful",
        "error",
        "minimumVersion",
        "x-messages",
        "foo",
        "bar",
        "__proto__",
        "Data",
        "",
    ];
    (select(known), any::<u32>()).prop_map(|(key, escaped)| {
        let spell = |(at, c): (usize, char)| {
            if escaped >> (at % 32) & 3 == 3 { format!("\\u{:04x}", c as u32) } else { c.to_string() }
        };
        format!("\"{}\"", key.chars().enumerate().map(spell).collect::<String>())
    })
}

fn segment() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "ab", "*", "**"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_json_is_taken(text in prop_oneof![json_text(), mutated(json_text()), mutated(mutated(json_text())), json_soup()]) {
        let taken = json::validate(&text, 128);
        prop_assert_eq!(taken.is_ok(), is_json(&text), "{}", text);
        if let Ok(raw) = taken {
            prop_assert_eq!(raw, serde_json::from_str::<&RawValue>(&text)?.get());
        }
    }

    #[test]
    fn a_batch_is_taken_exactly_if_it_is_objects_in_json(
        text in prop_oneof![json_text(), mutated(prop::collection::vec(json_text(), 0..4).prop_map(|all| format!("[{}]", all.join(",")))), json_soup(), ".{0,40}"]
    ) {
        let objects = match serde_json::from_str::<Vec<&RawValue>>(&text) {
            Ok(all) => !all.is_empty() && all.iter().all(|raw| raw.get().starts_with('{')),
            Err(_) => is_json(&text) && text.trim_start().starts_with('{'),
        };
        prop_assert_eq!(parse_batch(&text, &limits()).is_ok(), objects, "{}", text);
    }

    #[test]
    fn fields_come_out_as_a_tree_would_have_them(fields in prop::collection::vec((key(), space(), json_text(), space()), 0..12)) {
        let members: Vec<_> = fields.iter().map(|(key, a, value, b)| format!("{a}{key}{b}:{a}{value}{b}")).collect();
        let text = format!("{{{}}}", members.join(","));
        // Keys here hold no half surrogates, so a map of raw values sees them as a client would.
        let map: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(&text)?;
        let raw = |key: &str| map.get(key).map(|raw| raw.get());
        let limits = limits();
        let messages = parse_batch(&text, &limits)?;
        let message = &messages[0];

        prop_assert_eq!(message.data.map(RawJson::as_str), raw("data"));
        prop_assert_eq!(message.subscription.map(RawJson::as_str), raw("subscription").filter(|raw| *raw != "null"));
        prop_assert_eq!(message.ext.map(RawJson::as_str), raw("ext").filter(|raw| raw.starts_with('{')));
        for (key, text) in [("channel", &message.channel), ("clientId", &message.client_id), ("connectionType", &message.connection_type)] {
            let expected = raw(key).and_then(|raw| serde_json::from_str::<String>(raw).ok());
            prop_assert_eq!(text.as_deref(), expected.as_deref());
        }
        for (key, value) in &message.custom {
            let key: String = serde_json::from_str(key.as_str())?;
            prop_assert!(matches!(key.as_str(), "foo" | "bar" | "__proto__" | "Data" | ""));
            prop_assert_eq!(Some(value.as_str()), raw(&key));
        }
        let unknown = ["foo", "bar", "__proto__", "Data", ""].iter().filter(|key| map.contains_key(**key)).count();
        prop_assert_eq!(message.custom.len(), unknown);
        for key in map.keys() {
            prop_assert_eq!(json::member(&text, key), raw(key));
        }
    }

    #[test]
    fn what_is_published_is_what_is_delivered(
        data in json_text(),
        ext in prop::option::of(json_text().prop_filter("an object", |raw| raw.starts_with('{'))),
        custom in prop::option::of((select(vec!["\"foo\"", "\"\\u0066oo\"", "\"\\ud800\""]), json_text())),
        id in "[a-z0-9\"\\\\\n]{0,6}",
    ) {
        let limits = limits();
        let mut text = format!(r#"[ {{ "data" : {data} , "channel":"/a/b","id":"7""#);
        if let Some(ext) = &ext {
            text += &format!(r#","ext":{ext}"#);
        }
        if let Some((key, value)) = &custom {
            text += &format!(",{key}:{value}");
        }
        text += "}]";
        let messages = parse_batch(&text, &limits)?;
        let channel = ChannelName::parse(messages[0].channel.as_deref().unwrap_or_default(), &limits)?;
        let id = Id::new(id);
        let publication = Publication { id: Some(&id), ..Publication::from_message(channel, &messages[0], true) };

        let mut out = Vec::new();
        publication.write(&mut out);
        prop_assert_eq!(out.len(), publication.encoded_bytes());
        let out = String::from_utf8(out)?;
        prop_assert!(is_json(&out), "{}", out);
        let delivered = parse_batch(&out, &limits)?;
        prop_assert_eq!(delivered[0].channel.as_deref(), Some("/a/b"));
        prop_assert_eq!(delivered[0].data.map(RawJson::as_str), Some(data.as_str()));
        prop_assert_eq!(delivered[0].ext.map(RawJson::as_str), ext.as_deref());
        prop_assert_eq!(delivered[0].id.as_ref(), Some(&id));
        prop_assert_eq!(delivered[0].custom.first().map(|(key, value)| (key.as_str(), value.as_str())), custom.as_ref().map(|(key, value)| (*key, value.as_str())));
    }

    /// A client writes what a server reads, in whatever fields.
    #[test]
    fn a_written_message_reads_back(
        texts in (any::<Option<String>>(), any::<Option<String>>(), any::<Option<String>>()),
        id in prop::option::of("[a-z0-9]{1,9}"),
        raws in (prop::option::of(json_text()), prop::option::of(json_text()), prop::option::of(json_text())),
        times in (any::<Option<i64>>(), any::<Option<i64>>(), any::<Option<i64>>()),
    ) {
        let present = |raw: &'static str| move |text: &String| text != raw;
        let ext = raws.1.filter(|raw| raw.starts_with('{'));
        let subscription = raws.2.filter(present("null"));
        let message = Message {
            channel: texts.0.map(Cow::Owned),
            client_id: texts.1.map(Cow::Owned),
            connection_type: texts.2.map(Cow::Owned),
            id: id.map(Id::new),
            data: raws.0.as_deref().map(RawJson::trusted),
            ext: ext.as_deref().map(RawJson::trusted),
            subscription: subscription.as_deref().map(RawJson::trusted),
            advice: Some(ClientAdvice { timeout_ms: times.0, interval_ms: times.1, max_interval_ms: times.2 }),
            ..Message::default()
        };
        let mut out = Vec::new();
        message.write(&mut out);
        let out = String::from_utf8(out)?;
        let read = &parse_batch(&out, &limits())?[0];
        prop_assert_eq!((&read.channel, &read.client_id, &read.connection_type), (&message.channel, &message.client_id, &message.connection_type));
        prop_assert_eq!((&read.id, read.data, read.ext, read.subscription), (&message.id, message.data, message.ext, message.subscription));
        prop_assert_eq!(read.advice, message.advice);
    }

    #[test]
    fn any_text_survives_escaping(text in any::<String>()) {
        let mut out = Vec::new();
        escape_into(&text, &mut out);
        let raw = String::from_utf8(out)?;
        prop_assert_eq!(&serde_json::from_str::<String>(&raw)?, &text);
        prop_assert_eq!(json::decode_string(&raw), Some(text.into()));
    }

    #[test]
    fn decoding_agrees_with_a_tree_parser(raw in string_text()) {
        prop_assert_eq!(json::decode_string(&raw).map(|text| text.into_owned()), serde_json::from_str::<String>(&raw).ok());
    }

    #[test]
    fn no_text_upsets_the_readers_of_raw_values(text in prop_oneof![json_soup(), mutated(json_text()), ".{0,20}"]) {
        json::member(&text, "a");
        json::elements(&text).count();
        json::decode_string(&text);
        json::integer(&text);
        bayeux::ext::Timesync::read(RawJson::trusted(&text));
        let _ = bayeux::subscription_names(RawJson::trusted(&text), &limits());
        let _ = bayeux::parse_server_batch(&text);
        for read in [bayeux::ext::uses_replay, bayeux::ext::offers_ack] {
            read(RawJson::trusted(&text));
        }
        bayeux::ext::offers_replay(RawJson::trusted(&text));
        bayeux::ext::Recovery::read(RawJson::trusted(&text));
        bayeux::ext::Heartbeat::read(RawJson::trusted(&text));
        bayeux::ext::Stamped::read(RawJson::trusted(&text));
        let _ = ChannelName::parse(&text, &limits());
    }

    #[test]
    fn channel_names_are_what_the_grammar_says(text in prop_oneof![
        "(/|/a|/\\*|/\\*\\*|\\*|b|é|%| |\\.|~){0,8}",
        prop::collection::vec(segment(), 1..5).prop_map(|all| format!("/{}", all.join("/"))),
    ]) {
        let segments: Vec<&str> = text.split('/').collect();
        let plain = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || " !#$()+-.@_{~}".contains(c));
        let valid = segments.len() >= 2 && segments[0].is_empty() && segments[1..segments.len() - 1].iter().all(|s| plain(s))
            && segments.last().is_some_and(|s| plain(s) || matches!(*s, "*" | "**"));
        prop_assert_eq!(ChannelName::parse(&text, &limits()).is_ok(), valid, "{}", text);
    }

    #[test]
    fn the_patterns_of_a_name_are_those_that_match_it(
        name in prop::collection::vec(segment(), 1..5),
        pattern in prop::collection::vec(segment(), 1..5),
    ) {
        let (name, pattern) = (format!("/{}", name.join("/")), format!("/{}", pattern.join("/")));
        let limits = limits();
        let (Ok(name), Ok(pattern)) = (ChannelName::parse(&name, &limits), ChannelName::parse(&pattern, &limits)) else {
            return Ok(());
        };
        let mut patterns = Vec::new();
        name.patterns(&mut String::new(), |pattern| patterns.push(pattern.to_owned()));
        prop_assert_eq!(pattern.matches(name), pattern == name || patterns.iter().any(|own| own == pattern.as_str()), "{:?} {:?}", pattern, name);
        let depth = name.as_str().matches('/').count();
        prop_assert_eq!(patterns.len(), if name.is_pattern() { 0 } else { depth + 1 });
        for own in &patterns {
            prop_assert!(ChannelName::parse(own, &limits)?.matches(name));
        }
    }
}
