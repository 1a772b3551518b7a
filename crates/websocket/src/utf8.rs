//! UTF-8 checks: of whole texts, and of texts that still grow.

use crate::ProtocolError;

/// A whole text, checked with SIMD.
pub(crate) fn whole(bytes: &[u8]) -> Result<&str, ProtocolError> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| ProtocolError::InvalidUtf8)
}

/// How many bytes of a text that may go on are whole valid characters. The at most three bytes behind them may still become
/// a character; anything that cannot is an error at once (RFC 6455 §8.1, Autobahn 6.4).
pub(crate) fn valid_bytes(bytes: &[u8]) -> Result<usize, ProtocolError> {
    match simdutf8::compat::from_utf8(bytes) {
        Ok(_) => Ok(bytes.len()),
        Err(error) if error.error_len().is_none() => Ok(error.valid_up_to()),
        Err(_) => Err(ProtocolError::InvalidUtf8),
    }
}
