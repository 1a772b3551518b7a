//! The check of settings before a server starts or reloads.

/// The values of these settings, each with its name.
macro_rules! numbers {
    ($settings:ident: $($name:ident)*) => {
        [$((stringify!($name), $settings.$name as u64)),*]
    };
}

mod check;

use std::fmt;

use encke_core::{SHARDS_MAX, Settings};

pub use check::hidden_rule;

/// A setting that cannot work: its name, its value and a description of valid values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value}: {wanted}")]
#[non_exhaustive]
pub struct SettingsError {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// A description of valid values.
    pub wanted: &'static str,
}

impl SettingsError {
    pub(crate) fn of(name: &'static str, value: &dyn fmt::Display, wanted: &'static str) -> Result<(), SettingsError> {
        Err(SettingsError { name, value: value.to_string(), wanted })
    }
}

/// Checks what types cannot express: ranges, and settings that contradict each other. [`Builder::start`](crate::Builder::start)
/// and [`Handle::reload`](crate::Handle::reload) do so themselves.
///
/// # Errors
/// The first setting that cannot work.
pub fn check_settings(settings: &Settings) -> Result<(), SettingsError> {
    let fail = SettingsError::of;
    if settings.transports.is_empty() {
        return fail("transports", &"[]", "at least one of websocket, long-polling, callback-polling");
    }
    if settings.mounts.is_empty() {
        return fail("mounts", &"[]", "at least one path such as /cometd");
    }
    if !(400..600).contains(&settings.duplicate_connect_status) {
        return fail("duplicate_connect_status", &settings.duplicate_connect_status, "an HTTP status from 400 to 599");
    }
    if settings.shards > SHARDS_MAX {
        return fail("shards", &settings.shards, "0 (one per core) to 63");
    }
    if !settings.files.is_empty() && std::fs::read_dir(&settings.files).is_err() {
        return fail("files", &settings.files, "a directory that is there and can be read");
    }
    check::texts(settings)?;
    let positive = numbers! { settings:
        timeout_ms max_interval_ms connections_max sessions_max batch_messages_max json_depth_max
        channel_segments_max channels_max subscriptions_max outbox_messages_max mailbox_bytes_max
        in_process_messages_max in_process_bytes_max history_bytes_max history_channels_max rate_entries_max
        history_commit_interval_ms decision_timeout_ms call_timeout_ms decisions_waiting_max
        decisions_waiting_bytes_max calls_waiting_max calls_waiting_bytes_max
        calls_waiting_per_session_max revoked_tokens_max
        handshake_timeout_ms request_timeout_ms response_timeout_ms
    };
    if let Some((name, value)) = positive.into_iter().find(|(_, value)| *value == 0) {
        return fail(name, &value, "a number above 0");
    }
    let roomy = [
        ("message_bytes_max", settings.message_bytes_max, 64),
        ("header_bytes_max", settings.header_bytes_max, 8192),
        ("credentials_bytes_max", settings.credentials_bytes_max, 1024),
        ("outbox_bytes_max", settings.outbox_bytes_max, 1024),
        ("sessions_bytes_max", settings.sessions_bytes_max, 1024 * 1024),
        ("responses_bytes_max", settings.responses_bytes_max, 1024),
    ];
    if let Some((name, value, _)) = roomy.into_iter().find(|(_, value, least)| value < least) {
        return fail(name, &value, "at least 1024 bytes (headers: 8192, messages: 64, all sessions: 1048576)");
    }
    if settings.json_depth_max > bayeux::json::DEPTH_CAP {
        return fail("json_depth_max", &settings.json_depth_max, "at most 128");
    }
    check::times(settings)?;
    check::rules(settings)
}
