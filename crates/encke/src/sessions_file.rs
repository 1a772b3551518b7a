//! The file that saves sessions from a clean stop to the next start: `sessions` in the `data` directory.
//!
//! It consists of lines of JSON: a head, every message that waits for a session, every session, and an end with their
//! number and the checksum of all bytes before it. A file without a valid end is damaged and is moved aside. The
//! server writes it under another name first. It removes the file once the sessions are restored, before anything
//! happens to them, so each file is valid for one start only.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use encke_core::{Policy, Saved, SavedSession};
use journal::replace_file;

/// The result of reading the file.
#[derive(Debug)]
pub(crate) enum Found {
    /// No file: the last life did not end cleanly, or there was none.
    Nothing,
    /// The sessions. The file stays until [`remove`].
    Sessions(Saved),
    /// The file is damaged, for this reason. It is now named `sessions.damaged`.
    Damaged(String),
}

/// One line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Head {
        version: u32,
        /// Not in files of older versions.
        #[serde(default)]
        policy: Policy,
    },
    Message(Cow<'a, str>),
    Session(Box<SavedSession>),
    End {
        messages: usize,
        sessions: usize,
        crc32c: u32,
    },
}

/// Writes the file completely or not at all.
///
/// # Errors
/// The disk's error.
pub(crate) fn write(directory: &Path, saved: Saved) -> io::Result<()> {
    replace_file(&path(directory), |file| {
        let mut out = Summed { out: file, crc32c: 0 };
        let (messages, sessions) = (saved.messages.len(), saved.sessions.len());
        out.line(&Line::Head { version: VERSION, policy: saved.policy })?;
        for message in saved.messages {
            out.line(&Line::Message(message.into_string().into()))?;
        }
        for session in saved.sessions {
            out.line(&Line::Session(Box::new(session)))?;
        }
        let crc32c = out.crc32c;
        out.line(&Line::End { messages, sessions, crc32c })
    })
}

/// The path of the file.
pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Reads the file.
///
/// # Errors
/// The disk's error.
pub(crate) fn read(directory: &Path) -> io::Result<Found> {
    let path = path(directory);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    match parse(&mut BufReader::new(file))? {
        Ok(saved) => Ok(Found::Sessions(saved)),
        Err(why) => {
            fs::rename(&path, directory.join(DAMAGED))?;
            File::open(directory)?.sync_all()?;
            Ok(Found::Damaged(why))
        }
    }
}

/// Removes the file, if there is one.
///
/// # Errors
/// The disk's error.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    // Opened first: a process out of file descriptors must notice before the file is gone.
    let names = File::open(directory)?;
    match fs::remove_file(path(directory)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => names.sync_all(),
    }
}

/// Parses the sessions, or returns the error in the file.
fn parse(file: &mut impl BufRead) -> io::Result<Result<Saved, String>> {
    let mut saved = Saved::default();
    let (mut line, mut number, mut sum) = (Vec::new(), 0, 0);
    let end = loop {
        line.clear();
        number += 1;
        if file.read_until(b'\n', &mut line)? == 0 {
            return Ok(Err(format!("it ends at line {number}, too early")));
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Head { version: VERSION, policy }) if number == 1 => saved.policy = policy,
            Ok(Line::Message(text)) if number > 1 => saved.messages.push(text.into()),
            Ok(Line::Session(session)) if number > 1 => saved.sessions.push(*session),
            Ok(Line::End { messages, sessions, crc32c }) if number > 1 => break (messages, sessions, crc32c),
            Ok(_) => return Ok(Err(format!("line {number} is of another version, or out of order"))),
            Err(error) => return Ok(Err(format!("line {number}: {error}"))),
        }
        sum = crc32c::crc32c_append(sum, &line);
    };
    let right = end == (saved.messages.len(), saved.sessions.len(), sum) && saved.is_whole();
    Ok(if right { Ok(saved) } else { Err("its end does not fit what is before it".into()) })
}

/// A file with the checksum of the bytes written.
struct Summed<'a> {
    out: &'a mut BufWriter<File>,
    crc32c: u32,
}

impl Summed<'_> {
    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes);
        self.out.write_all(&bytes)
    }
}

const VERSION: u32 = 4;
const NAME: &str = "sessions";
const DAMAGED: &str = "sessions.damaged";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::kernel_entropy;
    use encke_core::{Id, Identity};
    use encke_core::{SavedBatch, SavedCursor, SavedLoss, SavedPattern, SavedReplay, SavedUnacked, Span, Stage};

    /// A separate directory for each test.
    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("encke-sessions-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        path
    }

    fn sample() -> Saved {
        let mut entropy = kernel_entropy();
        let cursor = SavedCursor { channel: "/h".into(), epoch: "e".into(), next: 7, lost: Some((5, 6)) };
        let loss = SavedLoss { channel: "/h".into(), epoch: "e".into(), from: 1, to: None, reported: Some(3) };
        let (messages, behind) = (Some(u64::MAX), Some("/h/m".into()));
        let pattern = SavedPattern {
            pattern: "/h/*".into(),
            messages,
            behind,
            names: vec![(u64::MAX, 1)],
            beside: vec!["/h/a/*".into()],
        };
        let session = SavedSession {
            id: Id::new(0, &mut entropy),
            browser: Some(Id::new(0, &mut entropy)),
            identity: Some(Identity { token_id: Some("t".into()), ..Identity::of_user("ann") }),
            terms: None,
            attributes: None,
            policy: Some(Policy::default().authenticated_by("other tokens")),
            buckets_ms: [7, 0, 2_000],
            stage: Stage::Connected,
            interval_ms: None,
            max_interval_ms: Some(60_000),
            subscriptions: vec!["/a".into(), "/b/**".into()],
            intervals: vec![(1, 500)],
            by_server: vec![0],
            waiting: vec![Span(1, 1)],
            ack: Some(SavedUnacked {
                closed: 4,
                batches: vec![SavedBatch { numbers: vec![(3, None)], messages: vec![Span(0, 1)] }],
            }),
            replay: Some(SavedReplay {
                is_mixed: true,
                cursors: vec![cursor],
                patterns: vec![pattern],
                losses: vec![loss],
            }),
        };
        let text = r#"{"channel":"/a","data":{"n":12345678901234567890.10,"t":"\u2028é\n"}}"#;
        let policy = Policy::default().authenticated_by("tokens");
        Saved { policy, messages: vec![text.into(), "{}".into()], sessions: vec![session] }
    }

    #[test]
    fn saved_sessions_are_read_until_they_are_removed() {
        let directory = directory("once");
        assert!(matches!(read(&directory), Ok(Found::Nothing)));
        remove(&directory).expect("there is nothing to remove");
        write(&directory, sample()).expect("written");
        assert!(matches!(read(&directory), Ok(Found::Sessions(_))), "a start that failed");
        let Ok(Found::Sessions(found)) = read(&directory) else { panic!("no sessions") };
        assert_eq!((found.messages.len(), found.sessions.len()), (2, 1));
        assert_eq!(found.policy, sample().policy);
        assert_eq!(found.messages, sample().messages, "to the last digit");
        assert_eq!(found.sessions[0].identity, sample().sessions[0].identity);
        assert_eq!(found.sessions[0].subscriptions, sample().sessions[0].subscriptions);
        remove(&directory).expect("it is there");
        assert!(matches!(read(&directory), Ok(Found::Nothing)), "true for one start only");
        fs::remove_dir_all(directory).expect("gone");
    }

    /// A file torn anywhere, or with any bit flipped, is never accepted.
    #[test]
    fn a_damaged_file_is_moved_aside() {
        let directory = directory("damaged");
        write(&directory, sample()).expect("written");
        let whole = fs::read(directory.join(NAME)).expect("there");
        let torn = (0..whole.len() - 1).map(|end| whole[..end].to_vec());
        let turned = (0..whole.len()).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            bytes
        });
        for bytes in torn.chain(turned) {
            let found = parse(&mut bytes.as_slice()).expect("readable");
            assert!(found.is_err() || bytes == whole, "{}", String::from_utf8_lossy(&bytes));
        }
        fs::write(directory.join(NAME), &whole[..whole.len() / 2]).expect("torn");
        assert!(matches!(read(&directory), Ok(Found::Damaged(_))));
        assert!(directory.join(DAMAGED).exists() && !directory.join(NAME).exists());
        fs::remove_dir_all(directory).expect("gone");
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let directory = directory("refused");
        // A directory has the name, so the file is refused as by a full disk.
        fs::create_dir_all(path(&directory).join("x")).expect("a directory");
        assert!(write(&directory, sample()).is_err());
        assert!(!directory.join("sessions.new").exists());
        fs::remove_dir_all(directory).expect("gone");
    }
}
