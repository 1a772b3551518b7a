//! Revoked tokens that outlive the process: `revoked/` in the data directory, a journal with a record for each.
//!
//! A record is the byte [`KIND`], the time until which the token is revoked (milliseconds since 1970, little-endian), and
//! its id. Of several records of one token the latest time counts. Records of expired tokens leave when the journal has
//! grown: it is written again with the others.

use encke_core::Revoked;
use encke_store::StoreError;
use journal::{Directory, Journal, Options, Position, RECORD_BYTES_MAX};
use parking_lot::Mutex;

use crate::entropy::kernel_entropy;
use crate::error::{RevocationError, StartError};

/// The journal of revoked tokens. Without a data directory there is none, and revocations end with the process.
#[derive(Default)]
pub(crate) struct Revocations(Mutex<State>);

#[derive(Default)]
enum State {
    /// There is no data directory.
    #[default]
    Nowhere,
    /// The journal, and its size at which it is written again, in bytes.
    Open { journal: Box<Journal<Directory>>, rewrite_at_bytes: u64 },
    /// The server has ended.
    Closed,
}

impl Revocations {
    /// Opens the journal of a data directory, and adds its tokens to the revoked ones.
    ///
    /// # Errors
    /// When another process has it, the disk fails, or synced records are damaged.
    pub(crate) fn open(directory: Directory, revoked: &Revoked, now_ms: u64) -> Result<Revocations, StartError> {
        let mut salt = [0; 8];
        kernel_entropy()(&mut salt);
        let options = Options {
            record_bytes: RECORD_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES,
            ..Options::new(u64::from_le_bytes(salt))
        };
        let mut unknown = None;
        let mut read = |at: Position, record: &[u8]| match parse(record) {
            // They were within `revoked_tokens_max` when they were revoked.
            Some((token_id, until_ms)) if until_ms > now_ms => {
                _ = revoked.add(token_id, until_ms, now_ms, usize::MAX);
            }
            Some(_) => {}
            None => unknown = unknown.or(Some(at)),
        };
        let opened = Journal::open(directory, options, &mut read);
        let (journal, opened) = opened.map_err(|error| StartError::Revocations(error.into()))?;
        if let Some(at) = unknown {
            return Err(StartError::Revocations(StoreError::Unknown { at, file: journal.file_of(at) }));
        }
        for cut in &opened.cut {
            tracing::warn!("revoked tokens: {cut}");
        }
        let rewrite_at_bytes = rewrite_at(&revoked.all(now_ms));
        Ok(Revocations(Mutex::new(State::Open { journal: Box::new(journal), rewrite_at_bytes })))
    }

    /// Writes revocations and syncs them. Blocks while the disk works. Returns false if there is no data directory.
    ///
    /// # Errors
    /// When the disk does not take them, or the server has ended.
    pub(crate) fn persist(
        &self,
        tokens: &[(Box<str>, u64)],
        revoked: &Revoked,
        now_ms: u64,
    ) -> Result<bool, RevocationError> {
        let mut state = self.0.lock();
        let (journal, rewrite_at_bytes) = match &mut *state {
            State::Nowhere => return Ok(false),
            State::Closed => return Err(RevocationError::Stopped),
            State::Open { journal, rewrite_at_bytes } => (journal, rewrite_at_bytes),
        };
        let mut written = Ok(());
        for (token_id, until_ms) in tokens {
            written = written.and_then(|()| append(journal, token_id, *until_ms).map(drop));
        }
        if let Err(error) = written.and_then(|()| journal.sync()) {
            tracing::error!(%error, "a revoked token is not stored");
            return Err(RevocationError::NotStored);
        }
        if journal.segments().map(|segment| segment.bytes).sum::<u64>() > *rewrite_at_bytes {
            let all = revoked.all(now_ms);
            *rewrite_at_bytes = rewrite_at(&all);
            if let Err(error) = rewrite(journal, &all) {
                tracing::warn!(%error, "the journal of revoked tokens cannot be written again; it grows");
            }
        }
        Ok(true)
    }

    /// Closes the journal, so that another process can open it. The shards have ended before.
    pub(crate) fn close(&self) {
        *self.0.lock() = State::Closed;
    }
}

/// Appends all these tokens, and removes the segments before them.
fn rewrite(journal: &mut Journal<Directory>, all: &[(Box<str>, u64)]) -> Result<(), journal::Error> {
    let first = journal.appended().next();
    for (token_id, until_ms) in all {
        append(journal, token_id, *until_ms)?;
        if journal.unsynced_bytes() > UNSYNCED_BYTES_MAX {
            journal.sync()?;
        }
    }
    journal.sync()?;
    journal.remove_before(first).map(drop)
}

fn append(journal: &mut Journal<Directory>, token_id: &str, until_ms: u64) -> Result<Position, journal::Error> {
    journal.append_parts(&[&[KIND], &until_ms.to_le_bytes(), token_id.as_bytes()])
}

/// The id and the end of a token. None for a record of another version.
fn parse(record: &[u8]) -> Option<(&str, u64)> {
    let (until_ms, token_id) = record.strip_prefix(&[KIND])?.split_first_chunk()?;
    Some((std::str::from_utf8(token_id).ok()?, u64::from_le_bytes(*until_ms)))
}

/// The size of a journal at which it is written again, if these tokens have not expired.
fn rewrite_at(all: &[(Box<str>, u64)]) -> u64 {
    let live_bytes: usize = all.iter().map(|(token_id, _)| token_id.len() + RECORD_BYTES).sum();
    2 * live_bytes as u64 + 4 * SEGMENT_BYTES
}

/// The name of the directory in the data directory.
pub(crate) const DIRECTORY: &str = "revoked";
/// The first byte of each record.
const KIND: u8 = 1;
/// The length at which a segment ends, in bytes.
const SEGMENT_BYTES: u64 = 1 << 20;
/// The bytes of a record beside the id.
const RECORD_BYTES: usize = 29;
/// The most bytes in memory while the journal is written again.
const UNSYNCED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path, now_ms: u64) -> (Result<Revocations, StartError>, Revoked) {
        let revoked = Revoked::default();
        let directory = Directory::open(path).expect("a directory");
        (Revocations::open(directory, &revoked, now_ms), revoked)
    }

    fn folder(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("encke-revoked-{}-{name}", std::process::id()))
    }

    fn revoke(revocations: &Revocations, revoked: &Revoked, token_id: &str, until_ms: u64, now_ms: u64) {
        assert!(revoked.add(token_id, until_ms, now_ms, 100));
        assert_eq!(revocations.persist(&[(token_id.into(), until_ms)], revoked, now_ms), Ok(true));
    }

    #[test]
    fn what_was_stored_is_revoked_after_any_end_until_it_expires() {
        let path = folder("end");
        let (revocations, revoked) = open(&path, 0);
        let revocations = revocations.expect("opened");
        revoke(&revocations, &revoked, "a", 100, 0);
        revoke(&revocations, &revoked, "b", 200, 0);
        // As after a kill: nothing is closed.
        drop(revocations);
        let (again, revoked) = open(&path, 150);
        assert_eq!(revoked.all(150), [("b".into(), 200)]);
        let again = again.expect("opened");
        again.close();
        assert_eq!(again.persist(&[("c".into(), 9)], &revoked, 0), Err(RevocationError::Stopped));
        std::fs::remove_dir_all(path).expect("gone");
    }

    #[test]
    fn damage_refuses_the_start_and_a_torn_end_is_cut() {
        let path = folder("damage");
        let (revocations, revoked) = open(&path, 0);
        let revocations = revocations.expect("opened");
        for token in ["first", "second", "third"] {
            revoke(&revocations, &revoked, token, 100, 0);
        }
        drop(revocations);
        let segment = path.join("00000000000000000001.journal");
        let whole = std::fs::read(&segment).expect("there");
        std::fs::write(&segment, &whole[..whole.len() - 1]).expect("torn");
        let (cut, revoked) = open(&path, 0);
        assert!(cut.is_ok() && revoked.len() == 2, "the last record was never known to be synced");
        drop(cut);
        let mut turned = whole.clone();
        let at = whole.windows(5).position(|bytes| bytes == b"first").expect("the id");
        turned[at] ^= 1;
        std::fs::write(&segment, &turned).expect("damaged");
        assert!(matches!(open(&path, 0).0, Err(StartError::Revocations(_))));
        std::fs::remove_dir_all(path).expect("gone");
    }

    #[test]
    fn the_journal_keeps_only_what_has_not_expired() {
        let path = folder("rewrite");
        let (revocations, revoked) = open(&path, 0);
        let revocations = revocations.expect("opened");
        revoke(&revocations, &revoked, "stays", u64::MAX, 0);
        let long = "x".repeat(600_000);
        for number in 0..12 {
            revoke_one(&revocations, &revoked, &format!("{number}{long}"), number + 1);
        }
        drop(revocations);
        let bytes: u64 = std::fs::read_dir(&path)
            .expect("there")
            .flatten()
            .map(|file| file.metadata().map_or(0, |it| it.len()))
            .sum();
        assert!(bytes < 6 << 20, "{bytes} bytes");
        let (_again, revoked) = open(&path, 100);
        assert_eq!(revoked.all(100), [("stays".into(), u64::MAX)]);
        std::fs::remove_dir_all(path).expect("gone");
    }

    /// Revokes a token that expires at once.
    fn revoke_one(revocations: &Revocations, revoked: &Revoked, token_id: &str, now_ms: u64) {
        assert_eq!(revocations.persist(&[(token_id.into(), now_ms)], revoked, now_ms), Ok(true));
    }
}
