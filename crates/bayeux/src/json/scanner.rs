//! The scanner: one pass over the bytes, without recursion and allocation.

use super::{JsonError, RawString};

/// A position in a text that is read once, front to back.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// True if a string has had an escape.
    has_escapes: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Scanner { text, at: 0, has_escapes: false }
    }

    /// The number of bytes read.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// True if a string read so far has escapes.
    #[inline]
    pub(crate) fn has_escapes(&self) -> bool {
        self.has_escapes
    }

    /// The next byte; `None` at the end.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is next. A branch, not a sum: the processor predicts it and need not wait, so a publish takes
    /// 90 ns instead of 145.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        if self.peek() != Some(byte) {
            return false;
        }
        self.at += 1;
        true
    }

    /// Steps over the space that JSON allows between tokens.
    #[inline]
    pub(crate) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Steps over a member's key, the colon and the space around it.
    #[inline]
    pub(crate) fn key(&mut self) -> Result<RawString<'a>, JsonError> {
        let key = self.string()?;
        self.space();
        if !self.take(b':') {
            return Err(JsonError::Invalid);
        }
        self.space();
        Ok(key)
    }

    /// Steps over one value of any kind and returns it raw.
    #[inline]
    pub(crate) fn value(&mut self, depth_max: usize) -> Result<&'a str, JsonError> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => return self.string().map(RawString::raw),
            Some(b'{' | b'[') => self.nested(depth_max.min(DEPTH_CAP))?,
            _ => self.scalar()?,
        }
        // In two steps: the compiler inlines both, but not a slice of a range, which cost 5 % of parsing.
        Ok(&self.text[..self.at][start..])
    }

    /// Steps over an array or object with its content, without recursion. A word has a bit for each open array or object,
    /// the innermost lowest, 1 for an object.
    fn nested(&mut self, depth_max: usize) -> Result<(), JsonError> {
        let mut open: u128 = 0;
        let mut depth = 0;
        loop {
            // Here a value must begin.
            match self.peek() {
                Some(bracket @ (b'{' | b'[')) => {
                    if depth == depth_max {
                        return Err(JsonError::TooDeep);
                    }
                    let object = bracket == b'{';
                    self.at += 1;
                    self.space();
                    // The ASCII codes of `}` and `]` are their opening brackets' codes plus two.
                    if !self.take(bracket + 2) {
                        open = open << 1 | u128::from(object);
                        depth += 1;
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            // Here a value has ended, and perhaps with it what it stands in.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let object = open & 1 == 1;
                self.space();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        self.space();
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return Err(JsonError::Invalid),
                }
                self.at += 1;
                open >>= 1;
                depth -= 1;
            }
        }
    }

    #[inline]
    fn scalar(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(JsonError::Invalid),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(JsonError::Invalid);
        }
        self.at += word.len();
        Ok(())
    }

    /// RFC 8259 §6: an optional minus, digits without a leading zero, an optional fraction, an optional exponent.
    pub(super) fn number(&mut self) -> Result<(), JsonError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(JsonError::Invalid) } else { Ok(()) }
    }

    /// RFC 8259 §7: control characters must be escaped, and only the known escapes exist.
    ///
    /// Always inlined: a message is mostly strings, and the calls alone cost a fifth of the whole.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Result<RawString<'a>, JsonError> {
        let start = self.at;
        if !self.take(b'"') {
            return Err(JsonError::Invalid);
        }
        let end = skip_plain(self.text.as_bytes(), self.at);
        if self.text.as_bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(RawString(&self.text[..self.at][start..]));
        }
        self.at = end;
        self.escaped_string(start)
    }

    /// The rest of a string that began at `start`, from its first escape on. Apart from [`string`](Self::string), so that
    /// the common case is small enough to be inlined.
    #[inline(never)]
    fn escaped_string(&mut self, start: usize) -> Result<RawString<'a>, JsonError> {
        let bytes = self.text.as_bytes();
        self.has_escapes = true;
        while self.peek() == Some(b'\\') {
            self.at += escape_bytes(&bytes[self.at..])?;
            self.at = skip_plain(bytes, self.at);
        }
        if !self.take(b'"') {
            return Err(JsonError::Invalid);
        }
        Ok(RawString(&self.text[..self.at][start..]))
    }
}

/// The first place from `at` on that is a quote, a backslash, a control character or the end.
///
/// Looks at eight bytes at a time, several times faster than one by one where strings are long, and no slower on keys. What is longer
/// than those is left to [`skip_far`], so that this is small enough to be inlined.
#[inline]
pub(crate) fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    for _ in 0..NEAR_WORDS {
        let Some(chunk) = bytes[at..].first_chunk::<8>() else { break };
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    skip_far(bytes, at)
}

/// The same for what is left of a string: in words, in chunks if it is long, and the last bytes one by one.
#[inline(never)]
fn skip_far(bytes: &[u8], mut at: usize) -> usize {
    let long_from = at + LONG_BYTES;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
        if at == long_from {
            at += CHUNK_BYTES * bytes[at..].as_chunks().0.iter().take_while(|chunk| is_plain(chunk)).count();
        }
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            break;
        }
        at += 1;
    }
    at
}

/// True if none of the bytes is a quote, a backslash or a control character. The compiler makes vector instructions of it, which are
/// several times faster than words.
fn is_plain(chunk: &[u8; CHUNK_BYTES]) -> bool {
    let is_special = |byte: u8| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < 0x20);
    chunk.iter().fold(0, |found, byte| found | is_special(*byte)) == 0
}

/// Sets the top bit of each byte of `word` that is a quote, a backslash or a control character. Bytes above the lowest
/// one so marked may be marked by a borrow without cause; the lowest one is always right.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    // Toggling 2 makes a quote (0x22) a space (0x20), just above the control characters. These only swap codes among themselves.
    let quotes_and_controls = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslashes = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (quotes_and_controls | backslashes) & !word & (ONES * 0x80)
}

/// The length in bytes of the escape at the start of `bytes`.
fn escape_bytes(bytes: &[u8]) -> Result<usize, JsonError> {
    match bytes.get(1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => match bytes.get(2..6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(6),
            _ => Err(JsonError::Invalid),
        },
        _ => Err(JsonError::Invalid),
    }
}

/// The words of eight bytes that most keys end in.
const NEAR_WORDS: usize = 2;
/// The bytes after these words from which on a string is long.
const LONG_BYTES: usize = 64;
/// The bytes of a long string that are looked at together.
const CHUNK_BYTES: usize = 64;

/// The deepest nesting that any limit allows: one level for each bit of the word that notes open arrays and objects.
pub const DEPTH_CAP: usize = u128::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_plain_text_is_found_wherever_it_is() {
        // Bytes beside those that end it are plain.
        let text: Vec<u8> = [0x20, b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff].repeat(60);
        for from in 0..9 {
            assert_eq!(skip_plain(&text, from), text.len());
            for end in from..text.len() {
                for special in [b'"', b'\\', 0, 0x1f] {
                    let mut text = text.clone();
                    text[end] = special;
                    assert_eq!(skip_plain(&text, from), end);
                    assert_eq!(skip_plain(&text[..end], from), end);
                }
            }
        }
    }
}
