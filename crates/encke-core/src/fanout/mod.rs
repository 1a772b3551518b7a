//! Publications on their way to outboxes.

pub(crate) mod backpressure;
pub(crate) mod burst;
pub(crate) mod delivery;
pub(crate) mod encoder;
pub(crate) mod push;
