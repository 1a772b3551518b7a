//! The files of TLS.

use serde::{Deserialize, Serialize};

/// A certificate for further names of the server, written as `TlsPair { cert: …, ..TlsPair::default() }`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsPair {
    /// A PEM file with the certificate and those that lead to its root.
    pub cert: String,
    /// A PEM file with its private key.
    pub key: String,
}
