//! UTF-8 checks of complete texts, and of texts that still grow.

use crate::ProtocolError;

/// Checks a complete text with SIMD.
pub(crate) fn whole(bytes: &[u8]) -> Result<&str, ProtocolError> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| ProtocolError::InvalidUtf8)
}

/// The number of bytes of a growing text that are whole valid characters. The at most three bytes after them may
/// still become a character; any other byte is an error at once (RFC 6455 §8.1, Autobahn 6.4).
pub(crate) fn valid_bytes(bytes: &[u8]) -> Result<usize, ProtocolError> {
    match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(error.valid_up_to()),
        Err(_) => Err(ProtocolError::InvalidUtf8),
    }
}
