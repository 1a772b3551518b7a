//! The disk interface of a journal, and its implementation on the file system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One directory of files. Calls may fail, write fewer bytes than requested, or be interrupted; the journal handles
/// all of these.
pub trait Disk {
    /// An open file.
    type File;
    /// A lock that excludes other writers while it lives.
    type Lock;

    /// Locks the directory for this writer; `None` if another one has it. Creates the file [`LOCK`] if it needs one.
    fn lock(&self) -> io::Result<Option<Self::Lock>>;
    /// The names of all files in the directory.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates a file; fails if the name exists. The file is durable after [`Disk::sync`] and
    /// [`Disk::sync_directory`].
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Reads at most `buffer.len()` bytes from `offset`; 0 is the end of the file.
    fn read_at(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`. Returns the number of bytes taken, which may be smaller.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes the written bytes and the length survive a loss of power (`fdatasync`).
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Sets the length of the file to `bytes`, and syncs that.
    fn truncate(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Renames a file, and atomically replaces a file of the new name, if there is one. The rename is durable after
    /// [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file. The deletion is durable after [`Disk::sync_directory`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the list of files survive a loss of power.
    fn sync_directory(&self) -> io::Result<()>;
    /// The path of a file for error messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// The file that a writer locks. It is empty and remains when the writer is gone.
pub const LOCK: &str = "lock";

/// A directory of the file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The open directory, for syncing the list of files.
    handle: File,
}

/// Replaces a file, completely or not at all; only its owner may read it. `write` gets the new one, whose name ends in `.new` until it is
/// durable.
///
/// # Errors
/// The disk's error, and that of `write`. The file is as it was, unless its directory cannot be synced.
pub fn replace_file(file: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let new = file.with_extension("new");
    let write_whole = || {
        let mut out =
            BufWriter::new(OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&new)?);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&new, file)
    };
    if let Err(error) = write_whole() {
        // The incomplete file may have filled the disk. If it stays, the next call replaces it.
        let _gone = fs::remove_file(&new);
        return Err(error);
    }
    let directory = file.parent().filter(|directory| *directory != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

impl Directory {
    /// Opens a directory, or creates it and its missing parents, for its owner only.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        let path = path.as_ref().to_path_buf();
        let missing = path.ancestors().take_while(|above| !above.is_dir() && *above != Path::new("")).count();
        if missing > 0 {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // A new directory is durable when its parent is synced.
            for above in path.canonicalize()?.ancestors().skip(1).take(missing) {
                File::open(above)?.sync_all()?;
            }
        }
        Ok(Directory { handle: File::open(&path)?, path })
    }
}

/// The locked file of a [`Directory`]. Dropping it unlocks the file.
#[derive(Debug)]
pub struct DirectoryLock(File);

/// Closing the file is not enough: a forked child that has not yet executed its program holds a copy, and the lock
/// with it.
impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Disk for Directory {
    type File = File;
    type Lock = DirectoryLock;

    fn lock(&self) -> io::Result<Option<DirectoryLock>> {
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(self.path(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(DirectoryLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().create_new(true).read(true).write(true).mode(OWNER_ONLY).open(self.path(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path(name))
    }

    fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn truncate(&self, file: &File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// The permissions of the files: records may hold private data.
const OWNER_ONLY: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_completely_or_not_at_all() {
        let directory = std::env::temp_dir().join(format!("journal-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let file = directory.join("saved.json");
        let text = || fs::read_to_string(&file).expect("a file");
        replace_file(&file, |file| file.write_all(b"one")).expect("written");
        assert_eq!(text(), "one");
        replace_file(&file, |file| file.write_all(b"two, longer").and(Err(io::ErrorKind::StorageFull.into())))
            .expect_err("a full disk");
        assert_eq!(text(), "one");
        replace_file(&file, |file| file.write_all(b"3")).expect("written");
        assert_eq!(text(), "3");
        assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, OWNER_ONLY);
        let names: Vec<_> = fs::read_dir(&directory).expect("names").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["saved.json"]);
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_dropped_lock_is_free_though_a_child_process_still_holds_its_file() {
        let path = std::env::temp_dir().join(format!("journal-lock-{}", std::process::id()));
        let directory = Directory::open(&path).expect("it opens");
        let lock = directory.lock().expect("it can be locked").expect("nobody has it");
        let _copy_of_a_child = lock.0.try_clone().expect("it can be copied");
        assert!(directory.lock().expect("it can be asked").is_none());
        drop(lock);
        assert!(directory.lock().expect("it can be locked").is_some());
        std::fs::remove_dir_all(&path).expect("it is there");
    }
}
