//! A batch of messages of one client, and what its subscribes ask of the past.

pub(crate) mod batch;
pub(crate) mod replay_request;
