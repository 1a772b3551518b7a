//! One batch of messages of one client, and the replay requests of its subscribes.

pub(crate) mod batch;
pub(crate) mod replay_request;
