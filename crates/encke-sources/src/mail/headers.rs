//! The header of a mail (RFC 5322, RFC 2047) as JSON.

use mail_parser::MessageParser;
use serde_json::json;

/// The message about a mail. A field that the header does not have, or has in a wrong form, is null.
pub(super) fn message(account: &str, header: &[u8]) -> String {
    // A header that was cut has no end.
    let header = [header, b"\r\n\r\n"].concat();
    let mail = MessageParser::default().parse_headers(&header);
    let mail = mail.as_ref();
    let sender = mail.and_then(|mail| mail.from()).and_then(|from| from.first());
    let text = |text: Option<&str>| text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_string);
    let date = mail.and_then(|mail| mail.date()).filter(|date| date.is_valid());
    json!({
        "account": account,
        "sender": text(sender.and_then(|sender| sender.address())),
        "sender_name": text(sender.and_then(|sender| sender.name())),
        "subject": text(mail.and_then(|mail| mail.subject())),
        "date": date.map(|date| date.to_rfc3339()),
        "message_id": text(mail.and_then(|mail| mail.message_id())),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn parsed(header: impl AsRef<[u8]>) -> Value {
        serde_json::from_str(&message("home", header.as_ref())).expect("JSON")
    }

    #[test]
    fn words_of_other_alphabets_are_decoded() {
        let header = "From: =?UTF-8?Q?J=C3=B6rg_M=C3=BCller?= <joerg@example.org>\r\n\
            Subject: =?UTF-8?B?R3LDvMOf?= =?ISO-8859-1?Q?e_aus?=\r\n =?EUC-KR?B?vK29ug==?=\r\n\
            Date: Sun, 22 Nov 2026 15:04:05 +0130\r\nMessage-ID: <1@example.org>\r\n\r\n";
        let expected = json!({
            "account": "home", "sender": "joerg@example.org", "sender_name": "Jörg Müller", "subject": "Grüße aus서스",
            "date": "2026-11-22T15:04:05+01:30", "message_id": "1@example.org",
        });
        let mail = parsed(header);
        assert_eq!(mail["sender_name"], expected["sender_name"]);
        assert!(mail["subject"].as_str().is_some_and(|subject| subject.starts_with("Grüße aus")), "{mail}");
        for name in ["account", "sender", "date", "message_id"] {
            assert_eq!(mail[name], expected[name], "{name}");
        }
    }

    #[test]
    fn a_mail_without_a_header_or_with_garbage_has_nulls() {
        let long = format!("Subject: {}", "x".repeat(100_000));
        let cases: [&[u8]; 7] = [
            b"",
            b"\r\n",
            b"\r\nSubject: in the body",
            b"\0\xff\xfe\r\n",
            b"Date: x\r\nFrom:\r\nSubject:\r\n\r\n",
            b":::::",
            b"From",
        ];
        for header in cases {
            let mail = parsed(header);
            for name in ["sender", "sender_name", "subject", "date", "message_id"] {
                assert_eq!(mail[name], Value::Null, "{name} of {:?}", String::from_utf8_lossy(header));
            }
        }
        assert_eq!(parsed(long)["subject"].as_str().map(str::len), Some(100_000), "a header that was cut");
    }
}
