//! The clients of a shard: to whom each session belongs, until when its credentials hold, what it has used of its rates,
//! and which sessions have not connected yet. The machine knows a session by its key only.

mod attributes;
pub(crate) mod newcomers;
pub(crate) mod owners;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::application::EndReason;
use crate::attributes::{AttributeChange, AttributeLimits, Attributes, Unchanged};
use crate::clients::attributes::SessionAttributes;
use crate::clients::newcomers::{Newcomers, Origins};
use crate::clients::owners::{Owners, Slots};
use crate::events::SessionKey;
use crate::identity::Identity;
use crate::limits::rate::{Rate, nanoseconds};
use crate::limits::sessions::{SessionOwner, Standing};
use crate::memory::{Account, Counted};
use crate::now::Now;
use crate::rights::policy::Policy;

/// The clients of one shard.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The client of each session, by the session's index.
    clients: Vec<Client>,
    /// The sessions of each user and token.
    pub(crate) owners: Owners,
    /// The sessions that have not connected yet.
    pub(crate) newcomers: Newcomers,
    /// The attributes of sessions that have some.
    attributes: SessionAttributes,
    /// The policies by which sessions were admitted, each with the generation of the last session before it.
    policies: Vec<(u32, Policy)>,
    /// The sessions with a subscription that was decided about under another policy than the one that admitted them.
    of_several: HashSet<SessionKey, RandomState>,
    /// The generation of the last session.
    generation: u32,
    /// The account of the memory that owners take.
    account: Rc<Account>,
}

#[derive(Debug, Default)]
struct Client {
    /// The generation of its session. 0: there is none.
    generation: u32,
    /// The owner that the session counts for below `sessions_max`, or its index among the newcomers.
    standing: Standing,
    /// The owner of the session, if its handshake was authenticated.
    owner: Option<Box<Owner>>,
    /// The token buckets of its messages and their bytes, if a rate is set.
    buckets: Option<Box<[u64; 2]>>,
}

/// The owner of a session, with the state that only sessions with an owner have.
#[derive(Debug)]
struct Owner {
    /// The identity, which decisions that wait share.
    identity: Arc<Identity>,
    /// The fingerprint of the means by which it was authenticated.
    authentication: u64,
    /// True if the session counts among those of its user.
    is_counted: bool,
    /// The number of its subscriptions that count among those of its user.
    subscriptions_counted: u32,
    /// Its positions among the sessions of its user and of its token.
    slots: Slots,
    /// The time of its entry in the timer wheel, in milliseconds; `u64::MAX` for none.
    armed_ms: u64,
    /// The memory that it and the identity take.
    counted: Counted,
    /// The bucket of its refreshes.
    refreshes_full_ns: u64,
    /// True if the client was notified that its credentials are about to end.
    is_notified: bool,
    /// The reason why its session ends, if that is the end of the credentials.
    ends: Option<EndReason>,
}

/// The owner of a session that has ended.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) identity: Arc<Identity>,
    /// True if the session counted among those of its user.
    pub(crate) is_counted: bool,
    /// The reason of the end, if that is the end of the credentials.
    pub(crate) ends: Option<EndReason>,
    /// The time of its entry in the timer wheel, in milliseconds.
    pub(crate) armed_ms: u64,
}

/// The state of credentials whose timer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// They hold.
    Hold,
    /// They end after this time, in milliseconds: the client is to be notified.
    EndSoon(u64),
    /// They have ended.
    HaveEnded,
}

impl Clients {
    /// No clients. `policy`: the one that admits the next ones. `hasher`: that of all shards. The memory of owners counts in
    /// this account.
    pub(crate) fn new(policy: Policy, hasher: RandomState, account: &Rc<Account>) -> Clients {
        let (owners, newcomers) = (Owners::default(), Newcomers::new(hasher));
        let (clients, policies) = (Vec::new(), vec![(0, policy)]);
        let attributes = SessionAttributes::default();
        let of_several = HashSet::default();
        Clients {
            clients,
            owners,
            newcomers,
            attributes,
            policies,
            of_several,
            generation: 0,
            account: account.clone(),
        }
    }

    /// Notes the policy that admits sessions from now on.
    pub(crate) fn are_admitted_by(&mut self, policy: Policy) {
        if self.policy() == policy {
            return;
        }
        // Nobody was admitted by the last one.
        if self.policies.len() > 1 && self.policies.last().is_some_and(|(before, _)| *before == self.generation) {
            self.policies.pop();
        }
        if self.policy() != policy {
            self.policies.push((self.generation, policy));
        }
        if self.policies.len() >= POLICIES_RETAINED && self.policies.len().is_power_of_two() {
            self.forget_policies();
        }
    }

    /// Forgets the policies that have admitted none of the sessions that live.
    fn forget_policies(&mut self) {
        let mut is_used = vec![false; self.policies.len()];
        for client in self.clients.iter().filter(|client| client.generation > 0) {
            self.admitted_by(client.generation).into_iter().for_each(|at| is_used[at] = true);
        }
        is_used.last_mut().into_iter().for_each(|last| *last = true);
        let mut is_used = is_used.into_iter();
        self.policies.retain(|_| is_used.next().unwrap_or(true));
    }

    /// The index of the policy by which a session of this generation was admitted.
    fn admitted_by(&self, generation: u32) -> Option<usize> {
        // Generations wrap around, but their distances do not.
        let age = |generation: u32| self.generation.wrapping_sub(generation);
        self.policies.iter().rposition(|(before, _)| age(*before) > age(generation))
    }

    /// The policy that admits sessions.
    pub(crate) fn policy(&self) -> Policy {
        self.policies.last().map(|(_, policy)| *policy).unwrap_or_default()
    }

    /// The policy by which a session was admitted. A refresh of its credentials changes the authentication in it.
    pub(crate) fn policy_of(&self, key: SessionKey) -> Policy {
        let mut admitted_by = self.admitted_by(key.generation).map(|at| self.policies[at].1).unwrap_or_default();
        if self.of_several.contains(&key) {
            admitted_by = admitted_by.of_several();
        }
        let authentication = self.owner(key).map_or(admitted_by.authentication, |owner| owner.authentication);
        Policy { authentication, ..admitted_by }
    }

    /// Notes that the policy of now decides about a subscription of a session.
    #[inline]
    pub(crate) fn decides_about(&mut self, key: SessionKey) {
        if self.policies.len() > 1 && self.policy_of(key).decisions != self.policy().decisions {
            self.of_several.insert(key);
        }
    }

    /// Adds the client of a new session, which counts for this owner below `sessions_max`.
    pub(crate) fn open(&mut self, key: SessionKey, counted_for: SessionOwner) {
        let index = key.index as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, Client::default);
        }
        self.generation = key.generation;
        let standing = Standing::of(counted_for);
        self.clients[index] = Client { generation: key.generation, standing, owner: None, buckets: None };
    }

    /// Removes the client of a session that has ended. Returns the owner that it counted for below `sessions_max`, its own owner, and its
    /// attributes.
    pub(crate) fn close(
        &mut self,
        key: SessionKey,
    ) -> (Option<SessionOwner>, Option<Departed>, Option<Arc<Attributes>>) {
        self.has_connected(key);
        if self.of_several.remove(&key) && self.of_several.is_empty() {
            self.of_several = HashSet::default();
        }
        let (counted_for, owner) = (self.counted_for(key), self.take_owner(key));
        if let Some(client) = self.get_mut(key) {
            (client.generation, client.buckets) = (0, None);
        }
        let departed = owner.map(|owner| {
            let Owner { identity, is_counted, ends, armed_ms, .. } = *owner;
            Departed { identity, is_counted, ends, armed_ms }
        });
        (counted_for, departed, self.attributes.take(key))
    }

    /// Releases the memory of most clients if most are gone.
    pub(crate) fn give_room_back(&mut self) {
        let used = self.clients.iter().rposition(|client| client.generation > 0).map_or(0, |last| last + 1);
        if self.clients.capacity() > ROOM_RETAINED && used < self.clients.capacity() / 4 {
            self.clients.truncate(used);
            self.clients.shrink_to(used * 2);
        }
    }

    /// The identity of the owner of a session, unless its credentials have ended: then the client may only fetch what waits for
    /// it.
    #[inline]
    pub(crate) fn entitled(&self, key: SessionKey) -> Result<Option<&Arc<Identity>>, EndReason> {
        match self.owner(key) {
            Some(Owner { ends: Some(why), .. }) => Err(*why),
            owner => Ok(owner.map(|owner| &owner.identity)),
        }
    }

    /// The identity of a session's owner.
    #[inline]
    pub(crate) fn identity(&self, key: SessionKey) -> Option<&Arc<Identity>> {
        Some(&self.owner(key)?.identity)
    }

    /// True if the credentials of a session have ended: its client may only fetch what waits for it.
    #[inline]
    pub(crate) fn has_lost_its_rights(&self, key: SessionKey) -> bool {
        self.entitled(key).is_err()
    }

    /// Notes that the credentials of a session have ended.
    pub(crate) fn end_rights(&mut self, key: SessionKey, why: EndReason) {
        self.owner_mut(key).into_iter().for_each(|owner| owner.ends = Some(why));
    }

    /// The bytes that the owner of a session and its attributes take.
    pub(crate) fn bytes_of(&self, key: SessionKey) -> usize {
        self.owner(key).map_or(0, |owner| owner.counted.bytes()) + self.attributes.bytes_of(key)
    }

    /// The attributes of a session, if it has had some.
    #[inline]
    pub(crate) fn attributes(&self, key: SessionKey) -> Option<&Arc<Attributes>> {
        self.attributes.of(key)
    }

    /// Changes an attribute of a session. Returns the version after it.
    pub(crate) fn change_attribute(
        &mut self,
        key: SessionKey,
        change: AttributeChange,
        limits: AttributeLimits,
    ) -> Result<u64, Unchanged> {
        self.attributes.change(key, change, limits, &self.account)
    }

    /// Gives a session the attributes that it had before a restart, or on another node.
    pub(crate) fn restore_attributes(&mut self, key: SessionKey, attributes: Attributes) {
        self.attributes.set(key, attributes.into(), &self.account);
    }

    /// Gives a session its owner, or another one of the same user instead. `is_counted`: it counts among the sessions of
    /// its user. `authentication`: the fingerprint of the means that have admitted it. Returns the time of the timer of the
    /// owner before, in milliseconds.
    pub(crate) fn set_owner(
        &mut self,
        key: SessionKey,
        identity: Arc<Identity>,
        is_counted: bool,
        authentication: u64,
    ) -> Option<u64> {
        let before = self.take_owner(key);
        let armed_ms = before.as_ref().map(|before| before.armed_ms);
        let (is_counted, subscriptions_counted, refreshes_full_ns) = before.map_or((is_counted, 0, 0), |before| {
            (before.is_counted, before.subscriptions_counted, before.refreshes_full_ns)
        });
        let counted = Counted::new(&self.account, size_of::<Owner>() + identity.bytes());
        self.get(key)?;
        let slots = self.owners.add(&identity, key);
        let owner = Owner {
            identity,
            authentication,
            is_counted,
            subscriptions_counted,
            slots,
            armed_ms: u64::MAX,
            counted,
            refreshes_full_ns,
            is_notified: false,
            ends: None,
        };
        self.get_mut(key)?.owner = Some(Box::new(owner));
        armed_ms
    }

    /// Sets the timer for the notice before the end of a session's credentials, or for their end. `set` gets the time, and
    /// that of the timer set before, and returns that of the timer set now.
    pub(crate) fn arm(&mut self, key: SessionKey, notice_ms: u64, now: Now, set: impl FnOnce(u64, u64) -> u64) {
        let Some(owner) = self.owner_mut(key) else { return };
        let Some(expires_ms) = owner.identity.expires_ms.filter(|_| owner.ends.is_none()) else { return };
        let next_ms = if owner.is_notified { expires_ms } else { expires_ms.saturating_sub(notice_ms) };
        owner.armed_ms = set(now.ms.saturating_add(next_ms.saturating_sub(now.wall_ms)), owner.armed_ms);
    }

    /// Looks at the credentials of a session whose timer has come. None if they have no timer, or a later one. The notice
    /// before their end comes once.
    pub(crate) fn due(&mut self, key: SessionKey, notice_ms: u64, now: Now) -> Option<Credentials> {
        let owner = self.owner_mut(key).filter(|owner| owner.armed_ms <= now.ms)?;
        owner.armed_ms = u64::MAX;
        let left_ms = owner.identity.expires_ms?.saturating_sub(now.wall_ms);
        Some(match left_ms {
            0 => Credentials::HaveEnded,
            _ if left_ms <= notice_ms && !std::mem::replace(&mut owner.is_notified, true) => {
                Credentials::EndSoon(left_ms)
            }
            _ => Credentials::Hold,
        })
    }

    /// Counts a refresh of credentials. Returns false if it comes too soon.
    pub(crate) fn take_refresh(&mut self, key: SessionKey, rate: Rate, now: Now) -> bool {
        self.owner_mut(key).is_none_or(|owner| rate.take(&mut owner.refreshes_full_ns, now, 1))
    }

    /// Counts `units` by one of the two rates of a session, which is on. Returns false if they are too many.
    pub(crate) fn take(&mut self, key: SessionKey, at: usize, rate: Rate, now: Now, units: usize) -> bool {
        self.get_mut(key).is_none_or(|client| rate.take(&mut client.buckets.get_or_insert_default()[at], now, units))
    }

    /// The times until the buckets of a session are full, in milliseconds: of messages, of their bytes, and of refreshes.
    pub(crate) fn buckets_ms(&self, key: SessionKey, now: Now) -> [u64; 3] {
        let [messages, bytes] = self.get(key).and_then(|client| client.buckets.as_deref().copied()).unwrap_or_default();
        let refreshes = self.owner(key).map_or(0, |owner| owner.refreshes_full_ns);
        [messages, bytes, refreshes].map(|full_ns| full_ns.saturating_sub(nanoseconds(now)).div_ceil(MS_NS))
    }

    /// Gives a session the buckets that it had on another node.
    pub(crate) fn restore_buckets(&mut self, key: SessionKey, buckets_ms: [u64; 3], now: Now) {
        let full_ns = buckets_ms.map(|ms| nanoseconds(now).saturating_add(ms.saturating_mul(MS_NS)));
        if buckets_ms[..2] != [0; 2]
            && let Some(client) = self.get_mut(key)
        {
            client.buckets = Some(Box::new([full_ns[0], full_ns[1]]));
        }
        self.owner_mut(key).into_iter().for_each(|owner| owner.refreshes_full_ns = full_ns[2]);
    }

    /// Notes that one more subscription of a session counts among those of its user.
    pub(crate) fn count_subscription(&mut self, key: SessionKey) {
        self.owner_mut(key).into_iter().for_each(|owner| owner.subscriptions_counted += 1);
    }

    /// Notes that one less does. Returns the owner, or None if none counted.
    pub(crate) fn uncount_subscription(&mut self, key: SessionKey) -> Option<&Identity> {
        let owner = self.owner_mut(key).filter(|owner| owner.subscriptions_counted > 0)?;
        owner.subscriptions_counted -= 1;
        Some(&owner.identity)
    }

    /// True if a session counts among those of its user.
    pub(crate) fn is_counted(&self, key: SessionKey) -> bool {
        self.owner(key).is_some_and(|owner| owner.is_counted)
    }

    /// Lets a session count among those of its user, or not.
    pub(crate) fn set_counted(&mut self, key: SessionKey, is_counted: bool) {
        self.owner_mut(key).into_iter().for_each(|owner| owner.is_counted = is_counted);
    }

    /// Lets this number of subscriptions of a session count among those of its user, or more if more do. Returns the
    /// number of those that did not.
    pub(crate) fn count_subscriptions(&mut self, key: SessionKey, subscriptions: u32) -> u32 {
        let Some(owner) = self.owner_mut(key) else { return 0 };
        let missing = subscriptions.saturating_sub(owner.subscriptions_counted);
        owner.subscriptions_counted += missing;
        missing
    }

    /// Adds a session to those that have not connected yet.
    pub(crate) fn is_new(&mut self, key: SessionKey, origins: Origins) {
        let Some(owner) = self.counted_for(key) else { return };
        let position = self.newcomers.add(key, owner, origins);
        self.get_mut(key).into_iter().for_each(|client| client.standing = Standing::newcomer(position));
    }

    /// Removes a session from those that have not connected yet. Returns false if it was not among them.
    pub(crate) fn has_connected(&mut self, key: SessionKey) -> bool {
        let (Some(owner), Some(client)) = (self.counted_for(key), self.get_mut(key)) else { return false };
        let before = std::mem::replace(&mut client.standing, Standing::of(owner));
        before.owner().map_err(|position| self.newcomers.remove(position)).is_err()
    }

    /// The owner that a session counts for below `sessions_max`.
    pub(crate) fn counted_for(&self, key: SessionKey) -> Option<SessionOwner> {
        self.get(key)?.standing.owner().or_else(|position| self.newcomers.owner_of(position).ok_or(())).ok()
    }

    /// Takes the owner of a session out of it, and out of the lists of users and tokens.
    fn take_owner(&mut self, key: SessionKey) -> Option<Box<Owner>> {
        let owner = self.get_mut(key)?.owner.take()?;
        for (at, moved) in self.owners.remove(&owner.identity, owner.slots).into_iter().enumerate() {
            if let Some(other) = moved.and_then(|moved| self.owner_mut(moved)) {
                other.slots[at] = owner.slots[at];
            }
        }
        Some(owner)
    }

    #[inline]
    fn owner(&self, key: SessionKey) -> Option<&Owner> {
        self.get(key)?.owner.as_deref()
    }

    fn owner_mut(&mut self, key: SessionKey) -> Option<&mut Owner> {
        self.get_mut(key)?.owner.as_deref_mut()
    }

    #[inline]
    fn get(&self, key: SessionKey) -> Option<&Client> {
        self.clients.get(key.index as usize).filter(|client| client.generation == key.generation)
    }

    fn get_mut(&mut self, key: SessionKey) -> Option<&mut Client> {
        self.clients.get_mut(key.index as usize).filter(|client| client.generation == key.generation)
    }
}

/// The nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;
/// The number of clients for which the table keeps room.
const ROOM_RETAINED: usize = 64;
/// The number of policies from which on those that no session needs are forgotten.
const POLICIES_RETAINED: usize = 64;
