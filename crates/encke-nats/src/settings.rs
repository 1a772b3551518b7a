//! The settings about NATS in the section `[cluster]` of the configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use encke::{Declared as _, Secret};
use serde::Deserialize;

encke::settings! {
    /// The NATS servers, and how to connect to them.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct NatsSettings;

    "The connection to NATS" {
        /// The URLs of the NATS servers, such as `nats://10.0.0.1:4222`, or `tls://` for a connection that must be encrypted. The node connects
        /// to one of them, and to another one if that fails.
        servers: Vec<String> = Vec::new();
        /// The name of the connection, as NATS shows it. It has no other effect. Empty: `encke`.
        node: String = String::new();
        /// A file of certificates (PEM) that are trusted in place of those of the system.
        ca_file: Option<PathBuf> = None;
        /// A file with the certificate of this node (PEM), if NATS asks for one.
        cert_file: Option<PathBuf> = None;
        /// A file with its private key (PEM).
        key_file: Option<PathBuf> = None;
        /// The user.
        user: Option<String> = None;
        /// The user's password. Better in the environment.
        password: Option<Secret> = None;
        /// The name of the environment variable with the password.
        password_env: Option<String> = None;
        /// A token.
        token: Option<Secret> = None;
        /// The name of the environment variable with a token.
        token_env: Option<String> = None;
        /// A file with the seed of an NKey.
        nkey_file: Option<PathBuf> = None;
        /// A file of credentials: a JWT with its NKey.
        credentials_file: Option<PathBuf> = None;
        /// Longest time to connect to one server, in milliseconds.
        connect_timeout_ms: u64 = 5_000, positive();
        /// Time between two signs of life on the connection, in milliseconds. After two without an answer it is given up.
        ping_interval_ms: u64 = 10_000, positive();
        /// Longest pause between two attempts to connect, in milliseconds.
        reconnect_delay_max_ms: u64 = 1_000, positive();
        /// Copies of the buckets and of the journal, each on another NATS server: 1, 3 or 5. Set 3 with three NATS servers: with 1 the loss of
        /// one server stops publications on channels with a history. It counts when a bucket or the journal is made, by the first node.
        replicas: usize = 1, at_least(1, "1, 3 or 5"), at_most(5, "1, 3 or 5");
        /// Bytes on the disks of NATS of what is published on channels with a history, if `history_commit` is `replicated`: the oldest goes
        /// first. 0: no limit.
        journal_bytes_max: u64 = 1024 * 1024 * 1024;
        /// Time after which NATS drops it, in milliseconds. 0: it stays.
        journal_retention_ms: u64 = 7 * 24 * 60 * 60 * 1_000;
    }
}

/// A setting about NATS that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster.{name} = {value}: {wanted}")]
#[non_exhaustive]
pub struct NatsSettingsError {
    /// The name of the setting.
    pub name: &'static str,
    /// Its value; never a secret.
    pub value: String,
    /// The reason, or what would be right.
    pub wanted: String,
}

impl NatsSettings {
    /// Checks the settings, and reads the files and variables that they name.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), NatsSettingsError> {
        self.wrong().into_iter().next().map_or(Ok(()), Err)
    }

    /// Checks the settings, and reads the files and variables that they name. Returns the first one of the servers that cannot work,
    /// and the first other setting.
    pub fn wrong(&self) -> Vec<NatsSettingsError> {
        self.addresses().err().into_iter().chain(self.options().err()).collect()
    }

    /// The servers.
    pub(crate) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsSettingsError> {
        let of = |server: &String| {
            let address = server.parse::<ServerAddr>().ok();
            let has_secret = address.as_ref().is_some_and(|address| address.has_user_pass());
            // Its value is not shown, because it is a secret.
            let shown = if has_secret { "***" } else { server.as_str() };
            let fail = |wanted| fail("servers", &format!("{shown:?}"), wanted);
            match address {
                _ if has_secret => fail("a URL without user and password, which have their own settings"),
                Some(address) if matches!(address.scheme(), "nats" | "tls") => Ok(address),
                _ => fail("a URL such as nats://127.0.0.1:4222"),
            }
        };
        if self.servers.is_empty() {
            return fail("servers", "[]", "at least one URL such as nats://127.0.0.1:4222");
        }
        self.servers.iter().map(of).collect()
    }

    /// The options of the connection.
    pub(crate) fn options(&self) -> Result<ConnectOptions, NatsSettingsError> {
        if let Some((setting, value, wanted)) = self.out_of_range().first().copied() {
            return fail(setting.name, &value.to_string(), wanted);
        }
        if self.replicas.is_multiple_of(2) {
            // With two or four copies the loss of half of them stops the writes, as with one fewer.
            return fail("replicas", &self.replicas.to_string(), "1, 3 or 5");
        }
        let delay_max_ms = self.reconnect_delay_max_ms;
        let name = if self.node.is_empty() { "encke" } else { &self.node };
        let options = ConnectOptions::new()
            .name(name)
            .no_echo()
            .retry_on_initial_connect()
            .max_reconnects(None)
            .connection_timeout(Duration::from_millis(self.connect_timeout_ms))
            .ping_interval(Duration::from_millis(self.ping_interval_ms))
            .reconnect_delay_callback(move |attempts| reconnect_delay(attempts, delay_max_ms));
        self.authenticated(self.encrypted(options)?)
    }

    fn encrypted(&self, mut options: ConnectOptions) -> Result<ConnectOptions, NatsSettingsError> {
        let files = [("ca_file", &self.ca_file), ("cert_file", &self.cert_file), ("key_file", &self.key_file)];
        for (name, path) in files.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
            read(name, path)?;
        }
        if let Some(ca_file) = &self.ca_file {
            options = options.add_root_certificates(ca_file.clone()).require_tls(true);
        }
        match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Ok(options.add_client_certificate(cert.clone(), key.clone()).require_tls(true)),
            (Some(cert), None) => fail("cert_file", &cert.display().to_string(), "key_file has to be set, too"),
            (None, Some(key)) => fail("key_file", &key.display().to_string(), "cert_file has to be set, too"),
            (None, None) => Ok(options),
        }
    }

    fn authenticated(&self, options: ConnectOptions) -> Result<ConnectOptions, NatsSettingsError> {
        let password = secret("password_env", self.password.as_ref(), self.password_env.as_ref())?;
        let token = secret("token_env", self.token.as_ref(), self.token_env.as_ref())?;
        let ways = [self.user.is_some(), token.is_some(), self.nkey_file.is_some(), self.credentials_file.is_some()];
        if ways.into_iter().filter(|is_set| *is_set).count() > 1 {
            return fail("user", "…", "only one of user, token, nkey_file and credentials_file may be set");
        }
        if let Some(user) = &self.user {
            let Some(password) = password else {
                return fail("user", user, "password or password_env has to be set, too");
            };
            return Ok(options.user_and_password(user.clone(), password.reveal().into()));
        }
        if let Some(token) = token {
            return Ok(options.token(token.reveal().into()));
        }
        if let Some(path) = &self.nkey_file {
            return Ok(options.nkey(read("nkey_file", path)?.trim().into()));
        }
        if let Some(path) = &self.credentials_file {
            let text = read("credentials_file", path)?;
            let invalid = || fail("credentials_file", &path.display().to_string(), "a file with a JWT and an NKey");
            return options.credentials(&text).or_else(|_| invalid());
        }
        Ok(options)
    }
}

/// A secret from its setting or from a variable.
fn secret(
    name: &'static str,
    value: Option<&Secret>,
    variable: Option<&String>,
) -> Result<Option<Secret>, NatsSettingsError> {
    match (value, variable) {
        (Some(_), Some(variable)) => fail(name, variable, "the secret is set, too: remove one of them"),
        (None, Some(variable)) => match std::env::var(variable) {
            Ok(text) if !text.is_empty() => Ok(Some(text.into())),
            _ => fail(name, variable, "an environment variable that is set"),
        },
        (value, None) => Ok(value.cloned()),
    }
}

fn read(name: &'static str, path: &Path) -> Result<String, NatsSettingsError> {
    std::fs::read_to_string(path).or_else(|error| fail(name, &path.display().to_string(), &error.to_string()))
}

fn fail<T>(name: &'static str, value: &str, wanted: &str) -> Result<T, NatsSettingsError> {
    Err(NatsSettingsError { name, value: value.into(), wanted: wanted.into() })
}

/// The pause before an attempt to connect: it doubles, and differs between the nodes, so that they do not come all at once.
fn reconnect_delay(attempts: usize, delay_max_ms: u64) -> Duration {
    let doubled = RECONNECT_DELAY_MS.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let longest = doubled.min(delay_max_ms);
    Duration::from_millis(fastrand::u64(longest / 2..=longest))
}

/// The pause before the first attempt to connect again, in milliseconds.
const RECONNECT_DELAY_MS: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut NatsSettings)) -> String {
        let mut settings = NatsSettings { servers: vec!["nats://127.0.0.1:4222".into()], ..NatsSettings::default() };
        change(&mut settings);
        settings.check().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn settings_that_cannot_work_are_refused_by_name_and_value() {
        assert_eq!(with(|_| {}), "");
        assert!(with(|it| it.servers.clear()).starts_with("cluster.servers = []: at least one URL"));
        assert!(
            with(|it| it.servers = vec!["http://a".into()]).starts_with("cluster.servers = \"http://a\": a URL such")
        );
        let secret = with(|it| it.servers = vec!["nats://user:hunter2@a".into()]);
        assert!(secret.starts_with("cluster.servers = \"***\": a URL without user") && !secret.contains("hunter2"));
        assert!(with(|it| it.user = Some("ann".into())).contains("password"));
        assert!(with(|it| it.cert_file = Some("/dev/null".into())).contains("key_file"));
        assert!(with(|it| it.ca_file = Some("/no/such/file".into())).starts_with("cluster.ca_file = /no/such/file: "));
        assert!(with(|it| it.credentials_file = Some("/dev/null".into())).contains("a JWT"));
        assert!(with(|it| it.token_env = Some("ENCKE_NO_SUCH_VARIABLE".into())).contains("that is set"));
        assert_eq!([1, 3, 5].map(|replicas| with(|it| it.replicas = replicas)), ["", "", ""]);
        for replicas in [0, 2, 4, 6] {
            let refused = with(|it| it.replicas = replicas);
            assert_eq!(refused, format!("cluster.replicas = {replicas}: 1, 3 or 5"));
        }
        assert!(with(|it| it.ping_interval_ms = 0).starts_with("cluster.ping_interval_ms = 0: "));
        let both = |it: &mut NatsSettings| (it.token, it.nkey_file) = (Some("a".into()), Some("/dev/null".into()));
        assert!(with(both).contains("only one of"));
    }

    #[test]
    fn pauses_grow_up_to_their_limit() {
        for attempts in [0, 1, 5, 100, usize::MAX] {
            assert!(reconnect_delay(attempts, 1_000) <= Duration::from_secs(1));
        }
        assert!(reconnect_delay(100, 1_000) >= Duration::from_millis(500));
    }
}
