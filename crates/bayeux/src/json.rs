//! A validating JSON scanner that builds no tree.
//!
//! The server needs a few fields of a message and passes the rest on. So the text is checked against RFC 8259 once, and
//! what is wanted comes out as slices of that very text: `12345678901234567890`, `1e400`, `-0` and `"\ud800"`, which
//! parsers into trees change, stay exact to the last byte.
//!
//! All functions take time linear in the text and stack space that does not depend on it.

use std::borrow::Cow;
use std::str::Chars;

/// Why a text is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonError {
    /// The text is not JSON (RFC 8259).
    Invalid,
    /// Arrays and objects are nested deeper than allowed.
    TooDeep,
}

/// Checks that `text` is one JSON value, with nothing but space around it, and returns that value without the space.
///
/// `depth_max` bounds the levels of arrays and objects; values above 128 act as 128.
pub fn validate(text: &str, depth_max: usize) -> Result<&str, JsonError> {
    let mut scanner = Scanner::new(text);
    scanner.space();
    let value = scanner.value(depth_max)?;
    scanner.space();
    if scanner.peek().is_some() {
        return Err(JsonError::Invalid);
    }
    Ok(value)
}

/// The raw value of the member `key` of a raw JSON object; the last one where the key stands twice, as clients' parsers
/// have it. `None` where there is no such member or `raw_object` is not an object.
pub fn member<'a>(raw_object: &'a str, key: &str) -> Option<&'a str> {
    let mut found = None;
    for (name, value) in members(raw_object) {
        if name.is(key) {
            found = Some(value);
        }
    }
    found
}

/// The members of a raw JSON object in their order. Ends early where the text is not valid.
pub fn members(raw_object: &str) -> Members<'_> {
    Members(Inside::new(raw_object, b'{'))
}

/// The raw elements of a raw JSON array in their order. Ends early where the text is not valid.
pub fn elements(raw_array: &str) -> Elements<'_> {
    Elements(Inside::new(raw_array, b'['))
}

/// The text of a raw JSON string. `None` where it is not a JSON string, or holds half a surrogate pair, which no Rust
/// text can carry.
pub fn decode_string(raw: &str) -> Option<Cow<'_, str>> {
    let mut scanner = Scanner::new(raw);
    let string = scanner.string().ok()?;
    if scanner.at != raw.len() {
        return None;
    }
    string.decode()
}

/// The whole part of a raw JSON number; what does not fit is held at the ends of `i64`. `None` where it is not a number.
pub fn integer(raw: &str) -> Option<i64> {
    let mut scanner = Scanner::new(raw);
    scanner.number().ok()?;
    if scanner.at != raw.len() {
        return None;
    }
    match raw.parse::<i64>() {
        Ok(integer) => Some(integer),
        // A fraction, an exponent, or too large: `as` cuts the fraction off and holds the rest at the ends.
        Err(_) => raw.parse::<f64>().ok().map(|float| float as i64),
    }
}

/// A JSON string as it stands in the text.
#[derive(Debug, Clone, Copy)]
pub struct RawString<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> RawString<'a> {
    /// The string with its quotes, byte for byte.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// The text it stands for; `None` where it holds half a surrogate pair.
    pub fn decode(self) -> Option<Cow<'a, str>> {
        if self.escaped {
            let text = char::decode_utf16(Utf16Units::new(self.raw)).collect::<Result<String, _>>();
            text.ok().map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(self.inner()))
        }
    }

    /// Whether it stands for `text`.
    pub fn is(self, text: &str) -> bool {
        if self.escaped {
            Utf16Units::new(self.raw).eq(text.encode_utf16())
        } else {
            self.inner() == text
        }
    }

    /// What stands between the quotes, when that is also the text it stands for.
    pub(crate) fn plain(self) -> Option<&'a str> {
        (!self.escaped).then(|| self.inner())
    }

    fn inner(self) -> &'a str {
        &self.raw[1..self.raw.len() - 1]
    }
}

/// Whether two raw JSON strings stand for the same text: `"a"` and `"\u0061"` do.
///
/// Stops at the first difference, so that it never costs more than the shorter of the two.
pub(crate) fn same_string(one: &str, other: &str) -> bool {
    one == other || Utf16Units::new(one).eq(Utf16Units::new(other))
}

/// The members of an object; see [`members`].
#[derive(Debug, Clone)]
pub struct Members<'a>(Inside<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (RawString<'a>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(b'}', |scanner| {
            let key = scanner.key()?;
            Ok((key, scanner.value(DEPTH_CAP)?))
        })
    }
}

/// The elements of an array; see [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a>(Inside<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(b']', |scanner| scanner.value(DEPTH_CAP))
    }
}

/// A walk through the items of one array or object.
#[derive(Debug, Clone)]
struct Inside<'a> {
    scanner: Scanner<'a>,
    state: Walk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    First,
    Later,
    Ended,
}

impl<'a> Inside<'a> {
    fn new(raw: &'a str, open: u8) -> Self {
        let mut scanner = Scanner::new(raw);
        scanner.space();
        let state = if scanner.take(open) { Walk::First } else { Walk::Ended };
        Inside { scanner, state }
    }

    fn advance<T>(&mut self, close: u8, item: impl FnOnce(&mut Scanner<'a>) -> Result<T, JsonError>) -> Option<T> {
        if self.state == Walk::Ended {
            return None;
        }
        self.scanner.space();
        let ended = self.scanner.take(close) || (self.state == Walk::Later && !self.scanner.take(b','));
        self.state = if ended { Walk::Ended } else { Walk::Later };
        if ended {
            return None;
        }
        self.scanner.space();
        let found = item(&mut self.scanner).ok();
        if found.is_none() {
            self.state = Walk::Ended;
        }
        found
    }
}

/// A place in a text that is read once, front to back.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Scanner { text, at: 0 }
    }

    /// The next byte; `None` at the end.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is next.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
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
            Some(b'{' | b'[') => self.nested(depth_max.min(DEPTH_CAP))?,
            _ => self.scalar()?,
        }
        Ok(&self.text[start..self.at])
    }

    /// Steps over an array or object with all that is in it, without recursion: what is open stands in a word of bits,
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
                    // `}` and `]` stand two places after their opening brackets in ASCII.
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
    fn number(&mut self) -> Result<(), JsonError> {
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
    #[inline]
    pub(crate) fn string(&mut self) -> Result<RawString<'a>, JsonError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        if bytes.get(start) != Some(&b'"') {
            return Err(JsonError::Invalid);
        }
        let mut at = start + 1;
        let mut escaped = false;
        loop {
            at = skip_plain(bytes, at);
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at += escape_bytes(&bytes[at..])?;
                }
                _ => return Err(JsonError::Invalid),
            }
        }
        self.at = at + 1;
        Ok(RawString { raw: &self.text[start..self.at], escaped })
    }
}

/// The first place from `at` on that is a quote, a backslash, a control character or the end.
///
/// Looks at eight bytes at a time, several times faster than one by one where strings are long, and no slower on keys.
#[inline]
fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            break;
        }
        at += 1;
    }
    at
}

/// Sets the top bit of each byte of `word` that is a quote, a backslash or a control character. Bytes above the lowest
/// one so marked may be marked by a borrow without cause; the lowest one is always right.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let quotes = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslashes = zero_bytes(word ^ (ONES * b'\\' as u64));
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & (ONES * 0x80)
}

/// How many bytes the escape at the start of `bytes` has.
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

/// What a valid raw JSON string stands for, in UTF-16: the one form that can tell halves of surrogate pairs, in which
/// JavaScript compares too.
#[derive(Debug, Clone)]
struct Utf16Units<'a> {
    chars: Chars<'a>,
    second_half: Option<u16>,
}

impl<'a> Utf16Units<'a> {
    fn new(raw: &'a str) -> Self {
        let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or("");
        Utf16Units { chars: inner.chars(), second_half: None }
    }
}

impl Iterator for Utf16Units<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if let Some(second) = self.second_half.take() {
            return Some(second);
        }
        let plain = match self.chars.next()? {
            '\\' => match self.chars.next()? {
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let digits = self.chars.by_ref().take(4);
                    return Some(digits.fold(0, |unit, digit| unit << 4 | digit.to_digit(16).unwrap_or(0) as u16));
                }
                itself => itself,
            },
            plain => plain,
        };
        let mut pair = [0; 2];
        let units = plain.encode_utf16(&mut pair);
        self.second_half = units.get(1).copied();
        units.first().copied()
    }
}

/// As many levels as [`Scanner::nested`] has bits to remember.
const DEPTH_CAP: usize = u128::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rfc_8259_allows_is_taken_and_kept_exact() {
        for text in [
            "0", "-0", "1e400", "1E+2", "-1.5e-3", "12345678901234567890", "true", "false", "null", "\"\"", "[]", "{}",
            "[[],{}]", r#""\ud800""#, r#""\"\\\/\b\f\n\r\t\u00e9""#, "\"\u{7f}\u{2028}é😀\"", r#"{"a":[1,{"b":null}],"c":""}"#,
            "[ 1 ,\t2\r\n]", r#"{ "a" : 1 , "b" : 2 }"#,
        ] {
            assert_eq!(validate(text, 8), Ok(text));
            assert_eq!(validate(&format!(" \t\r\n{text}\n "), 8), Ok(text));
        }
    }

    #[test]
    fn what_rfc_8259_forbids_is_refused() {
        for text in [
            "", " ", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "Infinity", "tru", "nulls", "\"", "\"\\\"",
            r#""\x""#, r#""\u12""#, r#""\u12g4""#, "\"\n\"", "\"\0\"", "\"12345678\u{1f}\"", "[", "]", "{", "[1,]", "[,]",
            "[1 2]", r#"{"a"}"#, r#"{"a":}"#, r#"{"a":1,}"#, "{,}", "{1:2}", r#"{"a":1 "b":2}"#, "[1}", r#"{"a":1]"#,
            "1 1", "[]]", "\u{feff}[]", "\u{a0}1", "'a'", "// 1", "{a:1}",
        ] {
            assert_eq!(validate(text, 8), Err(JsonError::Invalid), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(validate(&nested(8), 8).is_ok());
        assert_eq!(validate(&nested(9), 8), Err(JsonError::TooDeep));
        assert_eq!(validate("1", 0), Ok("1"));
        assert_eq!(validate("[]", 0), Err(JsonError::TooDeep));
        assert!(validate(&nested(128), usize::MAX).is_ok());
        assert_eq!(validate(&nested(129), usize::MAX), Err(JsonError::TooDeep));
        assert_eq!(validate(&"[".repeat(1_000_000), usize::MAX), Err(JsonError::TooDeep));
    }

    #[test]
    fn a_member_is_found_by_what_its_key_stands_for_and_the_last_wins() {
        let raw = r#"{"a":1,"\u0061":{"b":[2]},"c":"x"}"#;
        assert_eq!(member(raw, "a"), Some(r#"{"b":[2]}"#));
        assert_eq!(member(raw, "c"), Some(r#""x""#));
        assert_eq!(member(raw, "b"), None);
        for not_an_object in ["[]", "1", "", "{", r#"{"a""#, r#"{"a":"#] {
            assert_eq!(member(not_an_object, "a"), None);
        }
    }

    #[test]
    fn elements_come_raw_and_in_order() {
        assert_eq!(elements(r#"[ 1 , "a", [2] ]"#).collect::<Vec<_>>(), ["1", r#""a""#, "[2]"]);
        assert_eq!(elements("[]").count(), 0);
        assert_eq!(elements("[1 2").count(), 1);
    }

    #[test]
    fn strings_are_decoded_where_rust_can_hold_them() {
        assert_eq!(decode_string(r#""a\/b\n\ud83d\ude00é""#).as_deref(), Some("a/b\n😀é"));
        for raw in [r#""\ud800""#, r#""\ude00\ud83d""#, "1", r#""a"x"#, ""] {
            assert_eq!(decode_string(raw), None, "{raw}");
        }
        assert!(same_string(r#""😀\u0061""#, r#""\ud83d\ude00a""#));
        assert!(same_string(r#""\ud800""#, r#""\uD800""#));
        assert!(!same_string(r#""a""#, r#""ab""#));
    }

    #[test]
    fn integers_are_cut_and_held_at_the_ends() {
        for (raw, integer_is) in [
            ("0", Some(0)), ("-5", Some(-5)), ("1.9", Some(1)), ("-1.9", Some(-1)), ("1e3", Some(1000)), ("-0", Some(0)),
            ("1e400", Some(i64::MAX)), ("-1e400", Some(i64::MIN)), ("9223372036854775808", Some(i64::MAX)),
            ("true", None), ("\"1\"", None), ("-inf", None), ("1x", None), ("", None),
        ] {
            assert_eq!(integer(raw), integer_is, "{raw}");
        }
    }
}
