//! A list of all limits with their owners: a limit that several users share is given out in shares, or `docs/security.md`
//! says why it need not be.

use encke::Settings;

/// The owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One message, session, user, address, channel or subscription has it for itself.
    Own,
    /// Several share it: in `encke::Shares`, or in a bucket with a part for those who take few.
    Shares,
    /// Several share it without shares, for the reason in `docs/security.md`.
    Without,
}

use Kind::{Own, Shares, Without};

const LIMITS: &[(&str, Kind)] = &[
    ("max_interval_ms", Own),
    ("client_interval_max_ms", Own),
    ("lazy_timeout_max_ms", Own),
    ("browser_sessions_max", Own),
    ("http2_browser_sessions_max", Own),
    ("http2_streams_max", Own),
    ("http2_control_frames_per_s_max", Own),
    ("http2_resets_per_s_max", Own),
    ("idempotency_bytes_max", Without),
    ("files_cache_bytes_max", Without),
    ("files_cache_file_bytes_max", Own),
    ("files_listing_names_max", Own),
    ("files_open_max", Without),
    ("hold_timeout_max_ms", Own),
    ("stream_max_ms", Own),
    ("connections_max", Without),
    ("address_connections_max", Own),
    ("connections_per_second_max", Without),
    ("sessions_max", Shares),
    ("held_requests_max", Shares),
    ("held_requests_per_address_max", Own),
    ("unconnected_per_connection_max", Own),
    ("unconnected_per_address_max", Own),
    ("message_bytes_max", Own),
    ("incomplete_bytes_max", Without),
    ("waiting_requests_bytes_max", Shares),
    ("credentials_bytes_max", Own),
    ("header_bytes_max", Own),
    ("batch_messages_max", Own),
    ("json_depth_max", Own),
    ("channel_bytes_max", Own),
    ("channel_segments_max", Own),
    ("channels_max", Without),
    ("min_interval_channels_max", Without),
    ("min_interval_bytes_max", Without),
    ("subscriptions_max", Own),
    ("session_attributes_max", Own),
    ("session_attributes_bytes_max", Own),
    ("outbox_messages_max", Own),
    ("outbox_bytes_max", Own),
    ("sessions_bytes_max", Without),
    ("response_bytes_max", Own),
    ("responses_bytes_max", Without),
    ("history_bytes_max", Without),
    ("history_channels_max", Shares),
    ("decisions_waiting_max", Shares),
    ("decisions_waiting_bytes_max", Shares),
    ("calls_waiting_max", Shares),
    ("calls_waiting_bytes_max", Shares),
    ("calls_waiting_per_session_max", Own),
    ("revoked_tokens_max", Without),
    ("callback_bytes_max", Own),
    ("mailbox_bytes_max", Without),
    ("in_process_messages_max", Own),
    ("in_process_bytes_max", Without),
    ("presence_members_max", Without),
    ("presence_bytes_max", Without),
    ("session_messages_per_s_max", Own),
    ("session_bytes_per_s_max", Own),
    ("session_refreshes_per_s_max", Own),
    ("user_messages_per_s_max", Own),
    ("user_bytes_per_s_max", Own),
    ("user_handshakes_per_s_max", Own),
    ("user_sessions_max", Own),
    ("user_subscriptions_max", Own),
    ("address_messages_per_s_max", Own),
    ("address_bytes_per_s_max", Own),
    ("address_handshakes_per_s_max", Own),
    ("messages_per_s_max", Without),
    ("bytes_per_s_max", Without),
    ("handshakes_per_s_max", Shares),
    ("all_subscriptions_max", Without),
    ("rate_entries_max", Without),
];

/// A new limit needs a row here: the one that adds it decides whose it is.
#[test]
fn every_limit_has_an_owner_or_shares_or_a_reason() {
    let settings = serde_json::to_value(Settings::default()).expect("JSON");
    // The age of a cookie limits no input.
    let is_limit = |name: &&String| name.split('_').any(|word| word == "max") && *name != "cookie_max_age_s";
    let names: Vec<&String> = settings.as_object().expect("settings").keys().filter(is_limit).collect();
    for name in &names {
        let rows = LIMITS.iter().filter(|(listed, _)| listed == name).count();
        assert_eq!(rows, 1, "{name}: whose limit is it?");
    }
    assert_eq!(LIMITS.len(), names.len(), "a row without a setting");
    let page = include_str!("../../../../../docs/security.md");
    let (_, shares) = page.split_once("\n## Shares\n").expect("the section");
    let (shares, _) = shares.split_once("\n## ").expect("the next section");
    let (given_out, reasons) = shares.split_once("These are shared without shares").expect("both tables");
    for (name, kind) in LIMITS {
        let first_cells =
            |text: &'static str| text.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
        let named = |text| first_cells(text).any(|cell| cell.contains(&format!("`{name}`")));
        assert_eq!([named(given_out), named(reasons)], [*kind == Shares, *kind == Without], "{name} in security.md");
    }
}
