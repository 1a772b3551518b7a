//! The TLS side of connections: ring, and the roots of trust of the system.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::FetchError;

/// The TLS configuration of a client that trusts the roots of the system and those of an extra file of PEM certificates. TLS 1.2 and 1.3.
///
/// # Errors
/// [`FetchError::CaFile`].
pub fn tls_config(ca_file: Option<&Path>) -> Result<ClientConfig, FetchError> {
    let mut roots = RootCertStore::empty();
    // Certificates of the system that cannot be read are left out. Without any, every connection fails and says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let refused = |reason: String| FetchError::CaFile { path: path.into(), reason };
        let text = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(&text) {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(refused("no certificate in PEM form".into()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // Fails only for a provider without cipher suites.
    let builder = versions.map_err(|error| FetchError::Connect(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
