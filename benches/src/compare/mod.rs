//! The page of `make compare`: Encke beside CometD, Faye and Bun, from the reports of `encke bench`.
//!
//! - [`runs`]: the reports and notes that `scripts/compare.sh` collects;
//! - [`cases`]: the measured cases, their figures and demands;
//! - [`charts`]: the images; [`page`]: the text.

pub mod cases;
pub mod charts;
pub mod page;
pub mod runs;
