//! A client's batch: we and serde_json agree on what is JSON; whatever parses is forwarded and answered as JSON, exact in
//! its raw parts and without the fields that only the server may utter.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use bayeux::{BatchError, ChannelName, Limits, Message, Publication, Reply, parse_batch, subscription_names};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let limits = Limits { batch_messages_max: 20, json_depth_max: 20, custom_fields_max: 4, ..Limits::default() };
    let messages = match parse_batch(text, &limits) {
        Ok(messages) => messages,
        Err(error) => {
            let invalid = error == BatchError::JsonInvalid;
            assert!(!invalid || !is_json(text), "refused, but it is JSON: {text}");
            return;
        }
    };
    assert!(is_json(text), "taken, but it is not JSON: {text}");
    assert!((1..=limits.batch_messages_max).contains(&messages.len()));
    for message in &messages {
        check_limits(message, &limits);
        check_reply(message);
        check_publication(message, &limits);
    }
});

fn check_limits(message: &Message<'_>, limits: &Limits) {
    assert!(message.custom.len() <= limits.custom_fields_max);
    let keys: BTreeSet<&str> = message.custom.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys.len(), message.custom.len(), "a key stands twice");
    if let Some(Ok(names)) = message.subscription.map(|raw| subscription_names(raw, limits)) {
        assert!((1..=limits.subscription_names_max).contains(&names.len()));
    }
}

/// The reply that echoes everything a reply may echo.
fn check_reply(message: &Message<'_>) {
    let mut out = Vec::new();
    let reply = Reply {
        id: message.id.as_ref(),
        client_id: message.client_id.as_deref(),
        subscription: message.subscription,
        ext: message.ext,
        data: message.data,
        error: message.fault.map(|fault| fault.error()),
        ..Reply::new(message.channel.as_deref())
    };
    reply.write(&mut out);
    let out = String::from_utf8(out).expect("a reply is text");
    assert!(is_json(&out), "a reply that is not JSON: {out}");
}

fn check_publication(message: &Message<'_>, limits: &Limits) {
    let Some(Ok(channel)) = message.channel.as_deref().map(|text| ChannelName::parse(text, limits)) else { return };
    let publication = Publication::from_message(channel, message, true);
    let mut out = Vec::new();
    publication.write(&mut out);
    assert_eq!(out.len(), publication.encoded_bytes());
    let out = String::from_utf8(out).expect("a publication is text");
    assert!(is_json(&out), "a publication that is not JSON: {out}");

    let again = &parse_batch(&out, limits).expect("a publication is a message")[0];
    assert_eq!(again.channel, message.channel);
    assert_eq!((again.data, again.ext, again.timestamp), (message.data, message.ext, message.timestamp));
    assert_eq!(again.custom[..], message.custom[..]);
    assert!(again.client_id.is_none() && again.advice.is_none() && again.subscription.is_none());
    // serde_json decodes keys, so an escaped `\u0061dvice` does not slip through; it refuses keys that no text can hold.
    if let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(&out) {
        for forbidden in ["clientId", "advice", "successful", "error", "subscription"] {
            assert!(!fields.contains_key(forbidden), "{forbidden} in {out}");
        }
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}
