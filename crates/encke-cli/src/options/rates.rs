//! The options of presence, and those that limit rates and numbers by session, user, address and server.

use super::{Opt, option};

/// The group "Presence".
pub(super) const PRESENCE: &[Opt] = &[
    option(
        "presence_grace_ms",
        &[],
        "Time for which a user without a session stays a member of a channel, so that a reload is no leave, in milliseconds.",
    ),
    option(
        "presence_interval_ms",
        &[],
        "Shortest time between two announcements of a channel's members, in milliseconds.",
    ),
    option("presence_members_max", &[], "Members of all channels with presence; sessions above it are not listed."),
    option(
        "presence_bytes_max",
        &[],
        "Bytes of all members of channels with presence; sessions above it are not listed.",
    ),
];

/// The group "Rates".
pub(super) const OPTIONS: &[Opt] = &[
    option(
        "session_messages_per_s_max",
        &[],
        "Messages that the client of one session may send in a second. 0: no limit.",
    ),
    option(
        "session_bytes_per_s_max",
        &[],
        "Bytes of messages that the client of one session may send in a second. 0: no limit.",
    ),
    option(
        "session_refreshes_per_s_max",
        &[],
        "Refreshes of its credentials that one session may send in a second. They also count as messages. 0: no limit.",
    ),
    option("user_messages_per_s_max", &[], "Messages that all sessions of one user may send in a second. 0: no limit."),
    option(
        "user_bytes_per_s_max",
        &[],
        "Bytes of messages that all sessions of one user may send in a second. 0: no limit.",
    ),
    option("user_handshakes_per_s_max", &[], "Handshakes of one user in a second. 0: no limit."),
    option("user_sessions_max", &[], "Sessions of one user. 0: no limit."),
    option("user_subscriptions_max", &[], "Subscriptions of all sessions of one user. 0: no limit."),
    option(
        "address_messages_per_s_max",
        &[],
        "Messages that all clients of one address may send in a second. 0: no limit.",
    ),
    option(
        "address_bytes_per_s_max",
        &[],
        "Bytes of messages that all clients of one address may send in a second. 0: no limit.",
    ),
    option("address_handshakes_per_s_max", &[], "Handshakes of one address in a second. 0: no limit."),
    option("messages_per_s_max", &[], "Messages that all clients may send in a second. 0: no limit."),
    option("bytes_per_s_max", &[], "Bytes of messages that all clients may send in a second. 0: no limit."),
    option(
        "handshakes_per_s_max",
        &[],
        "Handshakes of the whole server in a second. The last quarter is for addresses that take less than that. 0: no limit.",
    ),
    option("all_subscriptions_max", &[], "Subscriptions of all sessions. 0: no limit."),
    option(
        "rate_entries_max",
        &[],
        "Users, addresses and channels whose rates are known at the same time; above it those that sent least are forgotten.",
    ),
];
