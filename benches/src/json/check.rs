//! Checks that the engines agree, which data they pass unchanged, and which input they refuse.

use bayeux::json;
use serde_json::Value;

use super::engine::Contestant;
use super::shapes::Shape;

/// The fate of a piece of data between publisher and subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passage {
    /// The same to the last byte.
    Unchanged,
    /// It came as this.
    Changed(String),
    /// The batch was refused.
    Refused,
}

/// An engine's results for data that is difficult for trees, and for input that is not JSON.
#[derive(Debug)]
pub struct Probed {
    /// The engine.
    pub engine: &'static str,
    /// In the order of [`FAITHFUL`].
    pub passages: Vec<Passage>,
    /// In the order of [`BROKEN`]: whether it is refused, as it must be.
    pub refused: Vec<bool>,
}

impl Probed {
    /// Returns true if the engine passes data unchanged and refuses everything that is not JSON.
    pub fn is_safe(&self) -> bool {
        self.passages.iter().all(|passage| *passage == Passage::Unchanged)
            && self.refused.iter().all(|refused| *refused)
    }
}

/// Valid JSON data, and the difficulty in each.
pub const FAITHFUL: &[(&str, &str)] = &[
    ("12345678901234567890", "above 2^63"),
    ("123456789012345678901", "above 2^64"),
    ("0.1000000000000000055511151231257827", "more digits than a double has"),
    ("1e400", "more than a double holds"),
    ("-0", "negative zero"),
    (r#""\ud800""#, "half a surrogate pair"),
];

/// Data that is not JSON (RFC 8259), and why.
pub const BROKEN: &[(&[u8], &str)] = &[
    (b"[1,]", "a comma too many"),
    (b"{\"a\" 1}", "no colon"),
    (b"01", "a leading zero"),
    (b"1.", "no digit after the point"),
    (b"nan", "an unknown word"),
    (b"\"\\q\"", "an unknown escape"),
    (b"\"\x01\"", "a control character in a text"),
    (b"\"\xc3\x28\"", "not UTF-8"),
    (b"[1}", "brackets that do not match"),
];

/// Checks that all engines find the same envelope in a batch and deliver the same.
///
/// # Errors
/// One line: which engine does something else.
pub fn same(engines: &mut [Box<dyn Contestant>], shape: &Shape) -> Result<(), String> {
    let mut first: Option<(Value, usize)> = None;
    for engine in engines {
        let name = engine.name();
        let (out, envelope_bytes) =
            engine.deliver(shape.text.as_bytes()).ok_or_else(|| format!("{name} refuses the batch {}", shape.name))?;
        let tree = serde_json::from_slice(&out)
            .map_err(|error| format!("{name} writes what is not JSON for the batch {}: {error}", shape.name))?;
        match &first {
            None => first = Some((tree, envelope_bytes)),
            Some(wanted) if *wanted == (tree, envelope_bytes) => {}
            Some(_) => return Err(format!("{name} delivers something else of the batch {}", shape.name)),
        }
    }
    Ok(())
}

/// Tries an engine with all of [`FAITHFUL`] and [`BROKEN`].
pub fn probe(engine: &mut dyn Contestant) -> Probed {
    Probed {
        engine: engine.name(),
        passages: FAITHFUL.iter().map(|(data, _)| passage(engine, data)).collect(),
        refused: BROKEN.iter().map(|(data, _)| engine.deliver(&batch_of(data)).is_none()).collect(),
    }
}

fn passage(engine: &mut dyn Contestant, data: &str) -> Passage {
    let Some((out, _)) = engine.deliver(&batch_of(data.as_bytes())) else {
        return Passage::Refused;
    };
    let text = String::from_utf8_lossy(&out);
    match json::elements(&text).next().and_then(|message| json::member(message, "data")) {
        Some(came) if came == data => Passage::Unchanged,
        came => Passage::Changed(came.unwrap_or("nothing").to_owned()),
    }
}

fn batch_of(data: &[u8]) -> Vec<u8> {
    [br#"[{"channel":"/a","clientId":"c","id":"1","data":"#, data, b"}]"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{engines, shapes};

    #[test]
    fn all_engines_deliver_the_same() {
        for shape in shapes::all() {
            same(&mut engines::all(), &shape).expect("the same");
        }
    }

    #[test]
    fn the_envelope_changes_nothing_and_lets_nothing_broken_through() {
        let probed = probe(engines::all()[0].as_mut());
        assert!(probed.is_safe(), "{probed:?}");
    }

    #[test]
    fn a_tree_loses_digits_and_that_is_seen() {
        let mut engines = engines::all();
        let tree = engines.iter_mut().find(|engine| engine.name() == "serde_json tree").expect("there");
        let probed = probe(tree.as_mut());
        assert_eq!(probed.passages[0], Passage::Unchanged);
        assert!(matches!(probed.passages[1], Passage::Changed(_)), "{probed:?}");
        assert!(!probed.is_safe());
    }
}
