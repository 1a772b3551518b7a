//! Does another JSON engine earn its place behind the seam between text and messages?
//!
//! What a server does with a publication is timed: *parse* the bytes of a batch until channel, session and id are known,
//! and *generate* what subscribers get. It is the question of "CometD JSON library pluggability" (2011), and the
//! iterations are printed as there.
//!
//! - [`shapes`]: the batches;
//! - [`engine`]: what each engine has to do, [`engines`]: the engines;
//! - [`check`]: whether they do the same, what comes through unchanged, what is refused;
//! - [`measure`]: iterations in turns; [`page`]: the figures and what follows from them.

pub mod check;
pub mod engine;
pub mod engines;
pub mod measure;
pub mod page;
pub mod shapes;
