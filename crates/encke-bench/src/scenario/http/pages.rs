//! The files that are asked for unless others are named.

use std::fs;
use std::path::Path;

use crate::problem::Problem;

/// Their names with their sizes.
pub(super) const NAMES: [&str; 3] = ["2kB.bin", "14kB.bin", "954kB.bin"];

/// Their sizes in bytes: small, medium and very large, as in 2006.
const SIZES: [usize; 3] = [2_000, 14_000, 954_000];

/// Writes those that are missing, or not as long as they should be, and the directory. Returns their names.
///
/// # Errors
/// Something cannot be written.
pub(super) fn write_missing(folder: &Path) -> Result<Vec<&'static str>, Problem> {
    let fail =
        |path: &Path, error: std::io::Error| Problem::Machine(format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| fail(folder, error))?;
    let mut written = Vec::new();
    for (name, size) in NAMES.into_iter().zip(SIZES) {
        let path = folder.join(name);
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == size as u64) {
            continue;
        }
        // Bytes that do not compress well, and are the same each time.
        let bytes: Vec<u8> = (0..size as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        fs::write(&path, bytes).map_err(|error| fail(&path, error))?;
        written.push(name);
    }
    Ok(written)
}
