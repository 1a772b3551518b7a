//! The certificates of clients: who has signed them, which are revoked, and the user that one names.

use std::sync::Arc;

use encke_core::{CertificateName, Settings};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::certificates::wanted_of;
use crate::error::SettingsError;

/// Checks the certificates of clients.
pub(super) struct Verifiers {
    /// Each client needs one.
    pub(super) required: Arc<dyn ClientCertVerifier>,
    /// A client may have none.
    pub(super) optional: Arc<dyn ClientCertVerifier>,
}

impl Verifiers {
    /// Reads the files that the settings name. None if clients are asked for no certificate.
    pub(super) fn read(
        provider: &Arc<CryptoProvider>,
        settings: &Settings,
    ) -> Result<Option<Verifiers>, SettingsError> {
        let Settings { tls_client_ca: ca, tls_client_crl: crl, .. } = settings;
        if ca.is_empty() {
            return Ok(None);
        }
        let of_ca = |wanted| SettingsError::new("tls_client_ca", ca, wanted);
        let of_crl = |wanted| SettingsError::new("tls_client_crl", crl, wanted);
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(ca).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for certificate in certificates.map_err(|error| of_ca(wanted_of(&error, NO_ROOTS)))? {
            roots.add(certificate).map_err(|_| of_ca(NO_ROOTS))?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        if !crl.is_empty() {
            let lists = CertificateRevocationListDer::pem_file_iter(crl);
            let lists = lists.and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let lists = lists.map_err(|error| of_crl(wanted_of(&error, NO_LISTS)))?;
            if lists.is_empty() {
                return Err(of_crl(NO_LISTS));
            }
            builder = builder.with_crls(lists);
        }
        let failed = |error| match error {
            VerifierBuilderError::InvalidCrl(_) => of_crl(NO_LISTS),
            _ => of_ca(NO_ROOTS),
        };
        let required = builder.clone().build().map_err(failed)?;
        let optional = builder.allow_unauthenticated().build().map_err(failed)?;
        Ok(Some(Verifiers { required, optional }))
    }
}

/// The user that a certificate names, if it has exactly one name of this kind, without control characters.
pub(crate) fn user_of(certificate: &CertificateDer<'_>, kind: CertificateName) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names: Vec<&str> = match kind {
        CertificateName::CommonName => {
            certificate.subject().iter_common_name().map(|name| name.as_str().ok()).collect::<Option<_>>()?
        }
        CertificateName::Dns | CertificateName::Uri => {
            let names = &certificate.subject_alternative_name().ok()??.value.general_names;
            let of_kind = names.iter().filter_map(|name| match *name {
                GeneralName::DNSName(name) if kind == CertificateName::Dns => Some(name),
                GeneralName::URI(name) if kind == CertificateName::Uri => Some(name),
                _ => None,
            });
            of_kind.collect()
        }
    };
    match names[..] {
        [name] if !name.is_empty() && !name.contains(char::is_control) => Some(name.into()),
        _ => None,
    }
}

const NO_ROOTS: &str = "a PEM file with the root certificates of clients";
const NO_LISTS: &str = "a PEM file with lists of revoked certificates (X509 CRL)";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common_names: &[&str], others: &[SanType]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        common_names.iter().for_each(|name| params.distinguished_name.push(DnType::CommonName, *name));
        params.subject_alt_names = others.to_vec();
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
    }

    fn dns(name: &str) -> SanType {
        SanType::DnsName(name.try_into().expect("a name"))
    }

    #[test]
    fn a_user_is_the_only_name_of_its_kind() {
        use CertificateName::{CommonName, Dns, Uri};
        let uri = SanType::URI("spiffe://example.org/alice".try_into().expect("a URI"));
        let one = certificate(&["alice"], &[dns("a.example.org"), uri]);
        let users = [CommonName, Dns, Uri].map(|kind| user_of(&one, kind));
        let expected = ["alice", "a.example.org", "spiffe://example.org/alice"];
        assert_eq!(users.map(|user| user.expect("a user")), expected);
        let two = certificate(&[], &[dns("a.example.org"), dns("b.example.org")]);
        assert_eq!([CommonName, Dns, Uri].map(|kind| user_of(&two, kind)), [None, None, None]);
        for strange in ["", "a\nb", "a\0"] {
            assert_eq!(user_of(&certificate(&[strange], &[]), CommonName), None, "{strange:?}");
        }
        assert_eq!(user_of(&CertificateDer::from(b"none".to_vec()), CommonName), None);
    }
}
