//! Room that the clients of a proxy share by address: nobody takes it from the others ([`Shares`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use encke::{Amount, Budget, Over, Share, Shares, Urgency};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The address of a client, as [`encke::network`] counts it. None: unknown.
pub(crate) type Owner = Option<u128>;

/// Room for things and their bytes, and those who wait for some.
#[derive(Debug)]
pub(crate) struct Room {
    budget: Budget,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    shares: Shares<Owner>,
    /// Those who wait.
    waiting: HashMap<Owner, Line>,
    /// The owners who wait, in the order of their turns.
    turns: BTreeMap<u64, Owner>,
    next: u64,
}

/// Those of one owner who wait.
#[derive(Debug)]
struct Line {
    turn: u64,
    /// By their numbers.
    senders: BTreeMap<u64, oneshot::Sender<Taken>>,
}

/// Room that is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    share: Option<Share<Owner>>,
}

/// A wait for room. Dropping it ends the wait.
struct Wait<'a> {
    room: &'a Room,
    owner: Owner,
    number: u64,
}

impl Room {
    /// Room for this many things with this many bytes.
    pub(crate) fn new(count: usize, bytes: usize) -> Arc<Room> {
        Arc::new(Room { budget: Budget::new(count, bytes), table: Mutex::default() })
    }

    /// The things that are there now, and their bytes.
    pub(crate) fn used(&self) -> Amount {
        self.table.lock().shares.used()
    }

    /// Takes room for one thing with these bytes.
    pub(crate) fn take(self: &Arc<Self>, owner: Owner, bytes: usize) -> Option<Taken> {
        let share = self.table.lock().shares.take(&self.budget, owner, Amount::one(bytes), Urgency::Common).ok()?;
        Some(Taken { room: self.clone(), share: Some(share) })
    }

    /// Takes nothing yet, for something that grows.
    pub(crate) fn begin(self: &Arc<Self>) -> Taken {
        Taken { room: self.clone(), share: None }
    }

    /// Waits for room for one thing. Those of one owner wait in their order, and owners take turns.
    pub(crate) async fn wait(self: &Arc<Self>, owner: Owner) -> Taken {
        loop {
            let (mut taken, _wait) = {
                let mut table = self.table.lock();
                if !table.waiting.contains_key(&owner)
                    && let Ok(share) = table.shares.take(&self.budget, owner, Amount::of(1), Urgency::Common)
                {
                    return Taken { room: self.clone(), share: Some(share) };
                }
                let (sender, taken) = oneshot::channel();
                (taken, Wait { room: self, owner, number: table.add(owner, sender) })
            };
            // The sender stays in the table until it is used.
            if let Ok(taken) = (&mut taken).await {
                return taken;
            }
        }
    }

    /// Gives the room that is free to those who wait.
    fn serve(self: &Arc<Self>) {
        loop {
            let (sender, share) = {
                let next = self.table.lock().next(&self.budget);
                let Some(next) = next else { return };
                next
            };
            // If the one that waited has just left, the share returns, without the lock.
            drop(sender.send(Taken { room: self.clone(), share: Some(share) }));
        }
    }
}

impl Table {
    /// Adds one who waits. Returns its number.
    fn add(&mut self, owner: Owner, sender: oneshot::Sender<Taken>) -> u64 {
        self.next += 1;
        let line = self.waiting.entry(owner).or_insert_with(|| {
            self.turns.insert(self.next, owner);
            Line { turn: self.next, senders: BTreeMap::new() }
        });
        line.senders.insert(self.next, sender);
        self.next
    }

    /// Removes one who waits, if it still does.
    fn remove(&mut self, owner: Owner, number: u64) {
        let Some(line) = self.waiting.get_mut(&owner) else { return };
        line.senders.remove(&number);
        if line.senders.is_empty() {
            self.turns.remove(&line.turn);
            self.waiting.remove(&owner);
        }
    }

    /// The next one who gets room. Owners that stand at their part are passed over: they hold something, so they are as many as the
    /// budget at most.
    fn next(&mut self, budget: &Budget) -> Option<(oneshot::Sender<Taken>, Share<Owner>)> {
        let mut found = None;
        for (turn, owner) in &self.turns {
            match self.shares.take(budget, *owner, Amount::of(1), Urgency::Common) {
                Ok(share) => found = Some((*turn, *owner, share)),
                Err(Over::Part) => continue,
                Err(Over::All) => {}
            }
            break;
        }
        let (turn, owner, share) = found?;
        self.turns.remove(&turn);
        let line = self.waiting.get_mut(&owner)?;
        let (_, sender) = line.senders.pop_first()?;
        if line.senders.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.next += 1;
            line.turn = self.next;
            self.turns.insert(self.next, owner);
        }
        Some((sender, share))
    }
}

impl Taken {
    /// Grows to these bytes. False if there is no room for them; it has grown all the same.
    pub(crate) fn grow(&mut self, owner: Owner, bytes: usize) -> bool {
        let mut table = self.room.table.lock();
        if let Some(share) = self.share.take() {
            table.shares.give_back(share);
        }
        let amount = Amount::one(bytes);
        let taken = table.shares.take(&self.room.budget, owner, amount, Urgency::Common);
        let has_room = taken.is_ok();
        self.share = Some(taken.unwrap_or_else(|_| table.shares.take_regardless(owner, None, amount, Urgency::Common)));
        has_room
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(share) = self.share.take() else { return };
        let waits = {
            let mut table = self.room.table.lock();
            table.shares.give_back(share);
            !table.waiting.is_empty()
        };
        if waits {
            self.room.serve();
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.room.table.lock().remove(self.owner, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll(wait: Pin<&mut impl Future<Output = Taken>>) -> Option<Taken> {
        match wait.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_address_leaves_room_for_others_and_waits_in_its_order() {
        let room = Room::new(16, usize::MAX);
        let mut taken: Vec<Taken> = Vec::new();
        while let Some(one) = poll(pin!(room.wait(Some(1)))) {
            taken.push(one);
        }
        assert!((8..16).contains(&taken.len()), "{}", taken.len());
        let (mut second, mut third) = (pin!(room.wait(Some(1))), pin!(room.wait(Some(1))));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        let other = poll(pin!(room.wait(Some(2)))).expect("room for another address");
        drop((other, taken.pop()));
        assert!(poll(third.as_mut()).is_none(), "not before the second");
        let second = poll(second.as_mut()).expect("its turn");
        // One who leaves is forgotten, also with room that is on its way.
        {
            let mut gone = pin!(room.wait(Some(1)));
            assert!(poll(gone.as_mut()).is_none());
            drop(second);
        }
        drop(poll(third.as_mut()).expect("its turn"));
        taken.clear();
        let table = room.table.lock();
        assert_eq!((table.shares.used(), table.waiting.len(), table.turns.len()), (Amount::default(), 0, 0));
    }

    #[test]
    fn bytes_that_grow_are_counted_once_and_returned() {
        let room = Room::new(usize::MAX, 1_000);
        let mut body = room.begin();
        assert!(body.grow(Some(1), 100) && body.grow(Some(1), 700));
        let mut other = room.begin();
        assert!(!other.grow(Some(2), 700), "there is none, but it is counted");
        assert_eq!(room.used(), Amount { count: 2, bytes: 1_400 });
        drop((body, other));
        assert_eq!(room.used(), Amount::default());
    }
}
