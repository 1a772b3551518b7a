//! The fingerprint of a policy: two processes compare theirs, when one restores the sessions of the other.

use serde::{Deserialize, Serialize};

/// A fingerprint of everything that decides about clients beside the rules for channels. It is the same in two processes if
/// they authenticate, and decide, by the same means. It contains no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The means by which handshakes are authenticated.
    pub authentication: u64,
    /// The means by which subscriptions are decided about.
    pub decisions: u64,
}

/// The policy of a server that asks nobody.
impl Default for Policy {
    fn default() -> Policy {
        Policy { authentication: OFFSET, decisions: OFFSET }
    }
}

impl Policy {
    /// Adds something by which handshakes are authenticated: a text that changes with it.
    #[must_use]
    pub fn authenticated_by(mut self, what: &str) -> Policy {
        self.authentication = mixed(self.authentication, what);
        self
    }

    /// Adds something by which subscriptions are decided about: a text that changes with it.
    #[must_use]
    pub fn decided_by(mut self, what: &str) -> Policy {
        self.decisions = mixed(self.decisions, what);
        self
    }

    /// The same for a session about whose subscriptions several policies have decided. No process has it, so a restart asks
    /// about each of them again, and restores none without an answer.
    #[must_use]
    pub(crate) fn of_several(self) -> Policy {
        Policy { decisions: SEVERAL, ..self }
    }
}

/// Adds a text to a fingerprint (FNV-1a), with its end. Unlike the hashers of std it is the same in every build.
fn mixed(fingerprint: u64, text: &str) -> u64 {
    let bytes = text.bytes().chain([0xff]);
    bytes.fold(fingerprint, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
/// The decisions of several policies.
const SEVERAL: u64 = 0;
const PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_differ_if_anything_in_them_does() {
        let one = Policy::default().authenticated_by("tokens").decided_by("/a").decided_by("/b");
        assert_eq!(one, Policy::default().decided_by("/a").decided_by("/b").authenticated_by("tokens"));
        for other in [
            Policy::default(),
            Policy::default().authenticated_by("tokens").decided_by("/b").decided_by("/a"),
            Policy::default().authenticated_by("tokens").decided_by("/a/b"),
            Policy::default().decided_by("/a").decided_by("/b"),
        ] {
            assert_ne!(one, other);
        }
    }
}
