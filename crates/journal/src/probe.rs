//! A look at a journal that another process may be writing.

use std::io;

use crate::disk::{Disk, LOCK};
use crate::error::Error;
use crate::format::number_of;
use crate::journal::write_all;
use crate::open::{failed, read_header};

/// Finds out, beside the writer of a journal and without its lock, what would keep it from being opened: a disk that takes no file, a segment
/// that cannot be read, is of another version or has no header. Records are not read. The journal stays as it is.
///
/// # Errors
/// What [`Journal::open`](crate::Journal::open) would say, but for the lock.
pub fn probe<D: Disk>(disk: &D) -> Result<(), Error> {
    write(disk).map_err(|error| failed(disk, "write", PROBE, error))?;
    for name in disk.list().map_err(|error| failed(disk, "list the directory of", LOCK, error))? {
        match number_of(&name).map(|number| read_header(disk, number)) {
            // Its writer has no need of it any more.
            Some(Err(Error::Io { source, .. })) if source.kind() == io::ErrorKind::NotFound => {}
            Some(header) => _ = header?,
            None => {}
        }
    }
    Ok(())
}

/// Writes a file, and removes it.
fn write<D: Disk>(disk: &D) -> io::Result<()> {
    let _left_by_another = disk.remove(PROBE);
    let file = disk.create(PROBE)?;
    let written = write_all(disk, &file, &[0; BLOCK_BYTES], 0).and_then(|()| disk.sync(&file));
    disk.remove(PROBE).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    written
}

/// The file that is written to see whether one can be.
pub(crate) const PROBE: &str = "probe";
/// Its length, in bytes: what the first record of a new life of the journal's owner may need, and more.
const BLOCK_BYTES: usize = 4096;
