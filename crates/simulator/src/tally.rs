//! The counters of a run, and their sums over many runs.

/// Declares the counters.
macro_rules! counters {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Counters of a run.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$about])* pub $name: u64,)*
        }

        impl Tally {
            /// Adds the counters of another run.
            pub fn add(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Publications that the server accepted.
    published,
    /// Messages that arrived.
    arrived,
    /// Messages that were lost with a connection.
    lost,
    /// Sessions opened.
    sessions,
    /// Connections broken.
    breaks,
    /// Changes of transport or connection with a living session.
    switches,
    /// Responses that the kernel did not take, though they carried messages.
    refused_responses,
    /// Messages dropped for slow consumers.
    dropped,
    /// Sessions ended for being slow.
    slow,
    /// Sessions ended because all of them held too much.
    ended_for_memory,
    /// WebSockets on which messages may be compressed.
    compressing,
    /// Messages compressed, each once for all WebSockets of a shard that take it.
    compressed,
    /// Reads that began with a compressed message.
    compressed_reads,
    /// Sweeps that packed waiting messages.
    sweeps,
    /// Sessions that expired.
    expired,
    /// Sessions the server ended.
    kicked,
    /// Replies.
    replies,
    /// WebSockets that moved to another shard.
    moves,
    /// Streams opened.
    streams,
    /// Messages from histories.
    replayed,
    /// Requested positions that were no longer retained.
    gone,
    /// Positions reported in connect replies.
    heartbeats,
    /// Ends of the server's process.
    restarts,
    /// Restarts that were not clean.
    kills,
    /// Sessions that continued in the next process.
    restored,
    /// Times at which the disk began to fail.
    disk_faults,
    /// Publications that were delivered and not persisted.
    pending_replies,
    /// Replies to publications that came on another connection than the one on which they were awaited.
    late_replies,
    /// Unconfirmed messages of histories that were lost with a process.
    positions_lost,
    /// Times a client resubscribed at its positions in its old session.
    returns,
    /// Responses that overtook earlier output.
    overtaken,
    /// Starts on a full disk.
    full_starts,
    /// Starts on a disk that lost data of a failed sync, while the system still shows it.
    lost_writes,
    /// Decisions of the application that came later, or not.
    late_decisions,
    /// Decisions that did not come in time.
    decisions_timed_out,
    /// Lost responses with more than one WebSocket batch may hold.
    long_lost,
    /// Messages that were not admitted at once.
    edge_waits,
    /// Identities whose credentials ended.
    rights_ended,
    /// New credentials of living sessions.
    refreshes,
    /// Messages that a limit refused.
    over_limits,
    /// Reports of members that join or leave.
    presence_reports,
    /// Messages of feeds that were dropped for newer ones.
    superseded,
    /// Reads of a part of the bytes that were there.
    sips,
    /// Held requests that were answered with messages or gaps.
    held_answers,
    /// Gaps in these answers.
    held_gaps,
    /// Held requests whose credentials ended.
    held_refused,
    /// Announcements of changes of members.
    announcements,
    /// Members for which the table had no room.
    members_refused,
    /// Subscriptions that handles have changed.
    changes,
    /// Histories whose messages were removed.
    histories_cleared,
    /// Publications without the right to their channel.
    publications_refused,
    /// Calls without the right to their service.
    calls_refused,
    /// Subscriptions without the right to their channel.
    subscriptions_refused,
    /// Subscriptions to announcements without the right to them, or to the channel that they are about.
    announcements_refused,
    /// Requests that were not held because of their limit.
    held_over_limit,
}
