//! The counts and sizes of the sessions of a node.

use super::Sessions;

/// The counts of [`Sessions`] since its start, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Requests of this node served by other nodes.
    pub forwarded: u64,
    /// Requests of other nodes served here.
    pub served: u64,
    /// Sessions that other nodes have given to this one.
    pub moved: u64,
    /// Sessions taken over from nodes that are gone.
    pub taken_over: u64,
    /// Requests, WebSockets and streams refused because there were too many.
    pub refused: u64,
    /// Requests, WebSockets and streams sent back because the node of their session, or its record, could not be asked.
    pub unanswered: u64,
    /// Questions, answers and records of sessions that are none.
    pub rejected: u64,
    /// WebSockets and streams of this node served by other nodes.
    pub relayed: u64,
    /// Times that a node was gone while it served requests of this one.
    pub nodes_gone: u64,
    /// Marks of other nodes.
    pub marks: u64,
    /// Records written.
    pub records_written: u64,
    /// Reads and writes of records that have failed.
    pub records_failed: u64,
    /// States of sessions that were too large for a record.
    pub records_too_large: u64,
    /// Orders to end a session that are in its record.
    pub orders_recorded: u64,
    /// Those that were refused, or given up.
    pub orders_failed: u64,
    /// Users whose sessions have ended by an order, and are known for that.
    pub user_marks: usize,
    /// Marks of users that have given way to new ones before their time.
    pub user_marks_dropped: u64,
    /// Requests, WebSockets and streams that wait for other nodes.
    pub waiting: usize,
    /// Requests of other nodes that are served here.
    pub serving: usize,
    /// WebSockets and streams that are carried between this node and others, with an end here.
    pub relays: usize,
    /// Sessions of this node with a record, or soon with one.
    pub recorded: usize,
    /// Records that wait to be written.
    pub records_waiting: usize,
}

impl Sessions {
    /// Its counts and sizes.
    pub fn counts(&self) -> SessionCounts {
        let (recorded, records_waiting) = self.records.len();
        SessionCounts {
            records_written: self.records.written,
            records_failed: self.records.failed,
            records_too_large: self.records.too_large,
            orders_recorded: self.orders.recorded,
            orders_failed: self.orders.failed,
            user_marks: self.user_marks.len(),
            user_marks_dropped: self.user_marks.dropped,
            waiting: self.searches.len(),
            serving: self.serving.len(),
            relays: self.relays.len(),
            recorded,
            records_waiting,
            ..self.counts
        }
    }
}
