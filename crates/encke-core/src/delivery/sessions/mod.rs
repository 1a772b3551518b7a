//! The table of sessions, and the parts of a session.

pub(crate) mod cursors;

pub(crate) mod loss;
mod memory;
pub(crate) mod patterns;
pub(crate) mod replay;

pub(crate) mod session;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod unacked;
pub(crate) mod withdrawn;
