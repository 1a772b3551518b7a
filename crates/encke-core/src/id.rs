//! Random ids that nobody can guess. Each names the shard that it belongs to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Characters of an id: the shard in two, then 150 random bits (Bayeux 1.0 asks for 128). In a cluster the first 20 of them
/// name the node, and 130 are left.
const ID_BYTES: usize = 32;
/// The characters of an id that name the node.
const NODE: std::ops::Range<usize> = 2..6;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The id of a session (`clientId`) or of a browser (the cookie): 32 characters, each 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Id([u8; ID_BYTES]);

/// The error for a text that is not a valid id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no id")]
pub struct NoId;

/// Names a node of a cluster in the ids of the sessions that it opens: four characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTag([u8; NODE_BYTES]);

/// The characters of a tag.
const NODE_BYTES: usize = NODE.end - NODE.start;

impl NodeTag {
    /// A random tag.
    pub fn new(entropy: &mut Entropy) -> NodeTag {
        Id::new(0, entropy).node()
    }

    /// Parses a tag. None if the text is not a valid one.
    pub fn parse(text: &str) -> Option<NodeTag> {
        let bytes: [u8; NODE_BYTES] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(|byte| is_character(*byte)).then_some(NodeTag(bytes))
    }

    /// Its characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Fills a buffer with random bytes: the kernel's in a server, seeded ones in a simulation.
pub type Entropy = Box<dyn FnMut(&mut [u8])>;

impl Id {
    /// A new id of a shard.
    pub fn new(shard: usize, entropy: &mut Entropy) -> Id {
        let mut bytes = [0; ID_BYTES];
        entropy(&mut bytes);
        for byte in &mut bytes {
            *byte = ALPHABET[usize::from(*byte & 31)];
        }
        bytes[0] = ALPHABET[shard / 32 % 32];
        bytes[1] = ALPHABET[shard % 32];
        Id(bytes)
    }

    /// A new id of a shard of this node.
    pub fn of_node(shard: usize, node: NodeTag, entropy: &mut Entropy) -> Id {
        let mut id = Id::new(shard, entropy);
        id.0[NODE].copy_from_slice(&node.0);
        id
    }

    /// The node that made it, if that is a node of a cluster. Any other id names a random one.
    pub fn node(&self) -> NodeTag {
        let mut tag = [0; NODE_BYTES];
        tag.copy_from_slice(&self.0[NODE]);
        NodeTag(tag)
    }

    /// Parses an id. None if the text is not a valid one.
    pub fn parse(text: &str) -> Option<Id> {
        let bytes: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        // Without a branch a byte: all of them are looked at at once.
        bytes.iter().fold(true, |valid, byte| valid & is_character(*byte)).then_some(Id(bytes))
    }

    /// The shard it belongs to.
    pub fn shard(&self) -> usize {
        value(self.0[0]).unwrap_or(0) * 32 + value(self.0[1]).unwrap_or(0)
    }

    /// True if a text is this id.
    pub fn is(&self, text: &str) -> bool {
        text.as_bytes() == self.0
    }

    /// Its characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.as_str().into()
    }
}

impl TryFrom<String> for Id {
    type Error = NoId;

    fn try_from(text: String) -> Result<Id, NoId> {
        Id::parse(&text).ok_or(NoId)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Logs show the beginning only, so nobody who reads them can take over a session.
impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", &self.as_str()[..6])
    }
}

/// Entropy of the kernel, for tests.
#[cfg(test)]
pub(crate) fn kernel_entropy() -> Entropy {
    Box::new(|bytes| getrandom::fill(bytes).expect("the kernel gives random bytes"))
}

fn is_character(byte: u8) -> bool {
    (byte.wrapping_sub(b'0') < 10) | (byte.wrapping_sub(b'a') < 22)
}

fn value(byte: u8) -> Option<usize> {
    match byte {
        b'0'..=b'9' => Some(usize::from(byte - b'0')),
        b'a'..=b'v' => Some(usize::from(byte - b'a') + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_shard_and_reads_back() {
        let mut entropy = kernel_entropy();
        for shard in [0, 1, 31, 32, 63] {
            let id = Id::new(shard, &mut entropy);
            assert_eq!(Id::parse(id.as_str()), Some(id));
            assert_eq!(id.shard(), shard);
        }
        assert_ne!(Id::new(0, &mut entropy), Id::new(0, &mut entropy));
    }

    #[test]
    fn an_id_names_its_node_and_the_rest_is_random() {
        let mut entropy = kernel_entropy();
        let node = NodeTag::new(&mut entropy);
        let ids = [Id::of_node(33, node, &mut entropy), Id::of_node(33, node, &mut entropy)];
        assert!(ids[0] != ids[1] && ids.iter().all(|id| (id.node(), id.shard()) == (node, 33)));
        assert_eq!(NodeTag::parse(node.as_str()), Some(node));
        assert!(["", "abc", "abcde", "abcX", "ab.c"].iter().all(|text| NodeTag::parse(text).is_none()));
        const { assert!((ID_BYTES - NODE.end) * 5 >= 128) };
    }

    #[test]
    fn foreign_ids_are_refused() {
        for text in ["", "0", "x".repeat(32).as_str(), "0".repeat(33).as_str(), "é".repeat(16).as_str()] {
            assert_eq!(Id::parse(text), None);
        }
    }

    #[test]
    fn an_id_has_the_characters_of_the_alphabet_and_no_others() {
        let id = Id::new(3, &mut kernel_entropy());
        for byte in 0..128_u8 {
            let text = id.as_str().replace(&id.as_str()[9..10], char::from(byte).encode_utf8(&mut [0; 4]));
            let is_one = ALPHABET.contains(&byte);
            assert_eq!(Id::parse(&text).map(|id| id.is(&text)), is_one.then_some(true), "{text}");
        }
        assert!(!id.is(&id.as_str()[1..]));
    }

    #[test]
    fn a_log_shows_only_the_beginning_of_an_id() {
        let id = Id::new(3, &mut kernel_entropy());
        assert!(!format!("{id:?}").contains(id.as_str()));
    }
}
