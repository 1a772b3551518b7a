//! Finds settings that have no effect beside the others.

use toml::Value;

use crate::config::Config;
use crate::layers::{Origin, located};

/// A line about each setting that somebody set and that has no effect.
pub(crate) fn without_effect(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    for (name, is_idle, why) in of_options(config) {
        // A value that another setting implies is nobody's mistake.
        if is_idle
            && matches!(config.origin(name), Some(Origin::File { .. } | Origin::Environment(_) | Origin::Flag(_)))
        {
            found.push((name.to_owned(), why));
        }
    }
    let rules = config.value("channels").as_array().into_iter().flatten();
    found.extend(rules.enumerate().flat_map(|(index, rule)| of_rule(index, rule)));
    let line = |(path, why): (String, &str)| located(config.origin(&path), &format!("{path} has no effect {why}")).0;
    let mut lines: Vec<String> = found.into_iter().map(line).collect();
    let protocol = &config.settings.websocket_protocol;
    if protocol.contains('/') {
        let text = format!(
            "websocket_protocol = {protocol:?}: browsers offer no name with a slash, so only other clients can connect"
        );
        lines.push(located(config.origin("websocket_protocol"), &text).0);
    }
    lines
}

/// Options, each with whether it has no effect, and the reason.
fn of_options(config: &Config) -> [(&'static str, bool, &'static str); 9] {
    let settings = &config.settings;
    let in_memory = settings.data.is_empty();
    let serves = |transport| settings.transports.contains(&transport);
    let synced = settings.history_commit == encke::HistoryCommit::Interval;
    let replicated = settings.history_commit == encke::HistoryCommit::Replicated;
    let is_open = settings.allowed_origins.len() > 1 && settings.allowed_origins.iter().any(|origin| origin == "*");
    [
        ("history_commit", in_memory && !replicated, "without data"),
        ("history_commit_interval_ms", in_memory || !synced, "without data and history_commit = \"interval\""),
        ("files_listing", settings.files.is_empty(), "without files"),
        ("files_listing_names_max", !settings.files_listing, "without files_listing = true"),
        ("files_preload", settings.files.is_empty() && !config.program.demo, "without files"),
        ("demo_cometd_channels", !config.program.demo, "without demo = true"),
        (
            "callback_parameter",
            !serves(encke::TransportName::CallbackPolling),
            "without callback-polling in transports",
        ),
        ("websocket_protocol", !serves(encke::TransportName::Websocket), "without websocket in transports"),
        ("allowed_origins", is_open, "but for its *: that allows all origins"),
    ]
}

/// Fields of a rule for channels that have no effect, with the reason.
fn of_rule(index: usize, rule: &Value) -> impl Iterator<Item = (String, &'static str)> {
    let retains = rule.get("retain_last").and_then(Value::as_bool) == Some(true);
    let has_messages = rule.get("history_messages").and_then(Value::as_integer).is_some_and(|messages| messages > 0);
    let has_history = retains || has_messages;
    let pattern = rule.get("pattern").and_then(Value::as_str);
    let is_presence = pattern.is_some_and(|pattern| pattern.starts_with("/presence/"));
    let slow_consumer = rule.get("slow_consumer").and_then(Value::as_str);
    let drops = slow_consumer.is_some_and(|policy| policy != "disconnect");
    let without_history = "without history_messages or retain_last";
    [
        ("history_ms", has_history, without_history),
        ("history_bytes", has_history, without_history),
        ("persistent", has_history, without_history),
        ("min_interval_ms", !is_presence, "on announcements of members, which are all delivered"),
        ("slow_consumer_bytes", drops, "without slow_consumer = \"drop-oldest\" or \"keep-latest\""),
    ]
    .into_iter()
    .filter(move |(name, has_effect, _)| rule.get(*name).is_some() && !has_effect)
    .map(move |(name, _, why)| (format!("channels[{index}].{name}"), why))
}
