//! A request for a stream, on its way to the shard of its session.

use encke_core::{Format, Reached, StreamOpener, StreamOpening};
use tokio::sync::oneshot;

use crate::cluster::link::RelaySeat;

/// A request for a stream.
pub(crate) struct StreamRequest {
    /// The id of the session.
    pub(crate) client: String,
    pub(crate) opener: StreamOpener,
    pub(crate) format: Format,
    /// The text before the first message.
    pub(crate) introduction: String,
    /// The positions that the ids of its events name, if it has several channels.
    pub(crate) reached: Option<Reached>,
    pub(crate) served: Served,
}

/// The node of a cluster that serves a stream.
pub(crate) enum Served {
    /// This one.
    Here,
    /// Another one has opened it, and awaits the connection.
    ByNode(RelaySeat),
    /// This one, for a client of another node, which awaits the outcome: None if it is open, or the reason against it.
    ForNode(oneshot::Sender<Option<StreamOpening>>),
}
