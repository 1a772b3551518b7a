//! A request with a length beside chunks. Such a request may be an attempt to smuggle another one past a proxy (RFC 9112
//! §6.3). hyper drops the length, so this module looks at the head before hyper does.

/// Watches the head of one request. The bytes behind the head do not matter.
#[derive(Debug, Default)]
pub(super) struct TwoLengths {
    /// The name of the field that is being read, in lower case.
    name: [u8; LONGEST.len()],
    /// The bytes of the name so far; more than fit if it is none of the two.
    name_bytes: usize,
    part: Part,
    has_length: bool,
    has_chunks: bool,
}

/// The part of a head that comes next.
#[derive(Debug, Default, PartialEq, Eq)]
enum Part {
    /// Empty lines before the request line.
    #[default]
    Before,
    RequestLine,
    Name,
    Value,
    /// The head is over.
    Over,
}

impl TwoLengths {
    /// Reads bytes that may be part of the head. Returns true if the head has both fields.
    pub(super) fn look(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((&byte, rest)) = bytes.split_first()
            && self.part != Part::Over
        {
            bytes = rest;
            match self.part {
                Part::Before if matches!(byte, b'\r' | b'\n') => {}
                Part::Before => self.part = Part::RequestLine,
                Part::RequestLine | Part::Value => {
                    // The byte itself may be the end of the line.
                    let end = if byte == b'\n' { Some(0) } else { memchr::memchr(b'\n', rest).map(|at| at + 1) };
                    bytes = end.map_or(&[], |end| &rest[end..]);
                    if end.is_some() {
                        (self.part, self.name_bytes) = (Part::Name, 0);
                    }
                }
                Part::Name => self.name(byte),
                Part::Over => {}
            }
        }
        self.has_length && self.has_chunks
    }

    fn name(&mut self, byte: u8) {
        match byte {
            b':' => {
                let name = self.name.get(..self.name_bytes).unwrap_or_default();
                self.has_length |= name == b"content-length";
                self.has_chunks |= name == LONGEST;
                self.part = Part::Value;
            }
            b'\n' if self.name_bytes == 0 => self.part = Part::Over,
            b'\n' => self.name_bytes = 0,
            b'\r' => {}
            _ => {
                if let Some(slot) = self.name.get_mut(self.name_bytes) {
                    *slot = byte.to_ascii_lowercase();
                }
                self.name_bytes += 1;
            }
        }
    }
}

const LONGEST: &[u8; 17] = b"transfer-encoding";

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
