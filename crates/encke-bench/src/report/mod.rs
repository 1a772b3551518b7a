//! What came of a run, and how people and programs read it.

mod model;

pub use model::{
    Curve, Faults, Figure, Flow, Latency, Machine, Report, Sample, Server, Setting, Table, Trial, FORMAT_VERSION,
};
