//! The certificates that a client accepts.

use std::path::PathBuf;

use encke_fetch::rustls::ClientConfig;
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

impl Trust {
    /// The TLS configuration of a client.
    ///
    /// # Errors
    /// [`Error::CaFile`].
    pub fn config(&self) -> Result<ClientConfig, Error> {
        let refused = |reason: String| Error::CaFile { path: self.ca_file.clone().unwrap_or_default(), reason };
        let mut config = tls_config(self.ca_file.as_deref()).map_err(|error| refused(error.to_string()))?;
        if self.accepts_any {
            let verifier = AnyCertificate::verifier(config.crypto_provider());
            config.dangerous().set_certificate_verifier(verifier);
        }
        Ok(config)
    }
}
