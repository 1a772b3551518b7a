//! HTTP requests to other servers, each of which ends within limits.
//!
//! A [`Fetcher`] keeps its connections and counts them; clones share them. [`Limits`] has all limits with their defaults. It needs a tokio
//! runtime with time and I/O; its connections live on the runtime that made the first request to a host.
//!
//! Only `GET` and `HEAD` follow redirects. The redirect of another method is returned as the response that it is.

mod connector;
mod error;
mod fetcher;
mod hosts;
mod limits;
mod redirect;
mod secret_url;
mod tls;

pub use error::FetchError;
pub use fetcher::{Fetcher, HasRoom, Upgrade};
pub use limits::Limits;
pub use rustls;
pub use secret_url::SecretUrl;
pub use tls::{AnyCertificate, tls_config};

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
