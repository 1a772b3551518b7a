//! The metrics of histories in a cluster.

use encke_cluster::HistoryCounts;

use crate::metric::Metric;

/// The metrics of these counts.
pub(crate) fn of(counts: &HistoryCounts) -> [Metric; 10] {
    let (gauge, counter) = (Metric::gauge_of, Metric::counter_of);
    [
        gauge(
            "encke_cluster_history_partitions_owned",
            "Partitions of the histories, of 64, whose offsets this node gives.",
            counts.owned,
        ),
        gauge(
            "encke_cluster_history_partitions_level",
            "Partitions of the histories, of 64, whose messages this node has.",
            counts.level,
        ),
        gauge(
            "encke_cluster_history_partitions_in_sync",
            "Partitions of the histories, of 64, whose next owner this node may be: it has all that is certain.",
            counts.in_sync,
        ),
        gauge(
            "encke_cluster_history_copies",
            "The fewest nodes in sync of a partition that this node owns; 0 if it owns none.",
            counts.in_sync_least,
        ),
        counter(
            "encke_cluster_history_partitions_read",
            "Times that this node has read a partition from another one or from its journal, because it was new or behind: sessions of a killed node begin again at it then.",
            counts.reads,
        ),
        gauge(
            "encke_cluster_history_pending_bytes",
            "Bytes of publications that wait until all nodes in sync have them.",
            counts.pending_bytes,
        ),
        counter(
            "encke_cluster_history_refused",
            "Messages that were refused because of history_pending_bytes_max, or because they are too large for the engine.",
            counts.refused,
        ),
        counter(
            "encke_cluster_history_journal_writes",
            "Writes of this node to the journals of its partitions, with history_commit = replicated.",
            counts.journal_writes,
        ),
        counter(
            "encke_cluster_history_journal_failures",
            "Commands about journals that have failed: nothing is committed until they succeed.",
            counts.journal_failures,
        ),
        counter(
            "encke_cluster_history_rejected",
            "Bytes on subjects of histories that are no valid message.",
            counts.rejected,
        ),
    ]
}
