//! Tests of histories on an engine in memory, with rings that note what they get.

mod absence;
mod clients;
mod faults;
mod journals;
mod model;
mod moves;
mod rings;

/// The partitions of the model: enough that nodes own different ones.
const PARTITIONS: usize = 2;
