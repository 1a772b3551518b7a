//! The certificates of a client's TLS: those that it accepts, and its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use encke_fetch::rustls::ClientConfig;
use encke_fetch::rustls::pki_types::pem::PemObject;
use encke_fetch::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use encke_fetch::rustls::sign::{CertifiedKey, SingleCertAndKey};
use encke_fetch::{AnyCertificate, tls_config};

use crate::error::Error;

/// The certificates that a client accepts: those with a root of the system, and those with a root of the file, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// A file of PEM certificates.
    pub ca_file: Option<PathBuf>,
    /// True: all others, too.
    pub accepts_any: bool,
}

/// The certificate that a client shows to a server that asks for one.
#[derive(Clone, Debug)]
pub(crate) struct TlsIdentity {
    /// A file of PEM certificates: the client's own, then those of authorities that the server may not know.
    pub cert_file: PathBuf,
    /// The file of its private key, in PEM form.
    pub key_file: PathBuf,
}

impl Trust {
    /// The TLS configuration of a client.
    ///
    /// # Errors
    /// [`Error::TlsFile`].
    pub fn config(&self) -> Result<ClientConfig, Error> {
        let ca_file = self.ca_file.as_deref();
        let mut config = tls_config(ca_file).map_err(|error| refused(ca_file.unwrap_or(Path::new("")), error))?;
        if self.accepts_any {
            let verifier = AnyCertificate::verifier(config.crypto_provider());
            config.dangerous().set_certificate_verifier(verifier);
        }
        Ok(config)
    }
}

impl TlsIdentity {
    /// Lets a client show this certificate.
    ///
    /// # Errors
    /// [`Error::TlsFile`] for a file that cannot be read, and for a key that does not belong to the certificate.
    pub fn add_to(&self, config: &mut ClientConfig) -> Result<(), Error> {
        let chain = CertificateDer::pem_file_iter(&self.cert_file).and_then(Iterator::collect);
        let chain = chain.map_err(|error| refused(&self.cert_file, error))?;
        let key = PrivateKeyDer::from_pem_file(&self.key_file).map_err(|error| refused(&self.key_file, error))?;
        let certified = CertifiedKey::from_der(chain, key, config.crypto_provider());
        let certified = certified.map_err(|error| refused(&self.key_file, error))?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(())
    }
}

fn refused(path: &Path, reason: impl ToString) -> Error {
    Error::TlsFile { path: path.into(), reason: reason.to_string() }
}
