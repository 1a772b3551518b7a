//! Compares JSON engines for the interface between text and messages.
//!
//! Two steps of a publication are timed: *parse* the bytes of a batch until channel, session and id are known, and
//! *generate* the messages for subscribers. "CometD JSON library pluggability" (2011) asked the same question;
//! iterations are printed as there.
//!
//! - [`shapes`]: the batches;
//! - [`engine`]: the work of an engine, [`engines`]: the engines;
//! - [`check`]: agreement, unchanged data, refused input;
//! - [`measure`]: iterations in turns; [`page`]: the figures and the conclusion.

pub mod check;
pub mod engine;
pub mod engines;
pub mod measure;
pub mod page;
pub mod shapes;
