//! The names of sessions in lists.
//!
//! Whoever knows the id of a session can act as its client, so a list shows a name instead: it stands for the session
//! wherever an operation takes one, and tells nothing else. A name is the id under a permutation that only this process
//! knows: it draws a key when it starts. So a session keeps its name until the process ends, and no table is needed to
//! find it.
//!
//! In a cluster a name begins with the tag of the node that has made it: other nodes ask that one.
//!
//! The shard stays readable, as in an id. The 30 random characters after it, of 5 bits each, pass a Feistel network of
//! four rounds, whose function is SHA-256 with the key (Luby and Rackoff, 1988).

use encke_core::{Id, NodeTag};
use sha2::{Digest, Sha256};

use crate::entropy::kernel_entropy;

/// The key of the names of one process.
pub(crate) struct SessionNames {
    key: [u8; 32],
    /// The beginning of its names.
    prefix: String,
}

impl SessionNames {
    /// A new random key. `node`: the tag of the node in a cluster.
    pub(crate) fn new(node: Option<NodeTag>) -> SessionNames {
        let mut key = [0; 32];
        kernel_entropy()(&mut key);
        let prefix = node.map_or_else(|| PREFIX.into(), |node| format!("{PREFIX}{}-", node.as_str()));
        SessionNames { key, prefix }
    }

    /// The tag of the node that has made a name. None if it is no name of a node.
    pub(crate) fn node_of(named: &str) -> Option<NodeTag> {
        NodeTag::parse(named.strip_prefix(PREFIX)?.split_once('-')?.0)
    }

    /// The name of the session with this id.
    pub(crate) fn of(&self, id: &Id) -> String {
        self.permuted(id.as_str(), [0, 1, 2, 3]).map(|name| format!("{}{name}", self.prefix)).unwrap_or_default()
    }

    /// The id of the session with this name, or this id itself. None if no session can have it.
    pub(crate) fn id(&self, named: &str) -> Option<Id> {
        match named.strip_prefix(self.prefix.as_str()) {
            // The rounds in the other order lead back.
            Some(name) => self.permuted(name, [3, 2, 1, 0]).and_then(|id| Id::parse(&id)),
            None => Id::parse(named),
        }
    }

    /// The text with all characters but those of the shard permuted.
    fn permuted(&self, text: &str, rounds: [u8; 4]) -> Option<String> {
        let (shard, rest) = text.split_at_checked(SHARD_CHARACTERS)?;
        let digits: Option<Vec<u8>> =
            rest.chars().map(|c| c.to_digit(RADIX).filter(|_| !c.is_uppercase()).map(|digit| digit as u8)).collect();
        let mut digits: [u8; 2 * HALF] = digits?.try_into().ok()?;
        let (left, right) = digits.split_at_mut(HALF);
        for round in rounds {
            let (input, output) = if round % 2 == 0 { (&*right, &mut *left) } else { (&*left, &mut *right) };
            let hash =
                Sha256::new().chain_update(self.key).chain_update([round]).chain_update(shard).chain_update(input);
            output.iter_mut().zip(hash.finalize()).for_each(|(digit, byte)| *digit ^= byte & (RADIX as u8 - 1));
        }
        let characters = digits.iter().filter_map(|digit| char::from_digit(u32::from(*digit), RADIX));
        Some(shard.chars().chain(characters).collect())
    }
}

/// The beginning of a name: no id has it.
const PREFIX: &str = "s-";
/// The first characters of an id, which name its shard.
const SHARD_CHARACTERS: usize = 2;
/// The characters of an id are digits of this base.
const RADIX: u32 = 32;
/// Half of the random characters of an id.
const HALF: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_its_session_and_shows_nothing_of_its_id() {
        let (names, others, mut entropy) = (SessionNames::new(None), SessionNames::new(None), kernel_entropy());
        for shard in [0, 1, 63] {
            let id = Id::new(shard, &mut entropy);
            let name = names.of(&id);
            assert_eq!((names.id(&name), names.id(id.as_str())), (Some(id), Some(id)));
            assert_eq!((name.clone(), names.of(&id).len()), (names.of(&id), 34), "it stays");
            let alike = name[4..].bytes().zip(id.as_str()[2..].bytes()).filter(|(one, other)| one == other).count();
            assert!(alike < 15, "{alike} of 30 characters are the same");
            assert_ne!(others.id(&name), Some(id), "another process has another key");
        }
    }

    #[test]
    fn in_a_cluster_a_name_shows_its_node_and_only_that_one_finds_its_session() {
        let tag = |text| NodeTag::parse(text).expect("a tag");
        let (one, other) = (SessionNames::new(Some(tag("node"))), SessionNames::new(Some(tag("0123"))));
        let id = Id::of_node(3, tag("node"), &mut kernel_entropy());
        let name = one.of(&id);
        assert_eq!((SessionNames::node_of(&name), one.id(&name), other.id(&name)), (Some(tag("node")), Some(id), None));
        assert_eq!((SessionNames::node_of(id.as_str()), one.id(id.as_str())), (None, Some(id)));
        assert_eq!(SessionNames::node_of(&SessionNames::new(None).of(&id)), None);
    }

    #[test]
    fn ids_that_differ_little_have_names_that_differ_much() {
        let names = SessionNames::new(None);
        let of = |text: &str| names.of(&Id::parse(text).expect("an id"));
        let (one, other) = (of(&"0".repeat(32)), of(&format!("{}1", "0".repeat(31))));
        let alike = one[4..].bytes().zip(other[4..].bytes()).filter(|(one, other)| one == other).count();
        assert!(alike < 15, "{one} {other}");
    }

    #[test]
    fn other_texts_are_no_names() {
        let names = SessionNames::new(None);
        let name = names.of(&Id::new(0, &mut kernel_entropy()));
        let long = format!("{name}0");
        for text in ["", "s-", &name[..33], long.as_str(), &name[2..20], "s-zz", &name.to_uppercase(), "s-é"] {
            assert_eq!(names.id(text), None, "{text}");
        }
    }
}
