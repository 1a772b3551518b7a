//! A POP3 mailbox (RFC 1939), polled.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::sleep;

use super::wire::{HEADER_BYTES_MAX, Refused, TooLarge, Wire};
use super::{Account, Tls};
use crate::run::{End, Failure};

/// Looks for new mails until a connection breaks.
pub(super) async fn run(account: &Account<'_>) -> Result<End, Failure> {
    let mut seen = Seen { account, ids: account.store.read(&account.settings.mailbox()), is_dirty: false };
    loop {
        seen.look().await?;
        seen.save();
        account.publisher.works();
        sleep(Duration::from_millis(account.settings.poll_ms)).await;
    }
}

/// The mails that were published, or were there at the first start. They are saved after each look, and when this is dropped.
struct Seen<'a> {
    account: &'a Account<'a>,
    /// Their unique ids. None before the first look.
    ids: Option<HashSet<String>>,
    is_dirty: bool,
}

impl Seen<'_> {
    /// Looks once, with a separate connection: the server locks the mailbox while one is open.
    async fn look(&mut self) -> Result<(), Failure> {
        let mut session = Session::open(self.account).await?;
        let mails = session.mails().await?;
        let ids = self.ids.get_or_insert_with(|| {
            self.is_dirty = true;
            mails.iter().map(|(_, id)| id.clone()).collect()
        });
        for (number, id) in mails.iter().filter(|(_, id)| !ids.contains(id)).collect::<Vec<_>>() {
            let (header, broken) = match session.header(*number).await {
                Ok(header) => (header, None),
                // It is published, too: otherwise it would break each connection.
                Err(error) if error.is::<TooLarge>() => (Vec::new(), Some(error)),
                Err(error) => return Err(error),
            };
            self.account.publish(&header).await;
            ids.insert(id.clone());
            self.is_dirty = true;
            if let Some(error) = broken {
                return Err(error);
            }
        }
        let current: HashSet<&str> = mails.iter().map(|(_, id)| id.as_str()).collect();
        let before = ids.len();
        ids.retain(|id| current.contains(id.as_str()));
        self.is_dirty |= ids.len() != before;
        session.wire.send("QUIT").await
    }

    fn save(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            self.account.save(&self.ids);
        }
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.save();
    }
}

/// A session that has logged in.
struct Session<'a> {
    account: &'a Account<'a>,
    wire: Wire,
}

impl<'a> Session<'a> {
    async fn open(account: &'a Account<'a>) -> Result<Session<'a>, Failure> {
        let settings = account.settings;
        let mut session = Session { account, wire: Wire::connect(settings).await? };
        session.answer().await.map_err(|error| format!("this is no POP3 server: {error}"))?;
        if settings.tls == Tls::StartTls {
            session.command("STLS").await?;
            session.wire = session.wire.encrypted(settings).await?;
        }
        let password = settings.password()?;
        for command in [format!("USER {}", settings.user), format!("PASS {password}")] {
            session.command(&command).await.map_err(|error| match error.downcast::<Refused>() {
                Ok(refused) => settings.refused(&password, refused),
                Err(other) => other,
            })?;
        }
        Ok(session)
    }

    /// The mails of the mailbox: numbers and unique ids.
    async fn mails(&mut self) -> Result<Vec<(u32, String)>, Failure> {
        self.command("UIDL").await.map_err(|error| format!("the server gives its mails no ids (UIDL): {error}"))?;
        let mails_max = self.account.settings.mails_max;
        let mut mails = Vec::new();
        loop {
            let line = self.wire.line().await?;
            if line == b"." {
                return Ok(mails);
            }
            let line = String::from_utf8_lossy(line);
            let mail =
                line.split_once(' ').and_then(|(number, id)| Some((number.parse().ok()?, id.trim().to_string())));
            let mail = mail.filter(|(_, id)| !id.is_empty() && id.len() <= ID_BYTES_MAX);
            mails.push(mail.ok_or("the server sends a wrong list of mails")?);
            if mails.len() > mails_max {
                return Err(format!("the mailbox has more than {mails_max} mails (mails_max)").into());
            }
        }
    }

    /// The header of a mail, or nothing if the server does not send it. Only its beginning, if it is long.
    async fn header(&mut self, number: u32) -> Result<Vec<u8>, Failure> {
        match self.command(&format!("TOP {number} 0")).await {
            Ok(()) => {}
            // The command is optional (RFC 1939 §7).
            Err(error) if error.is::<Refused>() => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let bytes_max = self.account.settings.header_bytes_max;
        let (mut header, mut read) = (Vec::new(), 0);
        loop {
            let Some(line) = self.wire.line_unless_long().await? else {
                read += LONG_LINE_BYTES;
                continue;
            };
            if line == b"." {
                return Ok(header);
            }
            read += line.len() as u64 + 2;
            if read > HEADER_BYTES_MAX {
                return Err(TooLarge.into());
            }
            // A line that begins with a dot has another one before it (RFC 1939 §3).
            let line = line.strip_prefix(b".").unwrap_or(line);
            if header.len() + line.len() + 2 <= bytes_max {
                header.extend_from_slice(line);
                header.extend_from_slice(b"\r\n");
            }
        }
    }

    async fn command(&mut self, command: &str) -> Result<(), Failure> {
        self.wire.send(command).await?;
        self.answer().await
    }

    /// Reads the status of a command.
    async fn answer(&mut self) -> Result<(), Failure> {
        let line = self.wire.line().await?;
        if line.starts_with(b"+OK") {
            return Ok(());
        }
        Err(Refused::new(&String::from_utf8_lossy(line)).into())
    }
}

/// Bytes that a line counts that is too long, whatever its length.
const LONG_LINE_BYTES: u64 = 64 * 1024;

/// Longest unique id (RFC 1939 §7).
const ID_BYTES_MAX: usize = 70;
