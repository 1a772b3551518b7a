//! The certificates of the server, out of their files.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use encke_core::{Settings, TlsPair};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};
use sha2::{Digest, Sha256};

use super::acme::{self, Challenges};
use crate::error::SettingsError;

/// The certificates of the server, each with its private key. The first one is for clients that ask for no name, or for another one.
#[derive(Debug)]
pub(super) struct Certificates {
    pairs: Vec<Arc<CertifiedKey>>,
    challenges: Arc<Challenges>,
}

impl Certificates {
    /// Reads the files that the settings name. Authorities that examine a name get an answer of `challenges`.
    pub(super) fn read(
        provider: &CryptoProvider,
        settings: &Settings,
        challenges: Arc<Challenges>,
    ) -> Result<Certificates, SettingsError> {
        let pairs = pairs(settings).iter().map(|pair| read_pair(provider, pair)).collect::<Result<_, _>>()?;
        Ok(Certificates { pairs, challenges })
    }

    /// Makes one for loopback and the addresses of the settings, signed by itself, and logs its fingerprint.
    pub(super) fn make(provider: &CryptoProvider, settings: &Settings) -> Result<Certificates, SettingsError> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let others = |ip: &IpAddr| !ip.is_unspecified() && !ip.is_loopback();
        names.extend(settings.addresses().map(|address| address.ip()).filter(others).map(|ip| ip.to_string()));
        names.extend(settings.allowed_hosts.iter().map(|host| host.trim_matches(['[', ']']).to_owned()));
        let failed = |error: &dyn fmt::Display| {
            let (name, wanted) = ("dev_tls", "possible only if a certificate can be made");
            SettingsError::new(name, error.to_string(), wanted)
        };
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| failed(&error))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let fingerprint = fingerprint(made.cert.der());
        let pair = CertifiedKey::from_der(vec![made.cert.der().clone()], key, provider);
        let pair = pair.map_err(|error| failed(&error))?;
        tracing::warn!(fingerprint, "dev_tls: this certificate is signed by itself; its SHA-256 fingerprint");
        Ok(Certificates { pairs: vec![Arc::new(pair)], challenges: Arc::default() })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(answer) = self.challenges.answer(&hello) {
            return answer;
        }
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_for = |pair: &&Arc<CertifiedKey>, name: &ServerName<'_>| {
            let certificate = pair.end_entity_cert().and_then(ParsedCertificate::try_from);
            certificate.is_ok_and(|certificate| verify_server_name(&certificate, name).is_ok())
        };
        let named = name.and_then(|name| self.pairs.iter().find(|pair| is_for(pair, &name)));
        named.or(self.pairs.first()).cloned()
    }
}

/// The files of all certificates, the default one first.
pub(super) fn pairs(settings: &Settings) -> Vec<TlsPair> {
    let first = TlsPair { cert: settings.tls_cert.clone(), key: settings.tls_key.clone() };
    let has_first = !first.cert.is_empty();
    let first = has_first.then_some(first).into_iter().chain(acme::pair(settings));
    first.chain(settings.tls.iter().cloned()).collect()
}

fn read_pair(provider: &CryptoProvider, pair: &TlsPair) -> Result<Arc<CertifiedKey>, SettingsError> {
    let of_cert = |wanted| SettingsError::new("tls_cert", &pair.cert, wanted);
    let of_key = |wanted| SettingsError::new("tls_key", &pair.key, wanted);
    let certificates = CertificateDer::pem_file_iter(&pair.cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| of_cert(wanted_of(&error, NO_CERTIFICATE)))?;
    let Some(first) = certificates.first() else { return Err(of_cert(NO_CERTIFICATE)) };
    ParsedCertificate::try_from(first).map_err(|_| of_cert(NO_CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(&pair.key).map_err(|error| of_key(wanted_of(&error, NO_KEY)))?;
    let certified = CertifiedKey::from_der(certificates, key, provider).map_err(|error| match error {
        Error::InconsistentKeys(_) => of_key("the private key of the first certificate in tls_cert"),
        _ => of_key(NO_KEY),
    })?;
    if let Some(problem) = problem_of_dates(provider, &certified, UnixTime::now()) {
        tracing::warn!(file = pair.cert, "tls: the certificate: {problem}");
    }
    Ok(Arc::new(certified))
}

/// The description of a PEM file that fits: of a readable one, if this one cannot be read.
pub(super) fn wanted_of(error: &pem::Error, wanted: &'static str) -> &'static str {
    if matches!(error, pem::Error::Io(_)) { "a file that is there and can be read" } else { wanted }
}

/// The reason why clients do not accept a certificate today, or will not soon. None if there is none in its dates.
fn problem_of_dates(provider: &CryptoProvider, certified: &CertifiedKey, now: UnixTime) -> Option<&'static str> {
    let certificate = ParsedCertificate::try_from(certified.end_entity_cert().ok()?).ok()?;
    let algorithms = provider.signature_verification_algorithms.all;
    // Dates are checked before the issuer, so no root is needed.
    let at = |time| {
        let roots = RootCertStore::empty();
        match verify_server_cert_signed_by_trust_anchor(&certificate, &roots, &[], time, algorithms) {
            Err(Error::InvalidCertificate(error)) => Some(error),
            _ => None,
        }
    };
    let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + SOON_S));
    match (at(now), at(soon)) {
        (Some(CertificateError::ExpiredContext { .. }), _) => Some("it has expired, and clients refuse it"),
        (Some(CertificateError::NotValidYetContext { .. }), _) => Some("it is not valid yet, and clients refuse it"),
        (_, Some(CertificateError::ExpiredContext { .. })) => Some("it expires within a week"),
        _ => None,
    }
}

/// The SHA-256 fingerprint of a certificate, as browsers and openssl show it.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let bytes: Vec<String> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

const NO_CERTIFICATE: &str = "a PEM file with the certificate of the server first";
const NO_KEY: &str = "a PEM file with a private key: ECDSA, Ed25519 or RSA, without a password";
/// A week, in seconds.
const SOON_S: u64 = 7 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_warned_about_from_a_week_before_its_end() {
        let provider = super::super::provider();
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec!["example.com".to_owned()]).expect("names");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2025, 1, 1), rcgen::date_time_ymd(2026, 1, 1));
        let certificate = params.self_signed(&key).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let certified = CertifiedKey::from_der(vec![certificate.der().clone()], key, provider).expect("a pair");
        let at = |days: u64| {
            // Days since 2025 began.
            let now = UnixTime::since_unix_epoch(Duration::from_secs((20_089 + days) * 24 * 60 * 60));
            problem_of_dates(provider, &certified, now)
        };
        assert_eq!((at(1), at(350)), (None, None));
        assert_eq!(at(360), Some("it expires within a week"));
        assert_eq!(at(366), Some("it has expired, and clients refuse it"));
        let before = problem_of_dates(provider, &certified, UnixTime::since_unix_epoch(Duration::ZERO));
        assert_eq!(before, Some("it is not valid yet, and clients refuse it"));
    }

    #[test]
    fn a_fingerprint_is_written_as_openssl_does() {
        let fingerprint = fingerprint(&CertificateDer::from(b"abc".to_vec()));
        assert!(fingerprint.starts_with("BA:78:16:BF:") && fingerprint.len() == 95, "{fingerprint}");
    }
}
