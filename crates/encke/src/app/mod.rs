//! The application: the hooks that a program registers with the builder, and their data.

pub(crate) mod access;
pub(crate) mod authenticate;
pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod channel_hooks;
pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod handlers;
pub(crate) mod hook;
pub(crate) mod hooks;
pub(crate) mod params;
pub(crate) mod passage;
pub(crate) mod patterns;
pub(crate) mod reply;
pub(crate) mod route;
pub(crate) mod running;
pub(crate) mod service;
pub(crate) mod subscribers;
pub(crate) mod template;
