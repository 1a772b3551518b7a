//! The server that a command speaks to: from flags, the environment or a context.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use encke::Settings;
use encke_client::{Client, ClientBuilder, Extension, Outgoing, Transport};
use serde_json::{Map, Value};

use crate::config::Sources;
use crate::talk::Failure;
use crate::talk::context::{Context, Contexts};

/// The options of all commands that speak to a server.
#[derive(Args)]
pub(crate) struct Server {
    /// A stored server: see encke context [env: ENCKE_CONTEXT].
    #[arg(long, value_name = "NAME", env = "ENCKE_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// The server, http://, https://, ws:// or wss://; /cometd where the URL has no path [default: http://127.0.0.1:8080] [env: ENCKE_URL].
    #[arg(long, value_name = "url", env = "ENCKE_URL", hide_env = true)]
    url: Option<String>,
    /// The server on this machine that has this configuration: its address is that of `listen`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["context", "url"])]
    config: Option<PathBuf>,
    /// A token, for a server with [auth]. Others on this machine may see it: --token-file is better [env: ENCKE_TOKEN].
    #[arg(long, value_name = "TOKEN", env = "ENCKE_TOKEN", hide_env = true, hide_env_values = true)]
    token: Option<String>,
    /// A file with the token. It is read again when the client connects; a new token is sent before the old one ends.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// A file with a key of the HTTP API [env: ENCKE_API_KEY has the key itself].
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// A header of each HTTP request, such as "X-Tenant: a".
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Members of the handshake's ext, as a JSON object.
    #[arg(long, value_name = "JSON", value_parser = object)]
    ext: Option<Map<String, Value>>,
    /// A file of PEM certificates whose certificates are accepted, too.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// A file of PEM certificates: the client's own, for a server that asks for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Accept every certificate, such as the one of --dev-tls.
    #[arg(long)]
    insecure: bool,
    /// The transport; auto: a WebSocket, or long-polling where none gets through.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    #[arg(value_parser = PossibleValuesParser::new(["auto", "websocket", "long-polling"]).map(transport))]
    transport: Transport,
}

impl Server {
    /// Fills in what a configuration or a context says and no flag does.
    ///
    /// # Errors
    /// The configuration is wrong, or the context does not exist.
    pub(crate) fn resolved(mut self) -> Result<Server, Failure> {
        if let Some(file) = &self.config {
            let config = Sources::of_file(Some(file.clone())).read().map_err(|problems| {
                let lines: Vec<String> = problems.into_iter().map(|problem| problem.0).collect();
                Failure::usage(lines.join("\n"))
            })?;
            self.url = Some(url_of(&config.settings));
            self.insecure |= config.settings.dev_tls;
            return Ok(self);
        }
        let Some(context) = Contexts::read()?.find(self.context.as_deref())? else { return Ok(self) };
        // A URL that somebody names is another server: it gets no secrets of the context.
        let is_named = self.context.is_some();
        if self.url.is_some() && !is_named {
            return Ok(self);
        }
        let Context { url, token_file, api_key_file, ca, cert, key, insecure } = context;
        self.url = self.url.or(Some(url));
        if self.token.is_none() {
            self.token_file = self.token_file.or(token_file);
        }
        self.api_key_file = self.api_key_file.or(api_key_file);
        self.ca = self.ca.or(ca);
        (self.cert, self.key) = if self.cert.is_some() { (self.cert, self.key) } else { (cert, key) };
        self.insecure |= insecure;
        Ok(self)
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        self.url.as_deref().unwrap_or("http://127.0.0.1:8080")
    }

    /// A client with these options.
    ///
    /// # Errors
    /// The file with the token cannot be read.
    pub(crate) fn client(&self) -> Result<ClientBuilder, Failure> {
        let mut client = Client::builder().transport(self.transport).accept_any_certificate(self.insecure);
        for (name, value) in &self.header {
            client = client.header(name, value);
        }
        if let Some(file) = &self.ca {
            client = client.ca_file(file);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            client = client.tls_identity(cert, key);
        }
        if let Some(ext) = &self.ext {
            client = client.extension(HandshakeExt(ext.clone()));
        }
        if let Some(token) = &self.token {
            client = client.extension(Token { file: None, sent: token.clone() });
        }
        if let Some(file) = &self.token_file {
            let sent = secret_in(file).map_err(Failure::usage)?;
            client = client.extension(Token { file: Some(file.clone()), sent });
        }
        Ok(client)
    }

    /// Opens a session, once, within a time; each reply may take as long.
    ///
    /// # Errors
    /// The server refuses, cannot be reached, or advises to try again until the time is over.
    pub(crate) async fn connect_once(&self, timeout: Duration) -> Result<Client, Failure> {
        let client = self.client()?.reconnect(false).reply_timeout(timeout);
        match tokio::time::timeout(timeout, client.connect(self.url())).await {
            Ok(client) => Ok(client?),
            Err(_) => {
                let time = humantime::format_duration(timeout);
                Err(Failure::new(format!("{} has opened no session within {time}", self.url())))
            }
        }
    }

    /// The key of the HTTP API, if there is one.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub(crate) fn api_key(&self) -> Result<Option<String>, Failure> {
        match &self.api_key_file {
            Some(file) => secret_in(file).map(Some).map_err(Failure::usage),
            None => Ok(std::env::var("ENCKE_API_KEY").ok().filter(|key| !key.is_empty())),
        }
    }

    /// The file of certificates to trust, too.
    pub(crate) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// The headers that somebody named.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.header
    }
}

/// Puts members into the `ext` of handshakes.
struct HandshakeExt(Map<String, Value>);

impl Extension for HandshakeExt {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.extend(self.0.clone());
        }
    }
}

/// Puts a token into handshakes, and a new one of its file into a connect.
struct Token {
    file: Option<PathBuf>,
    sent: String,
}

impl Extension for Token {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        let is_handshake = message.channel == "/meta/handshake";
        if !is_handshake && message.channel != "/meta/connect" {
            return;
        }
        // While the file is being written, the token that is known is the best one.
        let now = self.file.as_deref().and_then(|file| secret_in(file).ok());
        let is_new = now.as_ref().is_some_and(|now| *now != self.sent);
        if let Some(now) = now {
            self.sent = now;
        }
        if is_handshake || is_new {
            let auth = message.ext.entry("auth").or_insert_with(|| Map::new().into());
            if let Some(auth) = auth.as_object_mut() {
                auth.insert("token".into(), self.sent.as_str().into());
            }
        }
    }
}

/// The URL of a server on this machine that has these settings.
fn url_of(settings: &Settings) -> String {
    let mut address = settings.listen;
    if address.ip().is_unspecified() {
        let loopback =
            if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) };
        address.set_ip(loopback);
    }
    format!("{}://{address}", if settings.has_tls() { "https" } else { "http" })
}

/// The secret in a file, without the line end.
fn secret_in(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let secret = text.trim();
    if secret.is_empty() { Err(format!("{}: it is empty", file.display())) } else { Ok(secret.into()) }
}

fn transport(name: String) -> Transport {
    match name.as_str() {
        "websocket" => Transport::WebSocket,
        "long-polling" => Transport::LongPolling,
        _ => Transport::Auto,
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a name, a colon and a value, such as \"X-Tenant: a\"")?;
    Ok((name.trim().into(), value.trim().into()))
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("a JSON object: {error}"))
}
