//! Reports, for people and programs.
//!
//! [`Report`] is the data. [`write()`] prints it and writes it as JSON, CSV and a page; [`compare()`] lays several side
//! by side. [`chart`] has the charts, for the page and for documents.

pub mod chart;
mod columns;
pub mod comparison;
pub mod csv;
pub mod html;
pub mod json;
mod model;
pub mod text;
pub mod units;
mod write;

pub use crate::outcome::{Faults, Flow};
pub(crate) use columns::wrapped;
pub use model::{Curve, FORMAT_VERSION, Figure, Latency, Machine, Report, Sample, Server, Setting, Table, Trial};
pub use write::{Destination, Outputs, compare, write};
