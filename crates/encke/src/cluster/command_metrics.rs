//! The metrics of commands between nodes, of revoked tokens, and of the limits of users in a cluster.

use encke_cluster::{RemoteCallCounts, RevocationCounts, UserLimitCounts};

use crate::metric::Metric;

/// The metrics of these counts.
pub(crate) fn of(calls: &RemoteCallCounts, revocations: &RevocationCounts) -> [Metric; 12] {
    let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
    [
        gauge("encke_cluster_nodes", "Nodes of the cluster that are there, with this one.", calls.nodes),
        gauge(
            "encke_cluster_commands_waiting",
            "Commands and questions of this node that wait for the answers of others.",
            calls.waiting,
        ),
        gauge("encke_cluster_commands_waiting_bytes", "Bytes of these commands.", calls.waiting_bytes),
        gauge("encke_cluster_commands_serving", "Commands and questions of other nodes that run here.", calls.serving),
        counter("encke_cluster_commands_sent", "Commands and questions of this node for others.", calls.called),
        counter("encke_cluster_commands_served", "Commands and questions of other nodes that ran here.", calls.served),
        counter(
            "encke_cluster_commands_unanswered",
            "Answers of other nodes that did not come within command_wait_ms.",
            calls.unanswered,
        ),
        counter(
            "encke_cluster_commands_refused",
            "Commands that were not sent to other nodes, or did not run here, because of commands_max, commands_bytes_max or the size of a message.",
            calls.refused,
        ),
        counter(
            "encke_cluster_commands_rejected",
            "Bytes on subjects of commands that are none, and keys of revoked tokens that are none.",
            calls.rejected + revocations.rejected,
        ),
        gauge(
            "encke_cluster_revocations_waiting",
            "Revoked tokens that wait until the engine of the cluster has them.",
            revocations.waiting,
        ),
        counter("encke_cluster_revocations_written", "Revoked tokens written to the engine.", revocations.written),
        counter(
            "encke_cluster_revocations_failed",
            "Revoked tokens that could not be written to the engine; they are tried again.",
            revocations.failed,
        ),
    ]
}

/// The metrics of the limits of users over the nodes.
pub(crate) fn of_users(users: &UserLimitCounts) -> [Metric; 4] {
    let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
    [
        gauge(
            "encke_cluster_users_known",
            "Users with limits that other nodes have reported, each once for each node.",
            users.known,
        ),
        counter(
            "encke_cluster_users_reported",
            "Users with limits that this node has reported, each time.",
            users.reported,
        ),
        counter(
            "encke_cluster_users_refused",
            "Users of other nodes that count on their node only, because there are more than a million.",
            users.refused,
        ),
        counter(
            "encke_cluster_users_rejected",
            "Bytes on the subject of limits of users that are none.",
            users.rejected,
        ),
    ]
}
