//! Lines of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// A line that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// All of it, without its end.
    Whole,
    /// It has more bytes than the limit. It was read to its end, and only its beginning is here.
    TooLong,
    /// There is none: the input has ended.
    End,
}

/// Reads a line into `line`, which never has more than `bytes_max` bytes. A last line needs no end.
pub(crate) async fn next(
    from: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    bytes_max: usize,
) -> io::Result<Line> {
    line.clear();
    let mut read = Line::End;
    loop {
        let bytes = from.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(read);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = bytes_max - line.len();
        line.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room {
            read = Line::TooLong;
        } else if read == Line::End {
            read = Line::Whole;
        }
        let used = end.map_or(bytes.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(read);
        }
    }
}

/// The error about a long line.
pub(crate) fn too_long(line_bytes_max: usize) -> String {
    format!("a line has more than {line_bytes_max} bytes (line_bytes_max) and is not published")
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_have_a_limit_whatever_the_pieces_they_arrive_in() {
        let text = "one\n\n123456\r\n1234567\n12345678901234567890\nend";
        for capacity in 1..text.len() + 1 {
            let mut from = BufReader::with_capacity(capacity, text.as_bytes());
            let (mut line, mut lines) = (Vec::new(), Vec::new());
            loop {
                let read = next(&mut from, &mut line, 7).await.expect("memory");
                assert!(line.len() <= 7);
                lines.push((String::from_utf8(line.clone()).expect("a text"), read));
                if read == Line::End {
                    break;
                }
            }
            let whole = |text: &str| (text.to_string(), Line::Whole);
            let long = ("1234567".to_string(), Line::TooLong);
            let end = (String::new(), Line::End);
            assert_eq!(lines, [whole("one"), whole(""), whole("123456\r"), whole("1234567"), long, whole("end"), end]);
        }
    }
}
