//! Publications of handles on their way to a shard, batched by channel.
//!
//! The first publication wakes the shard. The shard then looks again before it sleeps, so a thread that publishes without
//! a pause wakes it once. Publications of one owner on one channel form one burst, even if others come between them.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use websocket::{Opcode, frame};

use tokio::sync::oneshot;

use super::outcomes::{Outcome, Outcomes};
use encke_core::{
    Charge, ENVELOPE_BYTES, EncodedPublications, Envelope, MailboxAccount, PublishToken, SessionOwner, ShardMessage,
    Side,
};

/// The publications of handles for one shard.
#[derive(Default)]
pub(crate) struct Published(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    bursts: Vec<Burst>,
    /// The index of the latest burst of each channel.
    latest: HashTable<u32>,
    hasher: RandomState,
    /// True if the shard looks again before it sleeps.
    is_watched: bool,
    is_closed: bool,
}

/// Publications on one channel.
struct Burst {
    channel: Box<str>,
    frames: Vec<u8>,
    messages: u32,
    marks: Marks,
    /// The token of those who wait for its position.
    token: Option<PublishToken>,
    charge: Charge,
}

/// The owner of a publication, and its urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Its owner. None: the program.
    pub(crate) publisher: Option<SessionOwner>,
    /// True if its delivery may wait for other messages.
    pub(crate) is_lazy: bool,
}

/// Publications of one request whose positions it waits for.
pub(crate) struct Positions<'a> {
    outcomes: &'a Outcomes,
    /// For each burst that they are in its token, the last of them in it, and its outcome.
    pub(crate) bursts: Vec<InBurst>,
}

/// Publications of one request in a burst.
pub(crate) struct InBurst {
    token: PublishToken,
    /// The index of the last of them in the burst, and in the request.
    pub(crate) last: u32,
    pub(crate) publication: usize,
    /// The outcome of the burst.
    pub(crate) outcome: oneshot::Receiver<Outcome>,
}

impl<'a> Positions<'a> {
    pub(crate) fn new(outcomes: &'a Outcomes) -> Positions<'a> {
        Positions { outcomes, bursts: Vec::new() }
    }

    fn note(&mut self, token: &mut Option<PublishToken>, last: u32, publication: usize) {
        let token = *token.get_or_insert_with(|| self.outcomes.token());
        match self.bursts.iter_mut().rfind(|burst| burst.token == token) {
            Some(burst) => (burst.last, burst.publication) = (last, publication),
            None => self.bursts.push(InBurst { token, last, publication, outcome: self.outcomes.wait(token) }),
        }
    }
}

/// The outcome of [`Published::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// The shard will find the publication.
    Noted,
    /// The shard must be woken.
    First,
    /// The server has stopped; the publication was not added.
    Closed,
}

impl Published {
    /// Adds a publication. If its position is wanted, notes it there with its index in the request.
    pub(crate) fn add(
        &self,
        account: &Arc<MailboxAccount>,
        message: &bayeux::Publication<'_>,
        marks: Marks,
        wanted: Option<(&mut Positions<'_>, usize)>,
    ) -> Added {
        let payload_bytes = message.encoded_bytes() + 2;
        let mut queue = self.0.lock();
        if queue.is_closed {
            return Added::Closed;
        }
        let Burst { frames, messages, charge, token, .. } = queue.burst(account, message.channel, marks);
        let room = frames.capacity();
        frames.reserve(frame::header_bytes(payload_bytes) + payload_bytes);
        if frames.capacity() > room {
            charge.add(frames.capacity() - room);
        }
        if let Some((positions, publication)) = wanted {
            positions.note(token, *messages, publication);
        }
        *messages += 1;
        frame::header(Opcode::Text, payload_bytes, frames);
        frames.push(b'[');
        message.write(frames);
        frames.push(b']');
        if std::mem::replace(&mut queue.is_watched, true) { Added::Noted } else { Added::First }
    }

    /// Takes all publications, and returns their number. If there are none, the next publication wakes the shard.
    pub(crate) fn take(&self, account: &Arc<MailboxAccount>) -> (Vec<Envelope>, usize) {
        let bursts = {
            let mut queue = self.0.lock();
            queue.is_watched = !queue.bursts.is_empty();
            queue.latest.clear();
            if queue.latest.capacity() > CHANNELS_RETAINED {
                queue.latest = HashTable::new();
            }
            std::mem::take(&mut queue.bursts)
        };
        let messages = bursts.iter().map(|burst| burst.messages as usize).sum();
        let envelope = |burst: Burst| {
            let Burst { channel, frames, messages, marks, token, charge } = burst;
            let publication = EncodedPublications {
                channel,
                frames: frames.into(),
                messages,
                side: Side::Server,
                is_lazy: marks.is_lazy,
                except: None,
                position: None,
                token,
                publisher: marks.publisher,
                charge,
            };
            Envelope::new(account, ShardMessage::Record(publication.into()))
        };
        (bursts.into_iter().map(envelope).collect(), messages)
    }

    /// Refuses publications from now on.
    pub(crate) fn close(&self) {
        self.0.lock().is_closed = true;
    }
}

impl Queue {
    /// Returns the burst that a publication on a channel is added to, which may be a new one.
    fn burst(&mut self, account: &Arc<MailboxAccount>, channel: &str, marks: Marks) -> &mut Burst {
        let Queue { bursts, latest, hasher, .. } = self;
        let goes_on = |burst: &Burst| burst.marks == marks && burst.frames.len() < BURST_BYTES;
        let is_last = bursts.last().is_some_and(|last| &*last.channel == channel && goes_on(last));
        let mut at = bursts.len().wrapping_sub(1);
        if !is_last {
            let hash = hasher.hash_one(channel);
            let known = latest.find_mut(hash, |at| &*bursts[*at as usize].channel == channel);
            at = known.as_deref().map_or(bursts.len(), |at| *at as usize);
            if at == bursts.len() || !goes_on(&bursts[at]) {
                at = bursts.len();
                match known {
                    Some(known) => *known = at as u32,
                    None => {
                        let again = |at: &u32| hasher.hash_one(&*bursts[*at as usize].channel);
                        latest.insert_unique(hash, at as u32, again);
                    }
                }
                let charge = account.charge(ENVELOPE_BYTES + channel.len());
                let channel = channel.into();
                bursts.push(Burst { channel, frames: Vec::new(), messages: 0, marks, token: None, charge });
            }
        }
        &mut bursts[at]
    }
}

/// The size at which a burst is not extended any more.
const BURST_BYTES: usize = 32 * 1024;
/// An index of at most this many channels keeps its memory.
const CHANNELS_RETAINED: usize = 1_024;

#[cfg(test)]
mod tests {
    use bayeux::json::RawJson;

    use super::*;

    const PLAIN: Marks = Marks { publisher: None, is_lazy: false };

    fn message<'a>(channel: &'a str, data: &'a str) -> bayeux::Publication<'a> {
        let data = Some(RawJson::trusted(data));
        bayeux::Publication { channel, data, ..bayeux::Publication::default() }
    }

    /// The channel, the number of messages and the frames of each publication.
    fn taken(published: &Published, account: &Arc<MailboxAccount>) -> Vec<(String, u32, String)> {
        let of = |envelope: Envelope| match envelope.message {
            ShardMessage::Record(publication) => {
                let frames = String::from_utf8_lossy(&publication.frames).into_owned();
                (publication.channel.to_string(), publication.messages, frames)
            }
            _ => panic!("publications only"),
        };
        published.take(account).0.into_iter().map(of).collect()
    }

    #[test]
    fn channels_published_to_in_turn_have_one_burst_each_in_order() {
        let (published, account) = (Published::default(), Arc::<MailboxAccount>::default());
        for number in 0..300 {
            published.add(&account, &message(["/a", "/b", "/c"][number % 3], &number.to_string()), PLAIN, None);
        }
        let taken = taken(&published, &account);
        assert_eq!(taken.len(), 3);
        for (first, (channel, messages, frames)) in taken.iter().enumerate() {
            let numbers = frames.split("\"data\":").skip(1).map(|rest| rest.split('}').next().unwrap_or_default());
            assert!(numbers.eq((0..100).map(|number| (first + 3 * number).to_string())), "{channel}: {frames}");
            assert_eq!(*messages, 100);
        }
        assert_eq!(account.bytes(), 0, "what was worked through is not charged any more");
    }

    #[test]
    fn a_burst_that_is_long_enough_is_followed_by_another() {
        let (published, account) = (Published::default(), Arc::<MailboxAccount>::default());
        let data = format!("\"{}\"", "x".repeat(BURST_BYTES / 2));
        for number in 0..5 {
            published.add(&account, &message("/a", &data), PLAIN, None);
            published.add(&account, &message("/b", &number.to_string()), PLAIN, None);
        }
        let charged = account.bytes();
        assert!((5 * BURST_BYTES / 2..8 * BURST_BYTES).contains(&charged), "{charged} bytes for what is held");
        let counts: Vec<_> =
            taken(&published, &account).into_iter().map(|(name, messages, _)| (name, messages)).collect();
        let count = |name: &str, messages: u32| (name.to_owned(), messages);
        assert_eq!(counts, [count("/a", 2), count("/b", 5), count("/a", 2), count("/a", 1)]);
    }

    #[test]
    fn publications_of_several_owners_on_a_channel_keep_their_order_and_their_owners() {
        let (published, account) = (Published::default(), Arc::<MailboxAccount>::default());
        let owner = |number| Some(SessionOwner::of(number));
        for (data, publisher) in [("1", owner(1)), ("2", owner(1)), ("3", owner(2)), ("4", None), ("5", owner(1))] {
            published.add(&account, &message("/a", data), Marks { publisher, ..PLAIN }, None);
        }
        let of = |envelope: Envelope| match envelope.message {
            ShardMessage::Record(publications) => (publications.messages, publications.publisher),
            _ => panic!("publications only"),
        };
        let taken: Vec<_> = published.take(&account).0.into_iter().map(of).collect();
        assert_eq!(taken, [(2, owner(1)), (1, owner(2)), (1, None), (1, owner(1))]);
    }

    #[test]
    fn lazy_messages_and_others_of_a_channel_are_separate_bursts_in_order() {
        let (published, account) = (Published::default(), Arc::<MailboxAccount>::default());
        for (number, is_lazy) in [false, true, true, false, false].into_iter().enumerate() {
            published.add(&account, &message("/a", &number.to_string()), Marks { is_lazy, ..PLAIN }, None);
            published.add(&account, &message("/b", "0"), PLAIN, None);
        }
        let counts: Vec<_> = taken(&published, &account).into_iter().map(|(name, count, _)| (name, count)).collect();
        let count = |name: &str, messages: u32| (name.to_owned(), messages);
        assert_eq!(counts, [count("/a", 1), count("/b", 5), count("/a", 2), count("/a", 2)]);
    }

    #[test]
    fn a_shard_is_woken_once_until_it_finds_the_queue_empty() {
        let (published, account) = (Published::default(), Arc::<MailboxAccount>::default());
        let add = || published.add(&account, &message("/a", "1"), PLAIN, None);
        assert_eq!([add(), add()], [Added::First, Added::Noted]);
        assert_eq!(published.take(&account).1, 2);
        assert_eq!(add(), Added::Noted, "it looks again");
        assert_eq!((published.take(&account).1, published.take(&account).1), (1, 0));
        assert_eq!(add(), Added::First);
        published.close();
        assert_eq!((add(), published.take(&account).1), (Added::Closed, 1));
    }
}
