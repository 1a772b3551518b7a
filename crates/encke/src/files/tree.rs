//! The way to a file below a directory: name by name, without following links.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::percent_decode_str;
use rustix::fs::{Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

/// The state of a file. Another state means that it may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
    inode: (u64, u64),
    changed: (i64, i64),
}

/// The path of a file below the directory that a request asks for: its names with slashes between them. A path with a slash at its end is
/// that of the folder's index. None for a path that no file has.
pub(super) fn file_of(path: &str) -> Option<String> {
    // An encoded slash would be a second name of a file, which a proxy in front does not know.
    if path.contains("%2f") || path.contains("%2F") {
        return None;
    }
    let path = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    let is_folder = path.is_empty() || path.ends_with('/');
    Some(format!("{path}{}", if is_folder { INDEX } else { "" }))
}

/// The path of a folder below the directory whose index this is.
pub(super) fn folder_of(file: &str) -> Option<&str> {
    file.strip_suffix(INDEX).filter(|folder| folder.is_empty() || folder.ends_with('/'))
}

/// Opens the folder of a file. Returns it with the name of the file. None if there is no such folder.
pub(super) fn open_folder<'f>(root: &Path, file: &'f str) -> io::Result<Option<(OwnedFd, &'f str)>> {
    let (folders, name) = file.rsplit_once('/').map_or((None, file), |(folders, name)| (Some(folders), name));
    if !is_public(name) {
        return Ok(None);
    }
    let mut at = step(rustix::fs::CWD, root, OFlags::DIRECTORY)?;
    for folder in folders.into_iter().flat_map(|folders| folders.split('/')) {
        let Some(from) = at.filter(|_| is_public(folder)) else { return Ok(None) };
        at = step(&from, Path::new(folder), OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    }
    Ok(at.map(|folder| (folder, name)))
}

/// Opens a file in a folder. None if there is none; links, pipes and devices are none.
pub(super) fn open_file(folder: impl AsFd, name: &str) -> io::Result<Option<(File, Stamp)>> {
    // Non-blocking: opening a named pipe would wait.
    let Some(file) = step(folder, Path::new(name), OFlags::NOFOLLOW | OFlags::NONBLOCK)? else { return Ok(None) };
    let file = File::from(file);
    let metadata = file.metadata()?;
    let stamp = Stamp {
        bytes: metadata.len(),
        modified: metadata.modified().unwrap_or(UNIX_EPOCH),
        inode: (metadata.dev(), metadata.ino()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    Ok(metadata.is_file().then_some((file, stamp)))
}

/// True if there is a folder of this name in a folder.
pub(super) fn is_folder(folder: impl AsFd, name: &str) -> io::Result<bool> {
    Ok(step(folder, Path::new(name), OFlags::DIRECTORY | OFlags::NOFOLLOW)?.is_some())
}

/// Reads a file of at most this size. It may have become shorter.
pub(super) fn read(file: &File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

/// The names of the files and folders in a folder that may be served, in their order, those of folders with a slash at the end; at most
/// `names_max` of them, and true if there are more.
pub(super) fn names(folder: impl AsFd, names_max: usize) -> io::Result<(Vec<String>, bool)> {
    let (mut names, mut has_more) = (Vec::new(), false);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let end = match entry.file_type() {
            FileType::Directory => "/",
            FileType::RegularFile => "",
            _ => continue,
        };
        let Some(name) = entry.file_name().to_str().ok().filter(|name| is_public(name)) else { continue };
        if names.len() == names_max {
            has_more = true;
            break;
        }
        names.push(format!("{name}{end}"));
    }
    names.sort_unstable();
    Ok((names, has_more))
}

impl Stamp {
    /// True if the file may change once more without another stamp: the clock of the file system stands still for some milliseconds.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        now < self.modified + CLOCK_STEP
    }
}

/// False for names with a dot in front, which are private (`.git`, `.htpasswd`), and for those that are none. Browsers treat a backslash
/// as a slash.
fn is_public(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['\\', '\0', '/'])
}

fn step(from: impl AsFd, name: &Path, flags: OFlags) -> io::Result<Option<OwnedFd>> {
    match openat(from, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        // These are failures of the machine. All others mean that no such file is served.
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// The file that stands for its folder.
const INDEX: &str = "index.html";
/// More than a step of the kernel's clock for files, which is up to 10 ms.
const CLOCK_STEP: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_one_file_at_most() {
        for (path, wanted) in [
            ("/", Some("index.html")),
            ("/a.txt", Some("a.txt")),
            ("/sub/", Some("sub/index.html")),
            ("/sub/a%20b", Some("sub/a b")),
            ("/a%2fb", None),
            ("/a%2Fb", None),
            ("/%ff", None),
            ("*", None),
        ] {
            assert_eq!(file_of(path).as_deref(), wanted, "{path}");
        }
        assert_eq!(folder_of("index.html"), Some(""));
        assert_eq!(folder_of("sub/index.html"), Some("sub/"));
        assert_eq!(folder_of("sub/an-index.html"), None);
        assert_eq!(folder_of("sub/a.html"), None);
    }
}
