//! What a journal needs of a disk, and the real one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// One directory of files. Calls may fail, write less than asked for, or be interrupted; the journal copes.
pub trait Disk {
    /// An open file.
    type File;
    /// Keeps other writers out while it lives.
    type Lock;

    /// Takes the directory for this writer; `None` if another one has it. Makes the file [`LOCK`] if it needs one.
    fn lock(&self) -> io::Result<Option<Self::Lock>>;
    /// The names of all files in the directory.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes a file; fails if there is one of that name. It is there for sure after [`Disk::sync`] and [`Disk::sync_directory`].
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// Reads at most `buffer.len()` bytes from `offset`; 0 is the end of the file.
    fn read_at(&self, file: &Self::File, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset`; says how many bytes were taken, which may be fewer.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Puts what was written, and the length, where it survives a loss of power (`fdatasync`).
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Makes the file `bytes` long, and syncs that.
    fn truncate(&self, file: &Self::File, bytes: u64) -> io::Result<()>;
    /// Gives a file another name, in place of the file that has it, if there is one: at no moment none. For sure after
    /// [`Disk::sync_directory`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Deletes a file; for sure after [`Disk::sync_directory`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Puts the list of files where it survives a loss of power.
    fn sync_directory(&self) -> io::Result<()>;
    /// What to call a file in messages to people.
    fn path(&self, name: &str) -> PathBuf;
}

/// The file that a writer holds locked. It is empty and stays when the writer is gone.
pub const LOCK: &str = "lock";

/// A directory of the file system.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// To sync the list of files.
    handle: File,
}

impl Directory {
    /// Opens a directory; makes it, and those above it, if it is not there: for its owner only.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        let path = path.as_ref().to_path_buf();
        let missing = path.ancestors().take_while(|above| !above.is_dir() && *above != Path::new("")).count();
        if missing > 0 {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // Each of those that were made is safe when the one that it is in is.
            for above in path.canonicalize()?.ancestors().skip(1).take(missing) {
                File::open(above)?.sync_all()?;
            }
        }
        Ok(Directory { handle: File::open(&path)?, path })
    }
}

/// The locked file of a [`Directory`]; unlocked when it is dropped.
#[derive(Debug)]
pub struct DirectoryLock(File);

/// Closing the file would not do: a child that was forked but has not yet begun its program holds a copy, and the lock with it.
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

/// Who may read and write the files: records may hold what others must not see.
const OWNER_ONLY: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::{Directory, Disk};

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
