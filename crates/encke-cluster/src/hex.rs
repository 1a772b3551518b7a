//! Hexadecimal digits of hashes, for keys of the engine.

use std::fmt::Write as _;

/// Two digits for each byte.
pub(crate) fn of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    // Writing to a text never fails.
    bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}
