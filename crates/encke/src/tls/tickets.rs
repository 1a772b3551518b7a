//! The keys of session tickets (RFC 8446 §4.6.1, RFC 5077): with one a client resumes its session at any shard, and at the process
//! that takes over.
//!
//! A ticket is the name of its key, a number, and the state of the session, encrypted as a TLS 1.3 record with that number. Only the
//! process that has made a key encrypts with it, so no number is used twice. A process that takes over gets the keys of the one before
//! it, and only decrypts with them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, OutboundChunks, OutboundPlainMessage, Tls13AeadAlgorithm,
};
use rustls::server::ProducesTickets;
use rustls::{ContentType, ProtocolVersion};
use serde::{Deserialize, Serialize};

/// A key of session tickets, for the process that takes over. It decrypts sessions that clients may resume: it is a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    nonce: [u8; 12],
    made_s: u64,
}

/// Makes and reads session tickets.
pub(crate) struct Tickets {
    provider: &'static CryptoProvider,
    aead: &'static dyn Tls13AeadAlgorithm,
    keys: Mutex<Keys>,
}

struct Keys {
    /// The key that encrypts. None: it could not be made.
    current: Option<TicketKey>,
    /// The number of the next ticket.
    next: u64,
    /// Keys that only decrypt.
    earlier: Vec<TicketKey>,
}

impl Tickets {
    /// Tickets with a new key; those of `earlier` keys are read, too. None if the provider has no AEAD for TLS 1.3 with 256 bits.
    pub(super) fn new(provider: &'static CryptoProvider, earlier: Vec<TicketKey>) -> Option<Tickets> {
        let suites = provider.cipher_suites.iter().filter_map(rustls::SupportedCipherSuite::tls13);
        let aead = suites.map(|suite| suite.aead_alg).find(|aead| aead.key_len() == 32)?;
        let current = TicketKey::new(provider, now_s());
        Some(Tickets { provider, aead, keys: Mutex::new(Keys { current, next: 0, earlier }) })
    }

    /// All keys, for the process that takes over.
    pub(crate) fn keys(&self) -> Vec<TicketKey> {
        let keys = self.keys.lock();
        keys.current.iter().chain(&keys.earlier).cloned().collect()
    }

    /// The key for the next ticket, and the ticket's number.
    fn next_key(&self, now_s: u64) -> Option<(TicketKey, u64)> {
        let mut keys = self.keys.lock();
        if keys.current.as_ref().is_none_or(|key| now_s.abs_diff(key.made_s) >= ROTATION_S) {
            let replaced = std::mem::replace(&mut keys.current, TicketKey::new(self.provider, now_s));
            keys.earlier.retain(|key| now_s.abs_diff(key.made_s) < 2 * ROTATION_S);
            keys.earlier.extend(replaced);
            keys.next = 0;
        }
        keys.next += 1;
        Some((keys.current.clone()?, keys.next))
    }

    fn find(&self, name: &[u8], now_s: u64) -> Option<TicketKey> {
        let is_it = |key: &TicketKey| key.name == name && now_s.abs_diff(key.made_s) < 2 * ROTATION_S;
        self.keys().into_iter().find(is_it)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // A key decrypts for this time at least after its last ticket.
        ROTATION_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let (TicketKey { name, secret, nonce, .. }, number) = self.next_key(now_s())?;
        let message = OutboundPlainMessage {
            typ: ContentType::ApplicationData,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::from(plain),
        };
        let mut encrypter = self.aead.encrypter(AeadKey::from(secret), Iv::from(nonce));
        let encrypted = encrypter.encrypt(message, number).ok()?;
        Some([&name[..], &number.to_be_bytes(), encrypted.payload.as_ref()].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (number, encrypted) = rest.split_first_chunk()?;
        let TicketKey { secret, nonce, .. } = self.find(name, now_s())?;
        let mut encrypted = encrypted.to_vec();
        let message = InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, &mut encrypted);
        let mut decrypter = self.aead.decrypter(AeadKey::from(secret), Iv::from(nonce));
        let plain = decrypter.decrypt(message, u64::from_be_bytes(*number)).ok()?;
        Some(plain.payload.to_vec())
    }
}

impl TicketKey {
    /// None if there are no random bytes.
    fn new(provider: &CryptoProvider, made_s: u64) -> Option<TicketKey> {
        let mut key = TicketKey { name: [0; NAME_BYTES], secret: [0; 32], nonce: [0; 12], made_s };
        for part in [&mut key.name[..], &mut key.secret, &mut key.nonce] {
            provider.secure_random.fill(part).ok()?;
        }
        Some(key)
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").field("made_s", &self.made_s).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

/// The time of day, in seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The bytes of the name of a key.
const NAME_BYTES: usize = 16;
/// The time for which a key encrypts, and a further time for which it decrypts, in seconds: 6 hours.
const ROTATION_S: u64 = 6 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(earlier: Vec<TicketKey>) -> Tickets {
        Tickets::new(super::super::provider(), earlier).expect("tickets")
    }

    #[test]
    fn a_ticket_is_read_by_its_own_process_and_by_the_one_that_takes_over() {
        let before = tickets(Vec::new());
        let ticket = before.encrypt(b"a session").expect("a ticket");
        assert_eq!(before.decrypt(&ticket).as_deref(), Some(&b"a session"[..]));
        assert_ne!(before.encrypt(b"a session"), Some(ticket.clone()));
        let after = tickets(before.keys());
        assert_eq!(after.decrypt(&ticket).as_deref(), Some(&b"a session"[..]));
        let own = after.encrypt(b"another").expect("a ticket");
        assert_eq!((before.decrypt(&own), after.keys().len()), (None, 2), "it encrypts with its own key");
        assert_eq!(tickets(Vec::new()).decrypt(&ticket), None, "a stranger's");
    }

    #[test]
    fn a_ticket_that_was_changed_is_no_ticket() {
        let tickets = tickets(Vec::new());
        let ticket = tickets.encrypt(b"a session").expect("a ticket");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!((tickets.decrypt(&changed), tickets.decrypt(&ticket[..at])), (None, None), "byte {at}");
        }
    }

    #[test]
    fn a_key_encrypts_for_six_hours_and_decrypts_for_twelve() {
        let tickets = tickets(Vec::new());
        let made_s = tickets.keys()[0].made_s;
        let name = |later_s| tickets.next_key(made_s + later_s).map(|(key, number)| (key.name, number));
        let (first, _) = name(0).expect("a key");
        assert_eq!(name(ROTATION_S - 1), Some((first, 2)));
        let (second, number) = name(ROTATION_S).expect("a key");
        assert_eq!((second == first, number), (false, 1));
        assert!(tickets.find(&first, made_s + 2 * ROTATION_S - 1).is_some());
        assert!(tickets.find(&first, made_s + 2 * ROTATION_S).is_none());
        name(2 * ROTATION_S).expect("a key");
        name(3 * ROTATION_S).expect("a key");
        assert_eq!(tickets.keys().len(), 2, "the first one is forgotten");
    }
}
