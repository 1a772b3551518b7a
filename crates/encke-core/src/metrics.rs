//! The metrics of a shard. One thread writes, a scrape reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only its shard changes.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the value. Uses a load and a store instead of an atomic add, because there is only one writer.
    pub fn add(&self, by: usize) {
        self.0.store(self.get() + by as u64, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It only increases.
    Counter,
    /// It increases and decreases.
    Gauge,
}

macro_rules! metrics {
    ($($meaning:ident $field:ident $name:literal $help:literal)*) => {
        /// The metrics of one shard.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(#[doc = $help] pub $field: Count,)*
        }

        impl Metrics {
            /// All metrics: name, help, type and value.
            pub fn all(&self) -> Vec<(&'static str, &'static str, Meaning, u64)> {
                vec![$(($name, $help, Meaning::$meaning, self.$field.get()),)*]
            }
        }
    };
}

metrics! {
    Gauge connections "encke_connections" "Open TCP connections."
    Gauge sockets "encke_websockets" "Open WebSockets and streams."
    Gauge streams "encke_streams" "Sessions with a stream of events or JSON lines."
    Gauge tls_handshakes_open "encke_tls_handshakes_open" "TLS connections whose handshake is not complete."
    Counter tls_handshakes "encke_tls_handshakes" "Completed TLS handshakes."
    Counter tls_resumed "encke_tls_handshakes_resumed" "Completed TLS handshakes that resumed an earlier session."
    Counter tls_failed "encke_tls_handshakes_failed" "TLS handshakes that failed, or took longer than tls_handshake_timeout_ms."
    Counter proxy_heads_refused "encke_proxy_heads_refused" "Connections closed because their PROXY head was missing, invalid, too long or too late, or came from nobody in trusted_proxies."
    Gauge http2_connections "encke_http2_connections" "Open HTTP/2 connections."
    Counter http2_streams "encke_http2_streams" "Requests and WebSockets that came on HTTP/2 connections."
    Counter http2_resets "encke_http2_resets" "HTTP/2 streams that the server has reset: above http2_streams_max, malformed, or not read by their client."
    Counter http2_floods "encke_http2_floods" "HTTP/2 connections that the server has ended because of http2_control_frames_per_s_max or http2_resets_per_s_max."
    Counter http2_errors "encke_http2_errors" "HTTP/2 connections that ended because their client violated the protocol or its limits."
    Gauge sessions "encke_sessions" "Bayeux sessions."
    Gauge channels "encke_channels" "Channels and patterns with subscribers."
    Gauge subscriptions "encke_subscriptions" "Subscriptions."
    Gauge held "encke_held_connects" "Connects that wait for their reply."
    Gauge held_requests "encke_held_requests" "HTTP requests that wait for their answer for long, connects of long-polling among them."
    Gauge frame_bytes "encke_frame_bytes" "Bytes of encoded frames that some outbox still holds."
    Gauge memory_bytes "encke_sessions_bytes" "Bytes that wait for sessions: chunks of frames, each counted once, queues, and response bodies."
    Gauge history_messages "encke_history_messages" "Messages that histories retain."
    Gauge history_bytes "encke_history_bytes" "Bytes that histories retain."
    Gauge history_channels "encke_history_channels" "Channels with a history, including those whose history is empty."
    Gauge replies_waiting "encke_history_replies_waiting" "Publish replies that wait until their message is stored, and subscribe replies that wait for the cluster."
    Gauge history_store_backlog_bytes "encke_history_store_backlog_bytes" "Bytes of histories that wait to be written to disk; their publishers wait, too."
    Gauge history_store_panicked "encke_history_store_panicked" "1 if the thread that stores histories on disk has panicked: nothing is stored until the next start."
    Gauge journal_bytes "encke_journal_bytes" "Bytes of all history files on disk."
    Gauge journal_segments "encke_journal_segments" "History files on disk."
    Gauge in_process_subscriptions "encke_in_process_subscriptions" "Subscriptions of the program itself."
    Gauge presence_members "encke_presence_members" "Sessions that are members of channels with presence, once for each channel."
    Gauge presence_channels "encke_presence_channels" "Channels with presence that have members."
    Gauge presence_bytes "encke_presence_bytes" "Bytes of the members of channels with presence."
    Counter presence_refused "encke_presence_refused" "Members not listed because presence_members_max or presence_bytes_max was reached."
    Counter in_process_discarded "encke_in_process_messages_discarded" "Messages discarded because a subscriber in the process read too slowly."
    Counter holds_refused "encke_holds_refused" "Requests below hold_path refused by a limit or a drain."
    Counter handshakes "encke_handshakes" "Sessions opened."
    Counter restored "encke_sessions_restored" "Sessions restored after a restart."
    Counter unrestored "encke_sessions_not_restored" "Sessions not restored because the settings or the rights no longer admit them."
    Counter taken_from_nodes "encke_sessions_taken" "Sessions that other nodes of the cluster had, and this one goes on with."
    Counter given_to_nodes "encke_sessions_given" "Sessions given to other nodes of the cluster, because their clients came there."
    Counter held_from_nodes "encke_sessions_held" "Sessions not given to other nodes of the cluster, because they, or many bytes of their owner, had moved within the last second. They are served through this node."
    Counter left_to_nodes "encke_sessions_left" "Copies of sessions ended because another node of the cluster had taken them."
    Counter disconnected "encke_sessions_disconnected" "Sessions ended by their clients."
    Counter expired "encke_sessions_expired" "Sessions ended because their client was silent."
    Counter unread "encke_sessions_expired_messages_unread" "Messages in responses that the kernel took, of sessions that expired before their client connected again: it may have lost them."
    Counter kicked "encke_sessions_kicked" "Sessions ended by the server."
    Counter tokens_expired "encke_sessions_token_expired" "Sessions ended because their credentials had expired."
    Counter revoked "encke_sessions_revoked" "Sessions ended because their credentials were revoked."
    Counter unused_ended "encke_sessions_unused_ended" "Sessions ended before their first connect, because there were too many of them or because room was needed."
    Counter batches "encke_batches" "Batches of messages received."
    Counter messages "encke_messages" "Messages received."
    Counter publications "encke_publications" "Messages broadcast, from clients and applications."
    Counter deliveries "encke_deliveries" "Messages that the kernel accepted for a session."
    Counter messages_compressed "encke_messages_compressed" "Messages compressed, each once for all WebSockets of the shard that take it."
    Counter resent "encke_messages_resent" "Messages sent again because their client did not acknowledge them."
    Counter replayed "encke_messages_replayed" "Messages delivered from a history."
    Counter withdrawals_searched "encke_replay_searched_messages" "Queued messages examined because a subscribe replays some of them from a history."
    Counter withdrawals_delayed "encke_replay_searches_delayed" "Times a session waited for such a search, behind its earlier ones or those of other sessions."
    Counter positions_gone "encke_replay_positions_gone" "Times a client requested messages that are no longer retained."
    Counter losses_delayed "encke_replay_losses_delayed" "Connect replies without the losses of their session, because too many messages were queued to examine them."
    Counter history_evicted "encke_history_messages_evicted" "Messages removed early from their history because history_bytes_max was reached."
    Counter history_refused "encke_history_refused" "Publications not stored because history_channels_max was reached."
    Counter history_store_records "encke_history_store_records_persisted" "Bursts of messages stored in the data directory."
    Counter history_store_refused "encke_history_store_records_refused" "Bursts of messages that could not be stored in the data directory, or not in time."
    Counter history_store_commits "encke_history_store_commits" "Times that waiting records were written to the disk."
    Counter history_store_failures "encke_history_store_failures" "Times that the disk returned an error."
    Counter history_store_given_up "encke_history_store_files_given_up" "History files that could not be synced and were written again."
    Counter history_store_compactions "encke_history_store_compactions" "Times that all histories were rewritten to remove old files."
    Counter errors "encke_error_replies" "Messages answered with an error."
    Counter batches_refused "encke_batches_refused" "Batches that were invalid JSON, too deep, too long or empty."
    Counter sessions_unknown "encke_sessions_unknown" "Messages of unknown sessions."
    Counter slow_disconnected "encke_slow_consumers_disconnected" "Sessions ended because their outbox was full."
    Counter slow_dropped "encke_slow_consumers_messages_dropped" "Messages dropped because an outbox was full."
    Counter ended_for_memory "encke_sessions_ended_for_memory" "Sessions ended because all sessions together held more than sessions_bytes_max."
    Counter sweeps "encke_memory_sweeps" "Times that queued messages were packed because memory had doubled."
    Gauge decisions_waiting "encke_decisions_waiting" "Batches of messages that wait for a decision of the application."
    Gauge decisions_waiting_bytes "encke_decisions_waiting_bytes" "Bytes of these batches."
    Gauge calls_waiting "encke_calls_waiting" "Calls that wait for their answer by the application."
    Gauge calls_waiting_bytes "encke_calls_waiting_bytes" "Bytes of the data of these calls."
    Gauge tokens_revoked "encke_tokens_revoked" "Revoked tokens that open no session any more."
    Counter decisions_delayed "encke_decisions_delayed" "Decisions of the application that came later, or not."
    Counter calls_delayed "encke_calls_delayed" "Answers of the application that came later, or not."
    Counter decisions_timed_out "encke_decisions_timed_out" "Decisions and answers that did not come in time."
    Counter decisions_failed "encke_decisions_failed" "Decisions and answers that ended in a panic."
    Counter decisions_refused "encke_decisions_refused" "Messages refused because decisions_waiting_max or decisions_waiting_bytes_max was reached."
    Counter calls_refused "encke_calls_refused" "Calls and refreshes refused because of calls_waiting_max, calls_waiting_bytes_max or calls_waiting_per_session_max, or because a refresh of their session is under way."
    Counter credentials_too_large "encke_credentials_too_large" "Handshakes and refreshes refused because of credentials_bytes_max."
    Counter results_late "encke_results_late" "Decisions and answers that came after their time-out, and were dropped."
    Counter subscriptions_refused "encke_subscriptions_refused" "Subscriptions refused by a limit."
    Counter attributes_refused "encke_session_attributes_refused" "Attributes not set because their session has session_attributes_max of them, or session_attributes_bytes_max."
    Counter session_rates_exceeded "encke_session_rates_exceeded" "Messages and refreshes refused because their session sent too many."
    Counter user_rates_exceeded "encke_user_rates_exceeded" "Messages and handshakes refused because their user sent too many."
    Counter address_rates_exceeded "encke_address_rates_exceeded" "Messages and handshakes refused because their address sent too many."
    Counter channel_rates_exceeded "encke_channel_rates_exceeded" "Publications refused because their channel got too many."
    Counter server_rates_exceeded "encke_server_rates_exceeded" "Messages and handshakes refused because all clients together sent too many."
    Counter rates_forgotten "encke_rates_forgotten" "Rates of users, addresses and channels forgotten because rate_entries_max was reached."
    Counter sessions_refused "encke_sessions_refused" "Handshakes refused by a limit, a drain or the application."
    Counter connections_refused "encke_connections_refused" "Connections refused because connections_max was reached."
    Counter address_connections_refused "encke_address_connections_refused" "Connections refused because address_connections_max was reached."
    Counter accept_failures "encke_accept_failures" "Times a connection could not be accepted, mostly because no file descriptor was free."
    Counter accepts_delayed "encke_accepts_delayed" "Times accepting waited, for connections_per_second_max or for pending writes."
    Counter surplus_connects "encke_surplus_connects" "Connects not held because their browser has reached browser_sessions_max or http2_browser_sessions_max."
    Counter websocket_errors "encke_websocket_errors" "WebSockets closed because they violated the protocol or its limits."
    Counter api_requests "encke_api_requests" "Requests of the HTTP API."
    Counter api_keys_refused "encke_api_keys_refused" "Requests of the HTTP API without a valid key, or whose key lacks the scope."
    Counter api_repeated "encke_api_repeated_requests" "Requests of the HTTP API that were answered with the remembered answer of an earlier one."
    Gauge idempotency_bytes "encke_api_remembered_bytes" "Bytes of the answers that are remembered for repeated requests."
    Counter idempotency_evicted "encke_api_remembered_evicted" "Answers forgotten early because idempotency_bytes_max was reached."
    Counter requests_refused "encke_requests_refused" "HTTP requests answered with a status of 400 or more."
    Counter hosts_refused "encke_hosts_refused" "Requests and WebSockets whose Host is not a name of this server."
    Counter origins_refused "encke_origins_refused" "Requests and WebSockets from origins that are not allowed."
    Counter responses_delayed "encke_responses_delayed" "Connects with messages that waited because the bodies of other responses had reached responses_bytes_max."
    Gauge incomplete_bytes "encke_incomplete_bytes" "Bytes of incomplete WebSocket messages and request bodies."
    Counter incomplete_given_up "encke_incomplete_given_up" "Incomplete messages and bodies discarded because there was no room."
    Gauge waiting_requests_bytes "encke_waiting_requests_bytes" "Bytes of the bodies of requests that wait for their turn."
    Counter waiting_requests_refused "encke_waiting_requests_refused" "Requests answered with 503 because the bodies of others that wait left no room (waiting_requests_bytes_max)."
    Counter timeouts "encke_timeouts" "Sockets closed because they were silent, and requests that took too long."
    Counter history_store_waits "encke_history_store_waits" "Times a WebSocket was not read because too many history records waited for the disk."
    Gauge mailbox_bytes "encke_mailbox_bytes" "Bytes in transit between shards."
    Gauge min_interval_channels "encke_min_interval_channels" "Channels, each as often as it has groups, of which a message has gone within its interval."
    Counter min_interval_replaced "encke_min_interval_messages_replaced" "Messages that waited for their interval and were replaced by later ones, once for each group."
    Counter min_interval_overflows "encke_min_interval_overflows" "Messages that went before the end of their interval because of min_interval_channels_max or min_interval_bytes_max."
    Counter retained_incomplete "encke_retained_incomplete" "New subscriptions that did not get the latest messages of all their channels (retain_last): the outbox had no room, or there are too many channels."
    Counter retained_untracked "encke_retained_untracked" "Latest messages given to new subscriptions (retain_last) that may come once more, because too many were given in a minute."
    Gauge arrivals "encke_arrivals" "Messages from other shards that wait for pending writes."
    Counter arrivals_delayed "encke_arrivals_delayed" "Messages from other shards that waited for pending writes."
    Counter mailbox_waits "encke_mailbox_waits" "Times a WebSocket or request waited because mailbox_bytes_max was reached."
    Counter reader_waits "encke_reader_waits" "Complete flushes after which heavy messages continued to wait for slow readers."
    Counter flush_waits "encke_flush_waits" "Times a WebSocket or request waited for pending writes."
}
