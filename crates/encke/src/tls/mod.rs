//! TLS as the server speaks it: certificates out of files, which are read again when they change, those of clients, and keys for session
//! tickets.

mod acme;
mod certificates;
mod clients;
mod tickets;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use encke_core::{Settings, TlsClient, TlsPair};
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use tokio::runtime::Handle;

use crate::error::SettingsError;
use acme::Challenges;
use certificates::Certificates;
use clients::Verifiers;
pub(crate) use clients::user_of;
pub use tickets::TicketKey;
use tickets::Tickets;

/// The cryptography of TLS.
pub(crate) fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    &PROVIDER
}

/// The settings of TLS that cannot work. Reads the files, if everything else is right.
pub(crate) fn check(settings: &Settings) -> Vec<SettingsError> {
    let Settings { tls_cert, tls_key, tls, dev_tls, tls_client_ca, tls_client_crl, acme, data, .. } = settings;
    let first = tls.first().map_or("", |pair| &pair.cert);
    let without_cert = tls_cert.is_empty();
    let checks = [
        (*dev_tls && !without_cert, "dev_tls", "true", "only without tls_cert"),
        (*dev_tls && !acme.is_empty(), "dev_tls", "true", "only without acme"),
        (data.is_empty() && !acme.is_empty(), "acme", "", "only with data, where the certificate is stored"),
        (
            without_cert && !tls_key.is_empty(),
            "tls_key",
            tls_key,
            "only with tls_cert, the PEM file of its certificate",
        ),
        (
            !without_cert && tls_key.is_empty(),
            "tls_cert",
            tls_cert,
            "only with tls_key, the PEM file of its private key",
        ),
        (
            without_cert && !tls.is_empty(),
            "tls.cert",
            first,
            "only beside tls_cert, the certificate of clients that ask for no name",
        ),
        (
            !settings.has_tls() && !tls_client_ca.is_empty(),
            "tls_client_ca",
            tls_client_ca,
            "only with tls_cert or dev_tls",
        ),
        (
            tls_client_ca.is_empty() && !tls_client_crl.is_empty(),
            "tls_client_crl",
            tls_client_crl,
            "only with tls_client_ca",
        ),
    ];
    let wrong = checks.into_iter().filter(|(is_wrong, ..)| *is_wrong);
    let mut wrong: Vec<_> = wrong.map(|(_, name, value, wanted)| SettingsError::new(name, value, wanted)).collect();
    if wrong.is_empty() {
        wrong.extend(Certificates::read(provider(), settings, Arc::default()).err());
        wrong.extend(Verifiers::read(provider(), settings).err());
    }
    wrong
}

/// TLS of one server.
pub(crate) struct Tls {
    tickets: Arc<Tickets>,
    /// The certificate of `dev_tls`, which is not read again.
    made: Option<Arc<Certificates>>,
    challenges: Arc<Challenges>,
    current: RwLock<Configs>,
    /// The settings whose files are in force, and the state of these files when they were last read.
    files: Mutex<(Settings, Vec<Stamp>)>,
}

/// The configuration for each variant of [`TlsClient`], in their order.
type Configs = [Arc<ServerConfig>; 3];

/// The state of a file: none if it cannot be read.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Tls {
    /// None if the settings have no certificate. Tickets of `earlier` keys are accepted. Changes of the files are seen while the
    /// runtime lives.
    pub(crate) fn open(
        settings: &Settings,
        earlier: Vec<TicketKey>,
        runtime: &Handle,
    ) -> Result<Option<Arc<Tls>>, SettingsError> {
        if !settings.has_tls() {
            return Ok(None);
        }
        let tickets = Arc::new(Tickets::new(earlier));
        let stamps = stamps(settings);
        let made = settings.dev_tls.then(|| Certificates::make(provider(), settings).map(Arc::new)).transpose()?;
        let challenges = Arc::<Challenges>::default();
        let current = RwLock::new(configs(settings, &made, &challenges, &tickets)?);
        let files = Mutex::new((settings.clone(), stamps));
        let tls = Arc::new(Tls { tickets, made, challenges: challenges.clone(), current, files });
        runtime.spawn(watch(tls.clone()));
        if !settings.acme.is_empty() {
            runtime.spawn(acme::run(settings.clone(), challenges));
        }
        Ok(Some(tls))
    }

    /// The configuration for the next connection.
    pub(crate) fn config(&self, client: TlsClient) -> Arc<ServerConfig> {
        self.current.read()[client as usize].clone()
    }

    /// The keys of session tickets.
    pub(crate) fn ticket_keys(&self) -> Vec<TicketKey> {
        self.tickets.keys()
    }

    /// Uses the files of these settings from now on. Connections live on. Returns the settings that need a restart: TLS itself can
    /// neither begin nor end.
    ///
    /// # Errors
    /// A file does not fit. The earlier ones stay in force.
    pub(crate) fn reload(&self, settings: &Settings) -> Result<Option<&'static str>, SettingsError> {
        let mut files = self.files.lock();
        if !settings.has_tls() {
            return Ok(Some("tls_cert"));
        }
        self.read(settings, &mut files.1)?;
        files.0 = settings.clone();
        Ok(None)
    }

    /// Reads the files again if they have changed. The earlier ones stay in force if the new ones do not fit, which is logged once.
    fn look(&self) {
        let mut files = self.files.lock();
        let (settings, stamps_then) = &mut *files;
        if stamps(settings) == *stamps_then {
            return;
        }
        match self.read(settings, stamps_then) {
            Ok(()) => tracing::info!("tls: the certificates have changed, and new connections use them"),
            Err(error) => tracing::error!("{error}; the earlier certificates stay in force"),
        }
    }

    fn read(&self, settings: &Settings, stamps_then: &mut Vec<Stamp>) -> Result<(), SettingsError> {
        // Taken before the files are read: a change meanwhile is seen at the next look.
        *stamps_then = stamps(settings);
        let configs = configs(settings, &self.made, &self.challenges, &self.tickets)?;
        *self.current.write() = configs;
        Ok(())
    }
}

/// Looks for changed files for as long as the runtime lives.
async fn watch(tls: Arc<Tls>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let tls = tls.clone();
        // The runtime ends.
        let _ended = tokio::task::spawn_blocking(move || tls.look()).await;
    }
}

/// Reads the files of the settings. A certificate that was `made` replaces those of files.
fn configs(
    settings: &Settings,
    made: &Option<Arc<Certificates>>,
    challenges: &Arc<Challenges>,
    tickets: &Arc<Tickets>,
) -> Result<Configs, SettingsError> {
    let certificates = match made {
        Some(made) => made.clone(),
        None => Arc::new(Certificates::read(provider(), settings, challenges.clone())?),
    };
    let protocols = protocols(settings);
    let with = |clients| config(certificates.clone(), clients, tickets, &protocols);
    let none = with(None)?;
    let Some(Verifiers { required, optional }) = Verifiers::read(provider(), settings)? else {
        return Ok([none.clone(), none.clone(), none]);
    };
    Ok([with(Some(required))?, with(Some(optional))?, none])
}

/// The protocols that a client may choose from (ALPN).
fn protocols(settings: &Settings) -> Vec<&'static [u8]> {
    let http2 = settings.http2.then_some(&b"h2"[..]);
    let acme = (!settings.acme.is_empty()).then_some(acme::ALPN);
    http2.into_iter().chain([&b"http/1.1"[..]]).chain(acme).collect()
}

/// A configuration. A session with a client's certificate is never resumed: its ticket would outlive a revocation, and a ticket that was
/// given without a certificate would do in place of one.
fn config(
    certificates: Arc<Certificates>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    tickets: &Arc<Tickets>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, SettingsError> {
    let wanted = "possible only with TLS 1.2 or 1.3";
    let failed = |error: rustls::Error| SettingsError::new("tls_cert", error.to_string(), wanted);
    let builder = ServerConfig::builder_with_provider(provider().clone());
    let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
    let mut config = match clients {
        Some(clients) => {
            let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(certificates);
            config.send_tls13_tickets = 0;
            config
        }
        None => {
            let mut config = builder.with_no_client_auth().with_cert_resolver(certificates);
            config.ticketer = tickets.clone();
            config
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Tickets hold the state of sessions.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn stamps(settings: &Settings) -> Vec<Stamp> {
    let stamp = |path: String| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    let files = |TlsPair { cert, key }| [cert, key];
    let of_clients = [settings.tls_client_ca.clone(), settings.tls_client_crl.clone()];
    certificates::pairs(settings).into_iter().flat_map(files).chain(of_clients).map(stamp).collect()
}

/// The time between two looks at the files.
const LOOK: Duration = Duration::from_secs(2);
