//! `kind = "mail"`: each new mail of an account is a message.

mod headers;
mod imap;
mod pop3;
mod wire;

use std::fmt;

use encke::Secret;
use serde::Deserialize;

use crate::check::Check;
use crate::publisher::Publisher;
use crate::run::{End, Failure};
use crate::store::Store;

/// The settings of a source of this kind: one account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct MailSettings {
    /// The protocol of the server.
    pub protocol: Protocol,
    /// The server's name or address. Its certificate must have it.
    pub host: String,
    /// Its port. 0: the usual one of the protocol.
    pub port: u16,
    /// The encryption.
    pub tls: Tls,
    /// A file of PEM certificates that are trusted beside those of the system. Empty: none.
    pub ca_file: String,
    /// The name of the user.
    pub user: String,
    /// The password. A file or an environment variable is safer.
    pub password: Secret,
    /// A file with the password. It is read at each login.
    pub password_file: String,
    /// The environment variable with the password.
    pub password_env: String,
    /// The folder with IMAP. A name that is not ASCII is written as IMAP encodes it (RFC 3501 §5.1.3).
    pub folder: String,
    /// Time between two looks with POP3, and with an IMAP server that cannot report new mail by itself, in milliseconds.
    pub poll_ms: u64,
    /// Time after which a waiting IMAP connection is renewed, in milliseconds. Servers close it after 30 minutes (RFC 2177 §3).
    pub idle_ms: u64,
    /// Longest time until an answer of the server, in milliseconds.
    pub timeout_ms: u64,
    /// Most bytes that are read of a mail's header.
    pub header_bytes_max: usize,
    /// Most mails in a POP3 mailbox, whose ids are remembered.
    pub mails_max: usize,
}

/// The protocols of mail servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// IMAP (RFC 3501), with IDLE (RFC 2177) where the server has it.
    #[default]
    Imap,
    /// POP3 (RFC 1939), with UIDL and TOP.
    Pop3,
}

/// The encryption of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// From the first byte (RFC 8314 §3).
    #[default]
    Implicit,
    /// After `STARTTLS` or `STLS`. A server without it gets no password.
    StartTls,
    /// None: the password is readable on the way.
    None,
}

impl Default for MailSettings {
    fn default() -> MailSettings {
        MailSettings {
            protocol: Protocol::Imap,
            host: String::new(),
            port: 0,
            tls: Tls::Implicit,
            ca_file: String::new(),
            user: String::new(),
            password: Secret::default(),
            password_file: String::new(),
            password_env: String::new(),
            folder: "INBOX".into(),
            poll_ms: 60_000,
            idle_ms: 28 * 60_000,
            timeout_ms: 30_000,
            header_bytes_max: 65_536,
            mails_max: 50_000,
        }
    }
}

impl MailSettings {
    pub(crate) fn check(&self, check: &mut Check<'_>) {
        check.that(!self.host.is_empty(), "host = \"\": the name of a mail server");
        let is_line = |text: &str| !text.contains(['\r', '\n', '\0']);
        let user = self.user.as_str();
        check.that(!user.is_empty() && is_line(user), format_args!("user = {user:?}: the name of a user"));
        check.that(is_line(self.password.reveal()), "password: one line");
        let given = [self.password.is_empty(), self.password_file.is_empty(), self.password_env.is_empty()];
        let given = given.iter().filter(|is_empty| !**is_empty).count();
        check.that(given == 1, "password: one of password, password_file and password_env");
        let is_ascii = self.folder.chars().all(|c| c.is_ascii() && !c.is_ascii_control()) && !self.folder.is_empty();
        check.that(is_ascii, format_args!("folder = {:?}: a name in ASCII, as IMAP encodes it", self.folder));
        check.range("poll_ms", self.poll_ms, 100..=86_400_000);
        check.range("idle_ms", self.idle_ms, 100..=29 * 60_000);
        check.range("timeout_ms", self.timeout_ms, 100..=600_000);
        check.range("header_bytes_max", self.header_bytes_max as u64, 1_024..=1024 * 1024);
        check.range("mails_max", self.mails_max as u64, 1..=1_000_000);
    }

    fn port(&self) -> u16 {
        match (self.port, self.protocol, self.tls) {
            (0, Protocol::Imap, Tls::Implicit) => 993,
            (0, Protocol::Imap, _) => 143,
            (0, Protocol::Pop3, Tls::Implicit) => 995,
            (0, Protocol::Pop3, _) => 110,
            (port, ..) => port,
        }
    }

    /// The password, read again at each login.
    fn password(&self) -> Result<String, Failure> {
        let password = if !self.password_file.is_empty() {
            let file = &self.password_file;
            std::fs::read_to_string(file).map_err(|error| format!("password_file {file}: {error}"))?
        } else if !self.password_env.is_empty() {
            let name = &self.password_env;
            std::env::var(name).map_err(|_| format!("password_env: the variable {name} is not set"))?
        } else {
            self.password.reveal().to_string()
        };
        match password.trim_end_matches(['\r', '\n']) {
            one if one.contains(['\r', '\n', '\0']) => Err("the password has more than one line".into()),
            one => Ok(one.into()),
        }
    }

    /// The mailbox, as its state names it.
    fn mailbox(&self) -> String {
        let MailSettings { protocol, host, user, folder, .. } = self;
        match protocol {
            Protocol::Imap => format!("imap {user} {host} {folder}"),
            Protocol::Pop3 => format!("pop3 {user} {host}"),
        }
    }

    /// The error of a login. It never shows the password, even if the server does.
    fn refused(&self, password: &str, answer: impl fmt::Display) -> Failure {
        let answer = answer.to_string();
        let answer = if password.is_empty() { answer } else { answer.replace(password, "…") };
        format!("{} refuses the user {:?} or the password: {answer}", self.host, self.user).into()
    }
}

/// An account, with the way of its new mails to the clients.
struct Account<'a> {
    settings: &'a MailSettings,
    channel: &'a str,
    publisher: &'a Publisher,
    store: &'a Store,
}

impl Account<'_> {
    /// Publishes a mail.
    async fn publish(&self, header: &[u8]) {
        let message = headers::message(self.publisher.name(), header);
        self.publisher.publish(self.channel, &message).await;
    }

    /// Remembers how far the mailbox is published.
    fn save<T: serde::Serialize>(&self, seen: &T) {
        if let Err(error) = self.store.write(&self.settings.mailbox(), seen) {
            self.publisher.fault(format_args!("the state of the mailbox cannot be saved: {error}"));
        }
    }
}

/// Publishes new mails until the source stops or the connection breaks.
pub(crate) async fn run(
    settings: &MailSettings,
    channel: &str,
    publisher: &Publisher,
    store: &Store,
) -> Result<End, Failure> {
    let account = Account { settings, channel, publisher, store };
    match settings.protocol {
        Protocol::Imap => imap::run(&account).await,
        Protocol::Pop3 => pop3::run(&account).await,
    }
}
