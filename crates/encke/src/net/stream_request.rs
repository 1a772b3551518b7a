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
    pub(crate) place: Place,
}

/// The nodes of a cluster that a stream has to do with.
pub(crate) enum Place {
    /// This one only.
    Here,
    /// Another node has the session and has opened the stream; it awaits the connection.
    AtNode(RelaySeat),
    /// It is of another node, which awaits the outcome: None if it is open, or the reason against it.
    ForNode(oneshot::Sender<Option<StreamOpening>>),
}
