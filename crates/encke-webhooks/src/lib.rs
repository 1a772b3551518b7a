//! The application of an Encke server in another process, in any language: it takes part by HTTP.
//!
//! Each `[[webhooks]]` section of a configuration is a backend with its URL, its events and its channels ([`WebhookSettings`]). An event is
//! a signed `POST` with a JSON body; the response is the decision or the answer. `docs/webhooks.md` describes both.
//!
//! | module | content |
//! | --- | --- |
//! | `hooks` | asks the backends that want an event |
//! | `backend` | the requests to a backend, and what becomes of their responses |
//! | `queue`, `owner`, `breaker` | which event may be sent when, and whose share it takes, without I/O and clock |
//! | `event`, `answer` | the two JSON formats |
//! | [`signature`] | Standard Webhooks |

mod answer;
mod backend;
mod breaker;
mod counters;
mod event;
mod hooks;
mod list;
mod owner;
mod perform;
mod queue;
#[cfg(test)]
mod schema_tests;
mod settings;
pub mod signature;
mod webhooks;

pub use settings::{Decide, EventKind, Notify, WebhookError, WebhookSettings, WhenDown};
pub use webhooks::{StartError, Webhooks};

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
