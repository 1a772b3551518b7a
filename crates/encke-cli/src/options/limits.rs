//! The limits among the options.

use super::{Group, option};

/// The limits on what clients, and the application, may cost.
pub(super) const LIMITS: Group = Group {
    title: "Limits",
    options: &[
        option("connections_max", &[], "Open connections of the whole server."),
        option(
            "socket_send_buffer_bytes",
            &[],
            "Bytes that the system may buffer for one connection (SO_SNDBUF). 0: the system's default.",
        ),
        option(
            "connections_per_second_max",
            &[],
            "New connections that each shard accepts in a second; more wait in the system's backlog. 0: no limit.",
        ),
        option(
            "address_connections_max",
            &[],
            "Open connections of one address; one more gets status 429. 0: no limit.",
        ),
        option(
            "sessions_max",
            &[],
            "Sessions of the whole server, in shares: a user, or an address, leaves room for others.",
        ),
        option(
            "held_requests_max",
            &[],
            "Requests below `hold_path` that are held at the same time, of the whole server.",
        ),
        option(
            "held_requests_per_address_max",
            &[],
            "Requests below `hold_path` that are held at the same time, of one address.",
        ),
        option("unconnected_per_connection_max", &[], "Sessions of one connection that have not connected yet."),
        option("unconnected_per_address_max", &[], "Sessions of one address that have not connected yet."),
        option("message_bytes_max", &["maxMessageSize"], "Bytes of one WebSocket message or request body."),
        option(
            "incomplete_bytes_max",
            &[],
            "Bytes of incomplete messages and request bodies of one shard; at least two messages.",
        ),
        option(
            "credentials_bytes_max",
            &[],
            "Bytes of the `ext` of a handshake, and of the credentials of a refresh. They come from somebody who is not known yet.",
        ),
        option("header_bytes_max", &[], "Size of all headers of a request, in bytes."),
        option("batch_messages_max", &[], "Messages in one batch."),
        option("json_depth_max", &[], "Depth of nesting in JSON; at most 128."),
        option("channel_bytes_max", &[], "Length of a channel name, in bytes."),
        option("channel_segments_max", &[], "Segments of a channel name."),
        option("channels_max", &[], "Channels and patterns with a subscriber, of one shard."),
        option("subscriptions_max", &[], "Subscriptions of one session."),
        option("outbox_messages_max", &["maxQueue"], "Messages that wait in the outbox of one session."),
        option(
            "outbox_bytes_max",
            &[],
            "Bytes of one outbox, including its queue and unacknowledged messages. A response or batch on its way may add 280 bytes for its record.",
        ),
        option(
            "sessions_bytes_max",
            &[],
            "Bytes that all sessions hold in memory; above it the largest sessions are ended.",
        ),
        option("response_bytes_max", &[], "Bytes of messages in one response; the rest comes with the next connect."),
        option(
            "responses_bytes_max",
            &[],
            "Bytes of all responses that clients are reading; above it connects and held requests wait.",
        ),
        option("history_bytes_max", &[], "Bytes of all histories together; the oldest messages are removed first."),
        option(
            "history_channels_max",
            &[],
            "Channels with a history. Those of one rule may have three quarters; above it other channels get none, and clients cannot publish on them.",
        ),
        option(
            "decisions_waiting_max",
            &[],
            "Batches of one shard that wait for decisions of the application; further messages that would wait are refused.",
        ),
        option(
            "decisions_waiting_bytes_max",
            &[],
            "Bytes of these batches. One user, or one address without users, may have 3/4 of them and of their number.",
        ),
        option(
            "calls_waiting_max",
            &[],
            "Calls of one shard that wait for answers of the application; further calls are refused.",
        ),
        option(
            "calls_waiting_bytes_max",
            &[],
            "Bytes of the data of these calls. One user, or one address without users, may have two thirds of them and of their number; refreshes of credentials have an eighth for themselves.",
        ),
        option("calls_waiting_per_session_max", &[], "Calls of one session that wait for answers of the application."),
        option(
            "revoked_tokens_max",
            &[],
            "Revoked tokens that have not expired, with ids of up to 255 bytes; longer ones count as several. Further ones cannot be revoked.",
        ),
        option(
            "callback_bytes_max",
            &["callbackParameterMaxLength"],
            "Length of the name of a JSONP callback, in bytes.",
        ),
        option(
            "idempotency_bytes_max",
            &[],
            "Bytes of the answers that the HTTP API remembers; above it the oldest are forgotten.",
        ),
        option("mailbox_bytes_max", &[], "Bytes in transit between shards, and as many again of light messages."),
        option(
            "in_process_messages_max",
            &[],
            "Messages that may wait for one subscription of the program itself; above it the oldest are discarded.",
        ),
        option(
            "in_process_bytes_max",
            &[],
            "Bytes that may wait for one subscription of the program itself, and 16 times as many for all; above it messages are discarded.",
        ),
        option("fairness_budget_us", &[], "Time after which a fan-out yields to other work, in microseconds."),
    ],
};
