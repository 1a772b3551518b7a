//! Sources on a real server, seen by a real client.

mod command;
mod common;
mod examples;
mod file;
mod mail;
mod mail_server;
mod quotes;
mod restarts;
