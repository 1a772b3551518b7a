//! Subscriptions, and the rules for channels.

pub(crate) mod hub;
pub(crate) mod interest;
pub(crate) mod rules;
