//! The TLS side of connections: ring, and the certificates that are accepted.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

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
    let mut provider = rustls::crypto::ring::default_provider();
    // As browsers: the handshake of the other suites takes a hash for which processors have no instructions.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let versions = ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    // Fails only for a provider without cipher suites.
    let builder = versions.map_err(|error| FetchError::Connect(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts every certificate whose private key the server has.
#[derive(Debug)]
pub struct AnyCertificate(WebPkiSupportedAlgorithms);

impl AnyCertificate {
    /// A verifier for clients with this cryptography.
    pub fn verifier(provider: &CryptoProvider) -> Arc<dyn ServerCertVerifier> {
        Arc::new(AnyCertificate(provider.signature_verification_algorithms))
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
