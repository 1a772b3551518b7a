//! Tools that measure Encke's speed and memory, in addition to `encke bench`, which makes the load.
//!
//! - `floor` (program): the least a server can do, a fan-out over epoll without a protocol.
//! - `measured_report` (program): the pages of `make bench-core`, `bench-delivery`, `bench-tls`, `bench-files`, `bench-streams` and `bench-http2`; their
//!   parts are in [`core`], [`delivery`], [`files`], [`tls`] and [`transports`].
//! - `compare_report` (program): the page of `make compare`; its parts are in [`compare`].
//! - `json` (program): times JSON engines at a server's work; its parts are in [`json`].
//! - `growth` (program): measures the core alone at growing sizes, and writes the page of `make bench-growth`; its parts are in [`growth`].
//! - `instructions` (program): small fixed work, counted by callgrind.

pub mod compare;
pub mod core;
pub mod delivery;
pub mod event_loop;
pub mod files;
pub mod growth;
pub mod json;
pub mod lone_shard;
pub mod measured;
pub mod rows;
pub mod tls;
pub mod transports;
