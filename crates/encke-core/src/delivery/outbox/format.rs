//! The formats of messages beside frames. A stream has no frames: its text separates messages.

use bayeux::ext::{self, Plain};
use websocket::Opcode;

/// A format in which frames are written again, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Elements of a JSON array, each followed by a comma. Only for frames with one message each.
    Joined,
    /// Server-sent events (HTML Standard §9.2), each with an array of messages.
    Events,
    /// JSON lines, each with an array of messages.
    Lines,
    /// Server-sent events, each with a message whose position is the id: for clients without Bayeux.
    Messages,
    /// JSON lines, each with a message: for clients without Bayeux.
    MessageLines,
}

impl Format {
    /// Appends a whole frame: see [`Format::write`].
    pub(in crate::delivery) fn write_frame(self, frame: &[u8], out: &mut Vec<u8>) {
        if let Some((head, _)) = websocket::frame::split(frame) {
            self.write(frame, head, out);
        }
    }

    /// Appends a frame whose head has this many bytes. A ping becomes something that its client ignores, with the fields
    /// of its payload if the format has fields. A close frame becomes nothing: the stream ends.
    pub(super) fn write(self, frame: &[u8], head: usize, out: &mut Vec<u8>) {
        let payload = &frame[head..];
        let opcode = frame[0] & OPCODE;
        match self {
            Format::Joined => {
                out.extend_from_slice(payload.get(1..payload.len().max(1) - 1).unwrap_or_default());
                out.push(b',');
            }
            Format::Events if opcode == Opcode::Text as u8 => {
                out.extend_from_slice(b"data: ");
                write_in_line(payload, out);
                out.extend_from_slice(b"\n\n");
            }
            Format::Lines if opcode == Opcode::Text as u8 => {
                write_in_line(payload, out);
                out.push(b'\n');
            }
            Format::Messages if opcode == Opcode::Text as u8 => {
                if let Some(plain) = Plain::of(payload) {
                    write_event(payload, &plain, plain.position, out);
                }
            }
            Format::MessageLines if opcode == Opcode::Text as u8 => {
                if let Some(plain) = Plain::of(payload) {
                    write_loss(payload, &plain, "", "\n", out);
                    write_in_line(plain.message.as_bytes(), out);
                    out.push(b'\n');
                }
            }
            Format::Events | Format::Messages if opcode == Opcode::Ping as u8 => {
                out.extend_from_slice(if payload.is_empty() { b":" } else { payload });
                out.extend_from_slice(b"\n\n");
            }
            Format::Lines | Format::MessageLines if opcode == Opcode::Ping as u8 => out.push(b'\n'),
            Format::Events | Format::Lines | Format::Messages | Format::MessageLines => {}
        }
    }
}

/// Appends a message as an event with this id. An event of the type `gap` tells of messages that are missing, and one of the
/// type `end` is the last.
pub(in crate::delivery) fn write_event(payload: &[u8], plain: &Plain<'_>, id: Option<&str>, out: &mut Vec<u8>) {
    write_loss(payload, plain, "event: gap\ndata: ", "\n\n", out);
    let kind: &[u8] = match plain.message {
        message if message.starts_with("{\"gap\":") => b"event: gap\n",
        message if message.starts_with("{\"channel\":\"/meta/disconnect\"") => b"event: end\n",
        _ => b"",
    };
    out.extend_from_slice(kind);
    if let Some(id) = id {
        [b"id: ", id.as_bytes(), b"\n"].iter().for_each(|part| out.extend_from_slice(part));
    }
    out.extend_from_slice(b"data: ");
    write_in_line(plain.message.as_bytes(), out);
    out.extend_from_slice(b"\n\n");
}

/// Appends the loss before a message, if there is one.
fn write_loss(payload: &[u8], plain: &Plain<'_>, before: &str, after: &str, out: &mut Vec<u8>) {
    if let Some((channel, lost)) = ext::channel_of(payload).zip(plain.lost) {
        let loss = format!("{before}{{\"gap\":\"gone\",\"channel\":\"{channel}\",\"lost\":{lost}}}{after}");
        out.extend_from_slice(loss.as_bytes());
    }
}

/// Appends JSON in one line. In JSON only white space between tokens has line breaks.
fn write_in_line(json: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(json);
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}

/// The bits of a frame's first byte that hold its opcode (RFC 6455 §5.2).
const OPCODE: u8 = 0x0F;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: Format, opcode: Opcode, payload: &str) -> String {
        let (mut frame, mut out) = (Vec::new(), Vec::new());
        websocket::frame::message(opcode, payload.as_bytes(), &mut frame);
        format.write(&frame, frame.len() - payload.len(), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_message_stays_in_its_line_whatever_white_space_it_has() {
        let message = "[{\"channel\":\"/a\",\"data\":{\r\n\"x\":1,\r\r\"y\":\"\\n\u{2028}\u{85}\"\n}}]";
        let line = "[{\"channel\":\"/a\",\"data\":{  \"x\":1,  \"y\":\"\\n\u{2028}\u{85}\" }}]";
        assert_eq!(written(Format::Events, Opcode::Text, message), format!("data: {line}\n\n"));
        assert_eq!(written(Format::Lines, Opcode::Text, message), format!("{line}\n"));
    }

    #[test]
    fn a_client_without_bayeux_gets_positions_as_ids_and_gaps_as_events() {
        let message = r#"[{"channel":"/a","data":1,"position":"e-7"}]"#;
        let object = &message[1..message.len() - 1];
        assert_eq!(written(Format::Messages, Opcode::Text, message), format!("id: e-7\ndata: {object}\n\n"));
        assert_eq!(written(Format::MessageLines, Opcode::Text, message), format!("{object}\n"));
        let message = r#"[{"channel":"/a","data":1,"lost":{"from":3,"to":6},"position":"e-7"}]"#;
        let gap = r#"{"gap":"gone","channel":"/a","lost":{"from":3,"to":6}}"#;
        assert!(
            written(Format::Messages, Opcode::Text, message)
                .starts_with(&format!("event: gap\ndata: {gap}\n\nid: e-7\ndata: {{"))
        );
        assert!(written(Format::MessageLines, Opcode::Text, message).starts_with(&format!("{gap}\n{{")));
        let end = r#"[{"channel":"/meta/disconnect","successful":true}]"#;
        assert!(written(Format::Messages, Opcode::Text, end).starts_with("event: end\ndata: {"));
    }

    #[test]
    fn a_ping_is_ignored_by_every_client_and_a_close_frame_is_no_text() {
        assert_eq!(written(Format::Events, Opcode::Ping, ""), ":\n\n");
        assert_eq!(written(Format::Events, Opcode::Ping, "retry: 70"), "retry: 70\n\n");
        assert_eq!(written(Format::Lines, Opcode::Ping, "retry: 70"), "\n");
        assert_eq!([Format::Events, Format::Lines].map(|format| written(format, Opcode::Close, "")), ["", ""]);
    }
}
