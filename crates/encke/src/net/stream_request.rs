//! A request for a stream, on its way to the shard of its session.

use encke_core::{Format, NodeTag, Reached, StreamOpener};

/// A request for a stream.
pub(crate) struct StreamRequest {
    /// The id of the session.
    pub(crate) client: String,
    /// The node of a cluster on which the session stays. None: it is here.
    pub(crate) home: Option<NodeTag>,
    pub(crate) opener: StreamOpener,
    pub(crate) format: Format,
    /// The text before the first message.
    pub(crate) introduction: String,
    /// The positions that the ids of its events name, if it has several channels.
    pub(crate) reached: Option<Reached>,
}
