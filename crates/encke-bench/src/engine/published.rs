//! The number of publications, by which missing deliveries are found.

/// The number of publications of one worker in each room: `next[room]` is the next sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// By room.
    pub next: Vec<u32>,
}
