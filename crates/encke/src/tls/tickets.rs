//! The keys of session tickets (RFC 8446 §4.6.1, RFC 5077): with one a client resumes its session at any shard, and at the process
//! that takes over.
//!
//! A ticket is the name of its key, a number, and the state of the session, encrypted with that number as its nonce. Only the
//! process that has made a key encrypts with it, so no number is used twice. A process that takes over gets the keys of the one before
//! it, and only decrypts with them.

use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};

/// A key of session tickets, for the process that takes over. It decrypts sessions that clients may resume: it is a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    made_s: u64,
}

/// Makes and reads session tickets.
pub(crate) struct Tickets(Mutex<Keys>);

struct Keys {
    /// The key that encrypts. None: it could not be made.
    current: Option<TicketKey>,
    /// The number of the next ticket.
    next: u64,
    /// Keys that only decrypt.
    earlier: Vec<TicketKey>,
}

impl Tickets {
    /// Tickets with a new key; those of `earlier` keys are read, too.
    pub(super) fn new(earlier: Vec<TicketKey>) -> Tickets {
        Tickets(Mutex::new(Keys { current: TicketKey::new(now_s()), next: 0, earlier }))
    }

    /// All keys, for the process that takes over.
    pub(crate) fn keys(&self) -> Vec<TicketKey> {
        let keys = self.0.lock();
        keys.current.iter().chain(&keys.earlier).cloned().collect()
    }

    /// The key for the next ticket, and the ticket's number.
    fn next_key(&self, now_s: u64) -> Option<(TicketKey, u64)> {
        let mut keys = self.0.lock();
        if keys.current.as_ref().is_none_or(|key| now_s.abs_diff(key.made_s) >= ROTATION_S) {
            let replaced = std::mem::replace(&mut keys.current, TicketKey::new(now_s));
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
        let (key, number) = self.next_key(now_s())?;
        let mut sealed = plain.to_vec();
        key.aead()?.seal_in_place_append_tag(nonce(number), Aad::empty(), &mut sealed).ok()?;
        Some([&key.name[..], &number.to_be_bytes(), &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (number, sealed) = rest.split_first_chunk()?;
        let mut sealed = sealed.to_vec();
        let aead = self.find(name, now_s())?.aead()?;
        let plain = aead.open_in_place(nonce(u64::from_be_bytes(*number)), Aad::empty(), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

impl TicketKey {
    /// None if there are no random bytes.
    fn new(made_s: u64) -> Option<TicketKey> {
        let mut key = TicketKey { name: [0; NAME_BYTES], secret: [0; 32], made_s };
        SystemRandom::new().fill(&mut key.name).and_then(|()| SystemRandom::new().fill(&mut key.secret)).ok()?;
        Some(key)
    }

    fn aead(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&AES_256_GCM, &self.secret).ok().map(LessSafeKey::new)
    }
}

/// The nonce of a ticket.
fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

opaque!(TicketKey, made_s);
opaque!(Tickets);

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
        Tickets::new(earlier)
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
