//! What Encke's speed and memory are measured with.
//!
//! - `floor` (program): the least a server can do, a fan-out over epoll without a protocol.
//! - `load` (program): opens sessions, publishes at planned times, checks and times what arrives.
//! - `report` (program): turns the result lines of many runs into a table and a chart.
//! - `compare_report` (program): the page of `make compare`; its parts are in [`compare`].
//! - `json` (program): times JSON engines at what a server does with messages; its parts are in [`json`].
//! - `instructions` (program): small fixed work, to be counted by callgrind.
//!
//! The modules here are the load's parts. One thread drives everything: [`load::Load`] owns the sockets, a
//! [`load::Client`] is what one socket does ([`session::Session`] over WebSocket, [`polling::Poll`] over
//! long-polling), [`reader::Reader`] counts and times deliveries, and the modes ([`fanout`], [`open`], [`idle`],
//! [`ceiling`]) say what is opened, sent and reported.

pub mod ceiling;
pub mod compare;
pub mod dialect;
pub mod fanout;
pub mod idle;
pub mod json;
pub mod load;
pub mod machine;
pub mod open;
pub mod polling;
pub mod problem;
pub mod reader;
pub mod report;
pub mod session;
pub mod stamp;
