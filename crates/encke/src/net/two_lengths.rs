//! A request with a length beside chunks. Such a request may be an attempt to smuggle another one past a proxy (RFC 9112
//! §6.3). hyper drops the length, so this module looks at the head before hyper does.

use smallvec::SmallVec;

/// Watches the head of one request. The bytes behind the head do not matter.
#[derive(Debug, Default)]
pub(super) struct TwoLengths {
    /// The beginning of the line that is being read, in lower case.
    line: SmallVec<[u8; CHUNKS.len()]>,
    /// True behind the request line.
    has_request: bool,
    has_length: bool,
    has_chunks: bool,
    /// True behind the head.
    is_over: bool,
}

impl TwoLengths {
    /// Reads bytes that may be part of the head. Returns true if the head has both fields.
    pub(super) fn look(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes.iter().filter(|byte| **byte != b'\r') {
            if self.is_over {
                break;
            }
            if *byte == b'\n' {
                self.has_length |= self.has_request && self.line.starts_with(LENGTH);
                self.has_chunks |= self.has_request && self.line.starts_with(CHUNKS);
                // There may be empty lines before the request line.
                self.is_over = self.has_request && self.line.is_empty();
                self.has_request |= !self.line.is_empty();
                self.line.clear();
            } else if self.line.len() < CHUNKS.len() {
                self.line.push(byte.to_ascii_lowercase());
            }
        }
        self.has_length && self.has_chunks
    }
}

const LENGTH: &[u8] = b"content-length:";
const CHUNKS: &[u8; 18] = b"transfer-encoding:";

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(text: &str, step: usize) -> bool {
        let mut watch = TwoLengths::default();
        text.as_bytes().chunks(step).fold(false, |_, part| watch.look(part))
    }

    #[test]
    fn both_fields_of_one_head_are_found_in_any_order_and_in_parts() {
        let (length, chunks) = ("Content-Length: 4\r\n", "TRANSFER-encoding:chunked\r\n");
        for step in [1, 2, 7, 1_000] {
            for fields in [format!("{length}{chunks}"), format!("{chunks}a: b\r\n{length}")] {
                assert!(looked(&format!("\r\nPOST / HTTP/1.1\r\n{fields}\r\n"), step), "{fields}");
                assert!(looked(&format!("POST / HTTP/1.1\n{}\n", fields.replace('\r', "")), step), "{fields}");
            }
            for harmless in [
                format!("POST / HTTP/1.1\r\n{length}\r\n{chunks}\r\n"),
                format!("POST / HTTP/1.1\r\nx-{length}{chunks}\r\n"),
                format!("POST / HTTP/1.1\r\na: {length}b: {chunks}{chunks}\r\n"),
                format!("content-length:{chunks}\r\n"),
            ] {
                assert!(!looked(&harmless, step), "{harmless}");
            }
        }
    }
}
