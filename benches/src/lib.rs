//! What Encke's speed and memory are measured with, beside `encke bench`, which makes the load.
//!
//! - `floor` (program): the least a server can do, a fan-out over epoll without a protocol.
//! - `measured_report` (program): the pages of `make bench-core` and `make bench-delivery`; their parts are in [`core`] and [`delivery`].
//! - `compare_report` (program): the page of `make compare`; its parts are in [`compare`].
//! - `json` (program): times JSON engines at what a server does with messages; its parts are in [`json`].
//! - `instructions` (program): small fixed work, to be counted by callgrind.

pub mod compare;
pub mod core;
pub mod delivery;
pub mod json;
pub mod measured;
