//! `kind = "file"`: each line that is added to a file is a message.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::check::Check;
use crate::lines::too_long;
use crate::publisher::Publisher;
use crate::run::{End, Failure};
use crate::store::Store;

encke::settings! {
    /// The settings of a source of this kind.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[non_exhaustive]
    pub struct FileSettings;

    "The file" {
        /// The file. It may appear later.
        path: String = String::new();
        /// The position at which the first start begins in a file that is there. A file that appears later is read from its beginning.
        start: FileStart = FileStart::End;
        /// Time between two looks at the file, in milliseconds.
        poll_ms: u64 = 250;
        /// Longest line, in bytes. A longer one is not published.
        line_bytes_max: usize = 65_536;
    }
}

/// The point at which the first start begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FileStart {
    /// Only lines that are added from now on.
    #[default]
    End,
    /// All lines.
    Beginning,
}

impl FileSettings {
    pub(crate) fn check(&self, check: &mut Check<'_>) {
        check.that(!self.path.is_empty(), "path = \"\": the path of a file");
        check.range("poll_ms", self.poll_ms, 10..=3_600_000);
        check.range("line_bytes_max", self.line_bytes_max as u64, 1..=16 * 1024 * 1024);
    }
}

/// Publishes the lines until the source stops.
pub(crate) async fn run(
    settings: &FileSettings,
    channel: &str,
    publisher: &Publisher,
    store: &Store,
) -> Result<End, Failure> {
    let mut reader = Reader {
        settings,
        channel,
        publisher,
        store,
        saved: store.read(&settings.path),
        saved_at: Instant::now(),
        is_dirty: false,
        open: None,
        is_first: true,
    };
    loop {
        reader.look().await.map_err(|error| format!("{}: {error}", settings.path))?;
        tokio::time::sleep(Duration::from_millis(settings.poll_ms)).await;
    }
}

/// The end of the last published line, and enough to recognise the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    device: u64,
    inode: u64,
    offset: u64,
    /// The bytes before the offset. Others mean that the file was written again.
    before: Vec<u8>,
}

/// Reads a file that grows, is renamed or truncated.
struct Reader<'a> {
    settings: &'a FileSettings,
    channel: &'a str,
    publisher: &'a Publisher,
    store: &'a Store,
    /// The position of an earlier run.
    saved: Option<Mark>,
    saved_at: Instant,
    is_dirty: bool,
    open: Option<Open>,
    /// True until a file was there, or was found missing.
    is_first: bool,
}

/// An open file.
struct Open {
    file: File,
    mark: Mark,
    /// Bytes after the mark that were read and belong to a line that is too long.
    skipped: u64,
}

impl Reader<'_> {
    /// Publishes the lines that were added since the last look.
    async fn look(&mut self) -> io::Result<()> {
        let path = Path::new(&self.settings.path);
        let found = match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => return Err(io::Error::other("not a file")),
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if self.open.is_some() {
            self.read().await?;
        }
        match (&self.open, found) {
            (Some(open), Some(found)) if open.mark.is_of(&found) => {}
            (is_open, Some(_)) => {
                // The old file may have grown before the new one was there; then it ends, also without a line's end.
                if is_open.is_some() {
                    self.read().await?;
                    self.publish_rest().await?;
                    tracing::info!(source = self.publisher.name(), "a new file is read from its beginning");
                }
                self.open = Some(self.opened(File::open(path)?)?);
                self.publisher.works();
                self.read().await?;
            }
            (None, None) if self.is_first => {
                self.is_first = false;
                self.publisher.fault(format_args!("{}: there is no such file yet", self.settings.path));
            }
            (_, None) => {}
        }
        if self.saved_at.elapsed() >= SAVE_INTERVAL {
            self.save();
        }
        Ok(())
    }

    /// The file at the position where reading begins.
    fn opened(&mut self, file: File) -> io::Result<Open> {
        let metadata = file.metadata()?;
        let mut mark = Mark { device: metadata.dev(), inode: metadata.ino(), ..Mark::default() };
        let is_first = std::mem::take(&mut self.is_first);
        match self.saved.take() {
            Some(saved) if saved.is_of(&metadata) && saved.is_before(&file)? => mark = saved,
            Some(_) => {}
            None if is_first && self.settings.start == FileStart::End => mark.move_to(&file, metadata.len())?,
            None => {}
        }
        self.is_dirty = true;
        Ok(Open { file, mark, skipped: 0 })
    }

    /// Publishes all complete lines after the mark.
    async fn read(&mut self) -> io::Result<()> {
        let Reader { settings, channel, publisher, is_dirty, open: Some(open), .. } = self else { return Ok(()) };
        let bytes_max = settings.line_bytes_max;
        let mut buffer = vec![0; (bytes_max + 1).max(CHUNK_BYTES)];
        let size = open.file.metadata()?.len();
        if size != open.mark.offset && !open.mark.is_before(&open.file)? {
            tracing::info!(source = publisher.name(), "the file was truncated and is read from its beginning");
            open.mark.move_to(&open.file, 0)?;
        }
        if size < open.mark.offset + open.skipped {
            open.skipped = 0;
        }
        loop {
            let read = open.file.read_at(&mut buffer, open.mark.offset + open.skipped)?;
            let Some(last) = buffer[..read].iter().rposition(|byte| *byte == b'\n') else {
                if open.skipped > 0 || read > bytes_max {
                    open.skipped += read as u64;
                }
                if read < buffer.len() {
                    return Ok(());
                }
                continue;
            };
            for line in buffer[..=last].split_inclusive(|byte| *byte == b'\n') {
                if line.len() > bytes_max + 1 || open.skipped > 0 {
                    publisher.fault(too_long(bytes_max));
                } else {
                    publisher.publish_line(channel, line).await;
                }
                open.mark.advance(std::mem::take(&mut open.skipped), line);
                *is_dirty = true;
            }
            if read < buffer.len() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Publishes a last line without an end, in a file that nobody writes any more.
    async fn publish_rest(&mut self) -> io::Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut rest = vec![0; self.settings.line_bytes_max];
        let read = open.file.read_at(&mut rest, open.mark.offset)?;
        if open.skipped > 0 {
            self.publisher.fault(too_long(self.settings.line_bytes_max));
        } else {
            self.publisher.publish_line(self.channel, &rest[..read]).await;
        }
        Ok(())
    }

    fn save(&mut self) {
        self.saved_at = Instant::now();
        let Some(open) = self.open.as_ref().filter(|_| self.is_dirty) else { return };
        match self.store.write(&self.settings.path, &open.mark) {
            Ok(()) => self.is_dirty = false,
            Err(error) => self.publisher.fault(format_args!("the position cannot be saved: {error}")),
        }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.save();
    }
}

impl Mark {
    /// True if the mark is in this file.
    fn is_of(&self, file: &Metadata) -> bool {
        (self.device, self.inode) == (file.dev(), file.ino())
    }

    /// True if the file still has the bytes before the mark.
    fn is_before(&self, file: &File) -> io::Result<bool> {
        let mut bytes = vec![0; self.before.len()];
        match file.read_exact_at(&mut bytes, self.offset - self.before.len() as u64) {
            Ok(()) => Ok(bytes == self.before),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves the mark over bytes that were skipped, and over a line.
    fn advance(&mut self, skipped: u64, line: &[u8]) {
        self.offset += skipped + line.len() as u64;
        if skipped > 0 {
            self.before.clear();
        }
        self.before.extend_from_slice(line);
        let excess = self.before.len().saturating_sub(MARK_BYTES as usize);
        self.before.drain(..excess);
    }

    /// Moves the mark to any position in its file.
    fn move_to(&mut self, file: &File, offset: u64) -> io::Result<()> {
        let bytes = offset.min(MARK_BYTES);
        let mut before = vec![0; bytes as usize];
        file.read_exact_at(&mut before, offset - bytes)?;
        (self.offset, self.before) = (offset, before);
        Ok(())
    }
}

/// Bytes that are read at once, unless lines may be longer.
const CHUNK_BYTES: usize = 64 * 1024;

/// Bytes before the mark that are remembered.
const MARK_BYTES: u64 = 32;

/// The interval at which the position is saved while lines come.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
