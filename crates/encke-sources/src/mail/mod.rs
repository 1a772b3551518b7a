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

encke::settings! {
    /// The settings of a source of this kind: one account.
    #[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct MailSettings;

    "The account" {
        /// The protocol of the server.
        protocol: Protocol = Protocol::Imap;
        /// The server's name or address. Its certificate must have it.
        host: String = String::new();
        /// Its port. 0: the usual one of the protocol.
        port: u16 = 0;
        /// The encryption.
        tls: Tls = Tls::Implicit;
        /// A file of PEM certificates that are trusted beside those of the system. Empty: none.
        ca_file: String = String::new();
        /// The name of the user.
        user: String = String::new();
        /// The password. A file or an environment variable is safer.
        password: Secret = Secret::default();
        /// A file with the password. It is read at each login.
        password_file: String = String::new();
        /// The environment variable with the password.
        password_env: String = String::new();
        /// The folder with IMAP. A name that is not ASCII is written as IMAP encodes it (RFC 3501 §5.1.3).
        folder: String = "INBOX".into();
        /// Time between two looks with POP3, and with an IMAP server that cannot report new mail by itself, in milliseconds.
        poll_ms: u64 = 60_000;
        /// Time after which a waiting IMAP connection is renewed, in milliseconds. Servers close it after 30 minutes (RFC 2177 §3).
        idle_ms: u64 = 28 * 60_000;
        /// Longest time until an answer of the server, in milliseconds.
        timeout_ms: u64 = 30_000;
        /// Most bytes that are read of a mail's header.
        header_bytes_max: usize = 65_536;
        /// Most mails in a POP3 mailbox, whose ids are remembered.
        mails_max: usize = 50_000;
    }
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
