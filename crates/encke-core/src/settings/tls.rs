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

/// The demand for certificates of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsClient {
    /// A client without a good one is refused.
    #[default]
    Required,
    /// A client may have none. A bad one is refused.
    Optional,
    /// They are not asked for one.
    None,
}

/// A name in a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateName {
    /// The common name of the subject.
    #[default]
    CommonName,
    /// A DNS name of the subject's alternative names.
    Dns,
    /// A URI of the subject's alternative names, such as an id of SPIFFE.
    Uri,
}
