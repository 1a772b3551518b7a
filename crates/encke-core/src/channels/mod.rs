//! Who subscribes to what, and which rule holds for a channel.

pub(crate) mod hub;
pub(crate) mod interest;
pub(crate) mod rules;
