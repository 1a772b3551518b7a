//! The batches: from the smallest publication to one of 64 KiB.

use std::fmt::Write as _;

/// A batch and how often it is worked on in one iteration.
#[derive(Debug)]
pub struct Shape {
    /// One word for tables.
    pub name: &'static str,
    /// The workload it represents.
    pub what: &'static str,
    /// An array of messages.
    pub text: String,
    /// Times an iteration, so that one takes a good part of a second with a tree.
    pub times: u32,
}

/// All shapes, from small to large.
pub fn all() -> Vec<Shape> {
    let chat = r#"{"peer":"bar","chat":"woot","user":"foo","room":"abc"}"#;
    let extended = format!(
        r#"[{{"successful":true,"id":"1","clientId":"{CLIENT_ID}","channel":"/chat/demo","data":{chat},"advice":{{"timeout":0}},"ext":{{"com.acme.auth":{{"token":"0123456789"}}}}}}]"#
    );
    vec![
        Shape {
            name: "small",
            what: "one publication with 50 bytes of data, as in the rooms",
            text: format!("[{}]", publication(1, &fifty_bytes(1))),
            times: 400_000,
        },
        Shape {
            name: "chat",
            what: "one publication with nested chat data, ext and advice, the kind that CometD's JSON test reads",
            text: extended,
            times: 200_000,
        },
        Shape {
            name: "nested",
            what: "one publication with 1 KiB of nested data: texts with escapes, numbers, lists",
            text: format!("[{}]", publication(1, &orders(1024))),
            times: 60_000,
        },
        Shape {
            name: "batch",
            what: "ten publications with 50 bytes of data each",
            text: {
                let messages: Vec<String> = (1..=10).map(|id| publication(id, &fifty_bytes(id))).collect();
                format!("[{}]", messages.join(","))
            },
            times: 40_000,
        },
        Shape {
            name: "large",
            what: "one publication with 64 KiB of nested data",
            text: format!("[{}]", publication(1, &orders(64 * 1024))),
            times: 1000,
        },
    ]
}

fn publication(id: u32, data: &str) -> String {
    format!(r#"{{"id":"{id}","channel":"/bench/a/00042","clientId":"{CLIENT_ID}","data":{data}}}"#)
}

fn fifty_bytes(number: u32) -> String {
    format!(r#"{{"room":42,"number":{},"text":"{}"}}"#, 10_000 + number, "x".repeat(14))
}

/// Orders of a shop, up to this many bytes.
fn orders(bytes: usize) -> String {
    let mut text = String::from(r#"{"orders":["#);
    for number in 0.. {
        let order = format!(
            r#"{{"number":{},"customer":"Ann \"Q\" M\u00fcller","paid":{},"total":{}.25,"lines":[{{"sku":"A-{number:04}","pieces":3}},{{"sku":"B-{number:04}","pieces":1,"note":null}}]}}"#,
            1_000_000 + number,
            number % 2 == 0,
            10 + number % 90,
        );
        if number > 0 && text.len() + order.len() + 3 > bytes {
            break;
        }
        let _ = write!(text, "{}{order}", if number > 0 { "," } else { "" });
    }
    text + "]}"
}

const CLIENT_ID: &str = "0a1b2c3d4e5f6g7h8i9j0k1l2m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_data_they_are_named_for() {
        let data_bytes = |shape: &Shape| {
            let messages = bayeux::parse_batch(&shape.text, &bayeux::Limits::default()).expect("a batch");
            let bytes = messages.iter().map(|message| message.data.expect("data").as_str().len()).collect::<Vec<_>>();
            (bytes.len(), bytes[0])
        };
        let shapes = all();
        assert_eq!(data_bytes(&shapes[0]), (1, 50));
        assert_eq!(data_bytes(&shapes[3]), (10, 50));
        for (shape, wanted) in [(&shapes[2], 1024), (&shapes[4], 64 * 1024)] {
            let (_, bytes) = data_bytes(shape);
            assert!(bytes <= wanted && bytes > wanted - 200, "{}: {bytes}", shape.name);
        }
    }
}
