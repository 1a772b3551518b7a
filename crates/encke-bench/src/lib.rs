//! Load on Bayeux servers: who sends what and when, what arrives of it, and how late.
//!
//! The way of a measurement: a [`scenario`] makes an [`run::Order`]; a [`run`] carries it out with one
//! [`engine::Crowd`] of sessions, or with several in processes of their own; what comes out is a
//! [`report::Report`], which [`report`] writes as text, JSON, CSV or a page.
//!
//! Load is *open*: every message has a planned time and is sent then, whether or not the server keeps up; its latency is
//! counted from the planned time. So a server that stalls is charged for all that waited meanwhile (there is no
//! "coordinated omission").

pub mod engine;
pub mod problem;
pub mod report;
pub mod run;
pub mod scenario;
