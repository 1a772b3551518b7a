//! The counters of a run of a cluster.

/// Declares the counters.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Counters of a run of a cluster.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ClusterTally {
            $($(#[$about])* pub $name: u64,)*
        }

        impl ClusterTally {
            /// Adds the counters of another run.
            pub fn add(&mut self, other: &ClusterTally) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Publications that were confirmed to their publishers.
    confirmed,
    /// Publications of which their publishers do not know if they were accepted.
    uncertain,
    /// Publications that were refused.
    refused,
    /// Messages that arrived.
    arrived,
    /// Messages that came a second time, where that may be.
    doubled,
    /// Sessions opened.
    sessions,
    /// Sessions that were unknown when their clients came back.
    unknown,
    /// Requests that another node has served.
    forwarded,
    /// Sessions taken over from nodes that are gone.
    taken_over,
    /// Copies of sessions that ended because another node has the session.
    left,
    /// Records of sessions written.
    records,
    /// Connections of clients that broke.
    breaks,
    /// Requests that were sent back with status 503.
    sent_back,
    /// Subscribes that went on at their positions.
    recovered,
    /// Subscribes whose positions were not retained any more.
    not_recovered,
    /// Losses that were reported.
    losses,
    /// Nodes killed.
    kills,
    /// Answers with values of journals.
    journal_values_read,
    /// Nodes paused.
    pauses,
    /// Nodes cut off.
    cuts,
    /// Connections to the engine that broke.
    engine_breaks,
    /// Restarts of the engine.
    engine_restarts,
    /// Times that the engine lost all keys.
    keys_lost,
    /// Changes of the owner of a partition.
    owner_changes,
    /// Partitions that began again.
    begun_again,
    /// Writes of keys that found another revision.
    conflicts,
    /// Old values that were read.
    old_reads,
    /// Messages that the engine has lost.
    messages_lost,
    /// Messages that the engine has doubled.
    messages_doubled,
    /// Second copies of envelopes that nodes have dropped.
    copies_dropped,
    /// Publications that had to arrive within seconds, and did.
    in_time,
    /// Sessions that ended by a disconnect.
    disconnects,
}
