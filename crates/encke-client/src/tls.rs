//! The certificates that a client accepts.

use std::path::PathBuf;
use std::sync::Arc;

use encke_fetch::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use encke_fetch::rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use encke_fetch::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use encke_fetch::rustls::{ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use encke_fetch::tls_config;

use crate::error::Error;

/// The certificates that a client accepts: those with a root of the system, and those with a root of the file, if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    pub(crate) ca_file: Option<PathBuf>,
    /// True: all others, too.
    pub(crate) accepts_any: bool,
}

impl Trust {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let refused = |reason: String| Error::CaFile { path: self.ca_file.clone().unwrap_or_default(), reason };
        let mut config = tls_config(self.ca_file.as_deref()).map_err(|error| refused(error.to_string()))?;
        if self.accepts_any {
            let algorithms = config.crypto_provider().signature_verification_algorithms;
            config.dangerous().set_certificate_verifier(Arc::new(Anyone(algorithms)));
        }
        Ok(Arc::new(config))
    }
}

/// Accepts every certificate whose private key the server has.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
