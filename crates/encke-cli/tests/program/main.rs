//! The program from a user's view.

mod api_keys;
mod command_line;
mod commands;
mod common;
mod configurations;
mod demo;
#[path = "../log/mod.rs"]
mod log;
mod revocations;
mod secrets;
mod small_clients;
mod sources;
mod tls;
mod token;
mod webhooks;
