//! Backends, servers and clients of the tests.

mod backend;
mod world;

pub use backend::{Answer, Backend, Gate};
pub use world::{World, soon, webhook};

/// The secret that all tests share.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
