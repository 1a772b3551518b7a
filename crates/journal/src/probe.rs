//! A check of a journal that another process may be writing.

use std::io;

use crate::disk::{Disk, LOCK};
use crate::error::Error;
use crate::format::{PROBE, number_of};
use crate::journal::write_all;
use crate::open::{failed, read_header};

/// Checks, beside the writer of a journal and without its lock, for reasons why it could not be opened: a disk that
/// takes no file, a segment that cannot be read, has another version or has no header. It reads no records and
/// changes nothing in the journal.
///
/// # Errors
/// The error that [`Journal::open`](crate::Journal::open) would return, except for the lock.
pub fn probe<D: Disk>(disk: &D) -> Result<(), Error> {
    write(disk).map_err(|error| failed(disk, "write", PROBE, error))?;
    for name in disk.list().map_err(|error| failed(disk, "list the directory of", LOCK, error))? {
        match number_of(&name).map(|number| read_header(disk, number)) {
            // The writer has just removed it.
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

/// The length of the file that tests the disk, in bytes: more than the first record of the owner's next life may need.
const BLOCK_BYTES: usize = 4096;
