//! The metrics of sessions that move between nodes.

use encke_cluster::SessionCounts;

use crate::metric::Metric;

/// The metrics of these counts.
pub(crate) fn of(counts: &SessionCounts) -> [Metric; 14] {
    let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
    let SessionCounts { waiting, serving, relays, recorded, records_waiting, .. } = *counts;
    [
        gauge(
            "encke_cluster_sessions_waiting",
            "Requests, WebSockets and streams of this node that wait for the node of their session.",
            waiting,
        ),
        gauge("encke_cluster_sessions_serving", "Requests of other nodes that this node serves.", serving),
        gauge(
            "encke_cluster_relays",
            "WebSockets and streams that are carried between this node and others, with an end here.",
            relays,
        ),
        gauge("encke_cluster_sessions_recorded", "Sessions of this node with a record, or soon with one.", recorded),
        gauge(
            "encke_cluster_session_records_waiting",
            "Records of sessions that wait to be written, because of session_records_per_s_max.",
            records_waiting,
        ),
        counter(
            "encke_cluster_requests_forwarded",
            "Requests of this node that other nodes have served.",
            counts.forwarded,
        ),
        counter(
            "encke_cluster_connections_relayed",
            "WebSockets and streams of this node that other nodes have served.",
            counts.relayed,
        ),
        counter("encke_cluster_requests_served", "Requests that this node has served for others.", counts.served),
        counter(
            "encke_cluster_sessions_moved",
            "Sessions that other nodes have given to this one, because their clients came here.",
            counts.moved,
        ),
        counter(
            "encke_cluster_sessions_taken_over",
            "Sessions taken over by their records, because their nodes were gone.",
            counts.taken_over,
        ),
        counter(
            "encke_cluster_requests_refused",
            "Requests, WebSockets and streams refused because of forwarded_max or forwarded_bytes_max, here or on the node of their session.",
            counts.refused,
        ),
        counter(
            "encke_cluster_requests_unanswered",
            "Requests, WebSockets and streams sent back because the node of their session could not be asked.",
            counts.unanswered,
        ),
        counter(
            "encke_cluster_sessions_rejected",
            "Bytes between nodes, and records, that are not what they should be.",
            counts.rejected,
        ),
        counter(
            "encke_cluster_nodes_gone",
            "Times that a node was gone while it served requests of this one.",
            counts.nodes_gone,
        ),
    ]
}

/// Those of their records, and of what clients have confirmed.
pub(crate) fn of_records(counts: &SessionCounts) -> [Metric; 4] {
    let counter = Metric::counter_of;
    [
        counter(
            "encke_cluster_marks",
            "Reports of other nodes of the messages that their sessions have confirmed.",
            counts.marks,
        ),
        counter("encke_cluster_session_records_written", "Records of sessions written.", counts.records_written),
        counter(
            "encke_cluster_session_records_failed",
            "Reads and writes of records of sessions that have failed.",
            counts.records_failed,
        ),
        counter(
            "encke_cluster_session_records_too_large",
            "States of sessions that were too large for a record: these sessions begin again when their node is gone.",
            counts.records_too_large,
        ),
    ]
}

/// The metrics of ends that were ordered.
pub(crate) fn of_orders(counts: &SessionCounts) -> [Metric; 4] {
    let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
    [
        counter(
            "encke_cluster_session_orders_recorded",
            "Ends of sessions that were ordered on this node and are in the record of the session.",
            counts.orders_recorded,
        ),
        counter(
            "encke_cluster_session_orders_failed",
            "Ends of sessions that were ordered on this node and could not be recorded, or were too many at once.",
            counts.orders_failed,
        ),
        gauge(
            "encke_cluster_ended_users",
            "Users all of whose sessions have ended by an order, as far as this node remembers them.",
            counts.user_marks,
        ),
        counter(
            "encke_cluster_ended_users_dropped",
            "Users that this node does not remember any more, because others were ended later.",
            counts.user_marks_dropped,
        ),
    ]
}
