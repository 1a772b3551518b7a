//! An IMAP mailbox (RFC 3501), which reports new mail by itself (IDLE, RFC 2177).
//!
//! The part of the protocol that this needs is small: six commands, and responses that are lines with at most one block of bytes. Each
//! line and block has a limit, so a server cannot make this process large.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

use super::wire::{Refused, TooLarge, Wire, beginning};
use super::{Account, Tls};
use crate::run::{End, Failure};

/// The last mail that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    /// Another value means that the server has numbered the mails again.
    uid_validity: u32,
    uid: u32,
}

/// Publishes new mails until the connection breaks.
pub(super) async fn run(account: &Account<'_>) -> Result<End, Failure> {
    let settings = account.settings;
    let mut session = Session::open(account).await?;
    let has_idle = session.has_idle().await?;
    let folder = session.examine().await?;
    let stored = account.store.read::<Seen>(&settings.mailbox());
    let mut seen = match stored {
        Some(seen) if seen.uid_validity == folder.uid_validity => seen,
        // The mails that are there at the first start are not new.
        other => {
            if other.is_some() {
                account.publisher.fault("the server has numbered its mails again: only mails from now on are new");
            }
            let seen = folder;
            account.save(&seen);
            seen
        }
    };
    account.publisher.works();
    loop {
        while std::mem::take(&mut session.has_new) {
            session.publish_new(&mut seen).await?;
        }
        if has_idle {
            session.idle(Duration::from_millis(settings.idle_ms)).await?;
        } else {
            sleep(Duration::from_millis(settings.poll_ms)).await;
            session.command("NOOP", |_| {}).await?;
        }
        // Also without a report: a server may have lost it.
        session.has_new = true;
    }
}

/// A session that has logged in.
struct Session<'a> {
    account: &'a Account<'a>,
    wire: Wire,
    commands: u64,
    /// True if there may be new mails.
    has_new: bool,
}

/// An untagged response. The block of bytes in it is apart; in its text remains the length.
struct Response {
    text: String,
    block: Option<Vec<u8>>,
}

impl<'a> Session<'a> {
    async fn open(account: &'a Account<'a>) -> Result<Session<'a>, Failure> {
        let settings = account.settings;
        let mut session = Session { account, wire: Wire::connect(settings).await?, commands: 0, has_new: true };
        let greeting = session.response().await?.text;
        if !greeting.starts_with("* OK") && !greeting.starts_with("* PREAUTH") {
            return Err(format!("this is no IMAP server: {}", beginning(&greeting)).into());
        }
        if settings.tls == Tls::StartTls {
            session.command("STARTTLS", |_| {}).await?;
            session.wire = session.wire.encrypted(settings).await?;
        }
        if !greeting.starts_with("* PREAUTH") {
            session.login().await?;
        }
        Ok(session)
    }

    async fn login(&mut self) -> Result<(), Failure> {
        let settings = self.account.settings;
        let password = settings.password()?;
        let tag = self.tag();
        let mut line = format!("{tag} LOGIN");
        for text in [&settings.user, &password] {
            if text.chars().all(|c| c.is_ascii() && !c.is_ascii_control()) {
                line = format!("{line} {}", quoted(text));
                continue;
            }
            // A text of other characters follows as a block (RFC 3501 §4.3).
            self.wire.send(&format!("{line} {{{}}}", text.len())).await?;
            self.continuation(&tag).await.map_err(|error| settings.refused(&password, error))?;
            line = text.clone();
        }
        self.wire.send(&line).await?;
        self.finish(&tag, |_| {}).await.map_err(|error| match error.downcast::<Refused>() {
            Ok(refused) => settings.refused(&password, refused),
            Err(other) => other,
        })
    }

    async fn has_idle(&mut self) -> Result<bool, Failure> {
        let mut has_idle = false;
        self.command("CAPABILITY", |response| has_idle |= response.text.split(' ').any(|word| word == "IDLE")).await?;
        Ok(has_idle)
    }

    /// Opens the folder, without a change of its state for other clients. Returns its last mail.
    async fn examine(&mut self) -> Result<Seen, Failure> {
        let (mut validity, mut next) = (None, None);
        let command = format!("EXAMINE {}", quoted(&self.account.settings.folder));
        self.command(&command, |response| {
            validity = validity.or(number_after(&response.text, "[UIDVALIDITY "));
            next = next.or(number_after(&response.text, "[UIDNEXT "));
        })
        .await?;
        let uid_validity = validity.ok_or("the server gives its mails no numbers (UIDVALIDITY)")?;
        let uid = match next {
            Some(next) => next.saturating_sub(1),
            // An old server: the number of the last mail.
            None => self.uids("*", 0).await?.pop_last().unwrap_or(0),
        };
        Ok(Seen { uid_validity, uid })
    }

    /// Publishes the mails after the last one that was published.
    async fn publish_new(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        let after = seen.uid;
        let uids = self.uids(&format!("{}:*", after.saturating_add(1)), after).await?;
        // There may be more than one round takes.
        self.has_new |= uids.len() == UIDS_MAX;
        for uid in uids {
            let (header, broken) = match self.header(uid).await {
                Ok(header) => (header, None),
                // It is published, too: otherwise it would break each connection.
                Err(error) if error.is::<TooLarge>() => (Some(Vec::new()), Some(error)),
                Err(error) => return Err(error),
            };
            if let Some(header) = header {
                self.account.publish(&header).await;
            }
            seen.uid = uid;
            self.account.save(seen);
            if let Some(error) = broken {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The numbers of mails after one, in order. The lowest, if there are too many.
    async fn uids(&mut self, set: &str, after: u32) -> Result<BTreeSet<u32>, Failure> {
        let mut uids = BTreeSet::new();
        self.command(&format!("UID FETCH {set} (UID)"), |response| {
            // A set such as `7:*` contains the last mail even if its number is lower.
            if let Some(uid) = uid_of(&response.text).filter(|uid| *uid > after) {
                uids.insert(uid);
                if uids.len() > UIDS_MAX {
                    uids.pop_last();
                }
            }
        })
        .await?;
        Ok(uids)
    }

    /// The fields of a mail's header. None if the mail is gone.
    async fn header(&mut self, uid: u32) -> Result<Option<Vec<u8>>, Failure> {
        let bytes_max = self.account.settings.header_bytes_max;
        let mut header = None;
        let fields = "HEADER.FIELDS (FROM SUBJECT DATE MESSAGE-ID)";
        let command = format!("UID FETCH {uid} (UID BODY.PEEK[{fields}]<0.{bytes_max}>)");
        self.command(&command, |response| {
            if uid_of(&response.text) == Some(uid) {
                header = Some(response.block.take().unwrap_or_default());
            }
        })
        .await?;
        Ok(header)
    }

    /// Waits for a report of the server, for a time at most.
    async fn idle(&mut self, time: Duration) -> Result<(), Failure> {
        let tag = self.tag();
        self.wire.send(&format!("{tag} IDLE")).await?;
        self.continuation(&tag).await?;
        let deadline = Instant::now() + time;
        while !self.has_new {
            match timeout_at(deadline, self.wire.line_at_any_time()).await {
                Ok(line) => {
                    let text = String::from_utf8_lossy(line?).to_ascii_uppercase();
                    self.notice(&text)?;
                }
                Err(_) => break,
            }
        }
        self.wire.send("DONE").await?;
        self.finish(&tag, |_| {}).await
    }

    fn tag(&mut self) -> String {
        self.commands += 1;
        format!("a{}", self.commands)
    }

    /// Runs a command. The function gets the untagged responses.
    async fn command(&mut self, command: &str, each: impl FnMut(&mut Response)) -> Result<(), Failure> {
        let tag = self.tag();
        self.wire.send(&format!("{tag} {command}")).await?;
        self.finish(&tag, each).await
    }

    /// Reads responses up to the end of a command.
    async fn finish(&mut self, tag: &str, mut each: impl FnMut(&mut Response)) -> Result<(), Failure> {
        loop {
            let mut response = self.response().await?;
            match response.text.strip_prefix(tag).and_then(|rest| rest.strip_prefix(' ')) {
                Some(status) if status.starts_with("OK") => return Ok(()),
                Some(status) => return Err(Refused::new(status).into()),
                None => each(&mut response),
            }
        }
    }

    /// Reads responses until the server waits for more of a command.
    async fn continuation(&mut self, tag: &str) -> Result<(), Failure> {
        loop {
            let text = self.response().await?.text;
            if text.starts_with('+') {
                return Ok(());
            }
            if text.strip_prefix(tag).is_some_and(|rest| rest.starts_with(' ')) {
                return Err(Refused::new(&text).into());
            }
        }
    }

    /// Reads a response: a line, which goes on after each block of bytes in it.
    async fn response(&mut self) -> Result<Response, Failure> {
        let mut response = Response { text: text(self.wire.line().await?), block: None };
        for _ in 0..BLOCKS_MAX {
            let Some(bytes) = block_bytes(&response.text) else {
                if response.text.starts_with("* ") {
                    // Words of the protocol have any case. Tags and blocks stay as they are.
                    response.text.make_ascii_uppercase();
                }
                self.notice(&response.text)?;
                return Ok(response);
            };
            let block = self.wire.block(bytes, self.account.settings.header_bytes_max).await?;
            response.block.get_or_insert(block);
            response.text.push_str(&text(self.wire.line().await?));
        }
        Err("the server sends a response of too many parts".into())
    }

    /// Notes the reports of the server, which come at any time.
    fn notice(&mut self, text: &str) -> Result<(), Failure> {
        self.has_new |= text.starts_with("* ") && text.ends_with(" EXISTS");
        if text.starts_with("* BYE") {
            Err(format!("the server ends the session: {}", beginning(text)).into())
        } else {
            Ok(())
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// A quoted string (RFC 3501 §4.3).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The length of the block that follows a line, such as `{12}` at its end.
fn block_bytes(text: &str) -> Option<u64> {
    text.strip_suffix('}')?.rsplit_once('{')?.1.trim_end_matches('+').parse().ok()
}

/// The number of the mail that a response is about.
fn uid_of(text: &str) -> Option<u32> {
    let (_, items) = text.split_once(" FETCH ")?;
    number_after(items, "(UID ").or_else(|| number_after(items, " UID "))
}

/// The number after a text.
fn number_after(text: &str, before: &str) -> Option<u32> {
    let rest = &text[text.find(before)? + before.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Most mails that are published before the server is asked again.
const UIDS_MAX: usize = 1_000;

/// Most blocks of bytes in a response.
const BLOCKS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_responses_of_all_forms() {
        assert_eq!(uid_of("* 3 FETCH (UID 7 BODY[HEADER.FIELDS (FROM)]<0> {120})"), Some(7));
        assert_eq!(uid_of("* 3 FETCH (FLAGS () BODY[HEADER] {3} UID 4294967295)"), Some(u32::MAX));
        for text in ["* 3 EXISTS", "* 3 FETCH (FLAGS ())", "* 3 FETCH (UID 4294967296)", "* 3 FETCH (UID )", "UID 7"] {
            assert_eq!(uid_of(text), None, "{text}");
        }
        assert_eq!((block_bytes("x {12}"), block_bytes("{3+}")), (Some(12), Some(3)));
        for text in ["", "}", "{}", "{-1}", "{12} ", "x}"] {
            assert_eq!(block_bytes(text), None, "{text}");
        }
        assert_eq!(quoted(r#"a"\b"#), r#""a\"\\b""#);
    }
}
