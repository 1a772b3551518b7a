//! Certificates by ACME (RFC 8555): orders them, proves in handshakes of TLS that their names are the server's (TLS-ALPN-01, RFC 8737), and
//! renews them.
//!
//! The folder `acme` of the data directory has the account, and one file with the certificate and its key. Whoever reads certificates out
//! of files sees that this file has changed.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use encke_core::{Settings, TlsPair};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder, OrderStatus,
    RetryPolicy,
};
use journal::replace_file;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::provider;

/// The certificates that prove a name to its authority, by name. They live while a certificate is ordered.
#[derive(Debug, Default)]
pub(super) struct Challenges(Mutex<HashMap<String, Arc<CertifiedKey>>>);

type BoxError = Box<dyn Error + Send + Sync>;

/// The account at an authority, as its file has it.
#[derive(Serialize, Deserialize)]
struct SavedAccount {
    /// The URL of the authority.
    directory: String,
    credentials: AccountCredentials,
}

impl Challenges {
    /// The certificate for an authority that examines a name. None: it is another client.
    pub(super) fn answer(&self, hello: &ClientHello<'_>) -> Option<Option<Arc<CertifiedKey>>> {
        let is_challenge = hello.alpn().is_some_and(|mut names| names.next() == Some(ALPN) && names.next().is_none());
        is_challenge.then(|| self.0.lock().get(hello.server_name()?).cloned())
    }
}

/// The file with the certificate and its key, if there is one.
pub(super) fn pair(settings: &Settings) -> Option<TlsPair> {
    let file = file(settings, CERTIFICATE).to_string_lossy().into_owned();
    (!settings.acme.is_empty() && Path::new(&file).exists()).then(|| TlsPair { cert: file.clone(), key: file })
}

/// Orders certificates for as long as the runtime lives: the first one at once, later ones when two thirds of the time of the last are
/// over.
pub(super) async fn run(settings: Settings, challenges: Arc<Challenges>) {
    let mut pause = PAUSE_MIN;
    loop {
        tokio::time::sleep(due_in(&settings).unwrap_or_default()).await;
        let ordered = order(&settings, &challenges).await;
        challenges.0.lock().clear();
        pause = match ordered {
            Ok(()) => {
                tracing::info!(names = ?settings.acme, "acme: there is a new certificate");
                PAUSE_MIN
            }
            Err(error) => {
                let next = (pause * 2).min(PAUSE_MAX);
                tracing::error!(names = ?settings.acme, next_attempt_s = next.as_secs(), "acme: {error}");
                next
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// The time until the certificate has to be renewed. None if there is none for these names.
fn due_in(settings: &Settings) -> Option<Duration> {
    let certificate = CertificateDer::from_pem_file(file(settings, CERTIFICATE)).ok()?;
    let (_, certificate) = X509Certificate::from_der(&certificate).ok()?;
    let names = &certificate.subject_alternative_name().ok()??.value.general_names;
    let has = |name: &String| names.iter().any(|other| matches!(other, GeneralName::DNSName(other) if other == name));
    let validity = certificate.validity();
    let (begin_s, end_s) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let due_s = u64::try_from(begin_s + (end_s - begin_s) * 2 / 3).unwrap_or_default();
    let left = (UNIX_EPOCH + Duration::from_secs(due_s)).duration_since(SystemTime::now()).unwrap_or_default();
    settings.acme.iter().all(has).then_some(left)
}

/// Orders a certificate, and writes it.
async fn order(settings: &Settings, challenges: &Challenges) -> Result<(), BoxError> {
    fs::create_dir_all(file(settings, ""))?;
    let account = account(settings).await?;
    let names: Vec<Identifier> = settings.acme.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            return Err("the authority does not offer the challenge tls-alpn-01".into());
        };
        let name = challenge.identifier().to_string();
        let certificate = proof(&name, challenge.key_authorization().digest().as_ref())?;
        challenges.0.lock().insert(name, Arc::new(certificate));
        challenge.set_ready().await?;
    }
    let status = order.poll_ready(&RetryPolicy::default()).await?;
    if status != OrderStatus::Ready {
        return Err(format!("the authority has not accepted the names: the order is {status:?}").into());
    }
    let key = KeyPair::generate()?;
    order.finalize_csr(CertificateParams::new(settings.acme.clone())?.serialize_request(&key)?.der()).await?;
    let certificates = order.poll_certificate(&RetryPolicy::default()).await?;
    Ok(write(&file(settings, CERTIFICATE), &(certificates + &key.serialize_pem()))?)
}

/// The account at the authority: that of the file, or a new one.
async fn account(settings: &Settings) -> Result<Account, BoxError> {
    let builder = || match settings.acme_ca.as_str() {
        "" => Account::builder(),
        ca => Account::builder_with_root(ca),
    };
    let (directory, file) = (&settings.acme_directory, file(settings, "account.json"));
    let saved = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<SavedAccount>(&text).ok());
    if let Some(saved) = saved.filter(|saved| saved.directory == *directory) {
        return Ok(builder()?.from_credentials(saved.credentials).await?);
    }
    let email = format!("mailto:{}", settings.acme_email);
    let contact = if settings.acme_email.is_empty() { &[][..] } else { &[email.as_str()] };
    let new = NewAccount { contact, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder()?.create(&new, directory.clone(), None).await?;
    write(&file, &serde_json::to_string(&SavedAccount { directory: directory.clone(), credentials })?)?;
    Ok(account)
}

/// A certificate that proves a name (RFC 8737 §3).
fn proof(name: &str, digest: &[u8]) -> Result<CertifiedKey, BoxError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    // A certificate with this extension, which is critical, is none for the check that key and certificate fit.
    Ok(CertifiedKey::new(vec![certificate], provider().key_provider.load_private_key(key)?))
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    replace_file(file, |file| file.write_all(text.as_bytes()))
}

fn file(settings: &Settings, name: &str) -> PathBuf {
    Path::new(&settings.data).join("acme").join(name)
}

/// The protocol by which an authority examines a name (RFC 8737 §4).
pub(super) const ALPN: &[u8] = b"acme-tls/1";
const CERTIFICATE: &str = "certificate.pem";
/// The pause after an order; it doubles with each failure. Authorities limit the number of failures in an hour.
const PAUSE_MIN: Duration = Duration::from_secs(15);
const PAUSE_MAX: Duration = Duration::from_secs(6 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_due_after_two_thirds_of_its_time_or_for_other_names() {
        let folder = std::env::temp_dir().join(format!("encke-acme-{}", std::process::id()));
        fs::create_dir_all(folder.join("acme")).expect("a folder");
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let data = folder.display().to_string();
        let settings = Settings { data, acme: names(&["a.example", "b.example"]), ..Settings::default() };
        assert_eq!((due_in(&settings), pair(&settings)), (None, None), "there is none");
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 60 * 60);
        let write_of = |begin: SystemTime, end: SystemTime| {
            let mut params = CertificateParams::new(settings.acme.clone()).expect("names");
            (params.not_before, params.not_after) = (begin.into(), end.into());
            let certificate = params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate");
            write(&file(&settings, CERTIFICATE), &certificate.pem()).expect("written");
        };
        write_of(now - day, now + 89 * day);
        let left = due_in(&settings).expect("a certificate");
        assert!((58 * day..=59 * day).contains(&left), "{left:?}");
        assert!(pair(&settings).is_some());
        let more = Settings { acme: names(&["a.example", "c.example"]), ..settings.clone() };
        assert_eq!(due_in(&more), None, "for another name");
        write_of(now - 80 * day, now + 10 * day);
        assert_eq!(due_in(&settings), Some(Duration::ZERO));
        fs::remove_dir_all(folder).expect("it was there");
    }
}
