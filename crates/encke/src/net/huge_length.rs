//! A `Content-Length` of 2⁶⁴ − 1 or 2⁶⁴ − 2. hyper reserves these two numbers and answers such a request itself with
//! 431, the status for a head that is too large. The body is too large, so this module changes the status to 413.

use memchr::memmem;

/// Watches one connection for such a length.
#[derive(Debug, Default)]
pub(super) struct HugeLength {
    is_there: bool,
}

impl HugeLength {
    /// Searches bytes that may be part of a head.
    pub(super) fn look(&mut self, bytes: &[u8]) {
        self.is_there |= memmem::find(bytes, DIGITS).is_some();
    }

    /// hyper accepted the request, so it has no such length.
    pub(super) fn forget(&mut self) {
        self.is_there = false;
    }

    /// The bytes to write instead of `bytes`, if these are hyper's refusal. The length is the same, so partial writes
    /// need no bookkeeping.
    pub(super) fn corrected(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let rest = bytes.strip_prefix(REFUSAL).filter(|_| self.is_there)?;
        Some([MENDED, rest].concat())
    }
}

const DIGITS: &[u8] = b"1844674407370955161";
const REFUSAL: &[u8; 44] = b"HTTP/1.1 431 Request Header Fields Too Large";
const MENDED: &[u8; 44] = b"HTTP/1.1 413 Content Too Large by Its Length";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_refusal_of_a_huge_length_is_corrected() {
        let mut length = HugeLength::default();
        let refusal = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n";
        length.look(b"POST / HTTP/1.1\r\ncontent-length: 1844674407370955\r\n\r\n");
        assert_eq!(length.corrected(refusal), None);
        length.look(b"POST / HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\n");
        let corrected = length.corrected(refusal).expect("another answer");
        assert!(corrected.starts_with(b"HTTP/1.1 413 ") && corrected.ends_with(b"\r\ncontent-length: 0\r\n\r\n"));
        assert_eq!(corrected.len(), refusal.len());
        assert_eq!(length.corrected(b"HTTP/1.1 200 OK\r\n\r\n"), None);
        length.forget();
        assert_eq!(length.corrected(refusal), None);
    }
}
