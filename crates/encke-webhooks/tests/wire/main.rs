//! Webhooks over real sockets: a server, its clients, and backends that behave well or badly.
//!
//! `docs/contributing/bad-input.md` lists the tests of bad backends.

mod common;
mod decisions;
mod delivery;
mod failures;
