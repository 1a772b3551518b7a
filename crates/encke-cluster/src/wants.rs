//! The channels and patterns that a node wants, and the subscriptions at the engine that bring them.
//!
//! Each wanted name has a *cover*: the subscription that brings its publications. It is the widest wanted pattern that reaches
//! all that the name reaches, so no publication comes by two subscriptions:
//!
//! ```text
//!   wanted: /a/b  /a/c  /a/*  /d/e  /d/*  /d/**      subscriptions: /a/*  /d/**
//! ```
//!
//! A name stays wanted for a while after its last subscriber has left, so that subscribers who come and go cost nothing. More
//! channels with one parent than [`WantsLimits::shared_from`] have the parent's `*` as their cover. More covers than
//! [`WantsLimits::subscriptions_max`] give way to one for all channels, until they are half as many. The node then gets publications that
//! it does not want, and drops them.
//!
//! A pattern that comes or goes changes the covers of the names below it. That is done bit by bit, because these may be many: a name has
//! its old cover until it has the new one.
//!
//! Covers change in two steps. New subscriptions are made and *confirmed* first: the engine tells that it has them. Those that
//! they replace end a while later, because the engine may still be sending what it has begun to send by the old ones only.
//! Confirmations are numbered.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bayeux::channel::is_pattern;
use foldhash::fast::RandomState;

/// The limits of what a node wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantsLimits {
    /// Time for which a name stays wanted after its last subscriber has left, in milliseconds.
    pub(crate) leave_delay_ms: u64,
    /// Channels with one parent that have their own subscriptions; more share one.
    pub(crate) shared_from: usize,
    /// Subscriptions; more give way to one for all channels.
    pub(crate) subscriptions_max: usize,
}

/// The wanted names, and the subscriptions that cover them.
pub(crate) struct Wants {
    limits: WantsLimits,
    names: BTreeMap<Box<str>, Want>,
    /// Names without subscribers, by the time at which they are forgotten.
    leaving: VecDeque<(u64, Box<str>)>,
    /// The parents of wanted channels.
    parents: HashMap<Box<str>, Parent, RandomState>,
    /// By their covers.
    subscriptions: HashMap<Arc<str>, Subscription, RandomState>,
    /// Prefixes below which names get their covers again, with the last name that has it.
    unchosen: BTreeMap<Box<str>, Option<Box<str>>>,
    /// Covers that have come into use or out of it since the last plan.
    touched: Vec<Arc<str>>,
    /// Covers out of use, with the confirmation after which their subscriptions end.
    ending: VecDeque<(u64, Arc<str>)>,
    /// Those whose confirmation has come, with the time at which they end.
    overlapping: VecDeque<(u64, Arc<str>)>,
    /// The number of covers in use.
    in_use: usize,
    /// True while one subscription for all channels stands for the covers.
    wants_all: bool,
    /// The number of subscriptions that the engine knows of.
    subscribed: usize,
    last_key: u64,
}

struct Want {
    cover: Arc<str>,
    /// The time at which it is forgotten, if it has no subscriber.
    leaves_ms: Option<u64>,
}

#[derive(Default)]
struct Parent {
    /// The number of its wanted channels.
    channels: usize,
    /// True if they share a subscription.
    is_shared: bool,
}

#[derive(Default)]
struct Subscription {
    /// Its key at the engine, which knows of it.
    key: u64,
    /// The number of names that it covers. Those of the one for all channels are one more while it stands for all covers.
    users: usize,
    /// The number of the confirmation that tells that the engine has it. None: the engine does not know of it.
    confirmation: Option<u64>,
    /// The number of the confirmation after which it ends, if it is out of use, and the time at which it ends after that.
    ends_after: Option<u64>,
    ends_ms: Option<u64>,
}

impl Wants {
    /// Nothing is wanted.
    pub(crate) fn new(limits: WantsLimits) -> Wants {
        Wants {
            limits,
            names: BTreeMap::new(),
            leaving: VecDeque::new(),
            parents: HashMap::default(),
            subscriptions: HashMap::default(),
            unchosen: BTreeMap::new(),
            touched: Vec::new(),
            ending: VecDeque::new(),
            overlapping: VecDeque::new(),
            in_use: 0,
            wants_all: false,
            subscribed: 0,
            last_key: KEYS_BELOW,
        }
    }

    /// Notes that a name has subscribers.
    pub(crate) fn add(&mut self, name: &str) {
        if let Some(want) = self.names.get_mut(name) {
            want.leaves_ms = None;
            return;
        }
        let cover = self.cover_of(name);
        let want = Want { cover: self.start_using(&cover), leaves_ms: None };
        self.names.insert(name.into(), want);
        if is_pattern(name) {
            // A wider one covers all names below it already.
            if *cover == *name {
                self.choose_below(parent_of(name));
            }
        } else {
            let parent = self.parents.entry(parent_of(name).into()).or_default();
            parent.channels += 1;
            if parent.channels > self.limits.shared_from && !parent.is_shared {
                parent.is_shared = true;
                self.choose_below(parent_of(name));
            }
        }
    }

    /// Notes that a name has no subscriber any more. It stays wanted for a while.
    pub(crate) fn remove(&mut self, name: &str, now_ms: u64) {
        if let Some(want) = self.names.get_mut(name) {
            let leaves_ms = now_ms + self.limits.leave_delay_ms;
            want.leaves_ms = Some(leaves_ms);
            self.leaving.push_back((leaves_ms, name.into()));
        }
    }

    /// Forgets names whose time has come, but for those that have subscribers again. If too many wait, the oldest do not wait
    /// any longer. Goes on with the choice of covers. Call it after changes, before [`Wants::plan`].
    pub(crate) fn expire(&mut self, now_ms: u64, is_wanted: impl Fn(&str) -> bool) {
        while let Some((due_ms, _)) = self.leaving.front()
            && (*due_ms <= now_ms || self.leaving.len() > LEAVING_MAX)
            && let Some((due_ms, name)) = self.leaving.pop_front()
        {
            let leaves = self.names.get(&name).is_some_and(|want| want.leaves_ms == Some(due_ms));
            if leaves && !is_wanted(&name) {
                self.forget(&name);
            }
        }
        self.choose_covers();
        self.keep_limit();
    }

    /// The time at which the next name is forgotten, or the next subscription ends. 0: covers have to be chosen.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        if !self.unchosen.is_empty() {
            return Some(0);
        }
        let leaving = self.leaving.front().map(|(due_ms, _)| *due_ms);
        let overlapping = self.overlapping.front().map(|(due_ms, _)| *due_ms);
        leaving.into_iter().chain(overlapping).min()
    }

    fn forget(&mut self, name: &str) {
        let Some(want) = self.names.remove(name) else { return };
        self.stop_using(&want.cover);
        if is_pattern(name) {
            if self.subscriptions.get(name).is_some_and(|subscription| subscription.users > 0) {
                self.choose_below(parent_of(name));
            }
        } else if let Some(parent) = self.parents.get_mut(parent_of(name)) {
            parent.channels -= 1;
            let ends_sharing = parent.is_shared && parent.channels <= self.limits.shared_from / 2;
            parent.is_shared &= !ends_sharing;
            if parent.channels == 0 {
                self.parents.remove(parent_of(name));
            }
            if ends_sharing {
                self.choose_below(parent_of(name));
            }
        }
    }

    /// Lets one subscription for all channels stand for too many covers, or ends that.
    fn keep_limit(&mut self) {
        let max = self.limits.subscriptions_max;
        if !self.wants_all && self.in_use > max {
            self.wants_all = true;
            self.start_using(ALL);
        } else if self.wants_all && self.in_use - 1 <= max / 2 {
            self.wants_all = false;
            self.stop_using(&ALL.into());
        } else {
            return;
        }
        let mut covers: Vec<Arc<str>> = self.subscriptions.keys().cloned().collect();
        covers.sort_unstable();
        self.touched.extend(covers);
    }

    /// True if the engine has to have this subscription.
    fn is_needed(wants_all: bool, cover: &str, subscription: &Subscription) -> bool {
        subscription.users > 0 && (!wants_all || cover == ALL)
    }

    /// The subscriptions to make now, by their keys and covers. They get the number `next` of a confirmation. `last`: the number
    /// of the last confirmation before. Subscriptions that have gone out of use end after the latest of the two.
    pub(crate) fn plan(&mut self, last: u64, next: u64) -> Vec<(u64, Arc<str>)> {
        let (mut new, mut unused) = (Vec::new(), Vec::new());
        for cover in std::mem::take(&mut self.touched) {
            let Some(subscription) = self.subscriptions.get_mut(&cover) else { continue };
            let is_needed = Wants::is_needed(self.wants_all, &cover, subscription);
            match (is_needed, subscription.confirmation) {
                (false, None) if subscription.users == 0 => _ = self.subscriptions.remove(&cover),
                (false, None) => {}
                (false, Some(_)) => unused.push(cover),
                (true, None) => {
                    // Later subscriptions have higher keys: the engine reads them in that order.
                    self.last_key += 1;
                    (subscription.key, subscription.confirmation) = (self.last_key, Some(next));
                    self.subscribed += 1;
                    new.push((subscription.key, cover));
                }
                (true, Some(_)) => (subscription.ends_after, subscription.ends_ms) = (None, None),
            }
        }
        let after = if new.is_empty() { last } else { next };
        for cover in unused {
            if let Some(subscription) = self.subscriptions.get_mut(&cover) {
                (subscription.ends_after, subscription.ends_ms) = (Some(after), None);
                self.ending.push_back((after, cover));
            }
        }
        new
    }

    /// The keys of the subscriptions that end now. The engine has confirmed up to this number.
    pub(crate) fn ended(&mut self, confirmed: u64, now_ms: u64) -> Vec<u64> {
        while let Some((after, cover)) = self.ending.pop_front_if(|(after, _)| *after <= confirmed) {
            let ends = |subscription: &&mut Subscription| subscription.ends_after == Some(after);
            if let Some(subscription) = self.subscriptions.get_mut(&cover).filter(ends) {
                subscription.ends_ms = Some(now_ms + OVERLAP_MS);
                self.overlapping.push_back((now_ms + OVERLAP_MS, cover));
            }
        }
        let mut keys = Vec::new();
        while let Some((due_ms, cover)) = self.overlapping.pop_front_if(|(due_ms, _)| *due_ms <= now_ms) {
            // It may have come into use meanwhile, and gone out of it once more: then it ends later.
            let ends = |subscription: &&mut Subscription| subscription.ends_ms == Some(due_ms);
            if let Some(subscription) = self.subscriptions.get_mut(&cover).filter(ends) {
                keys.push(subscription.key);
                self.subscribed -= 1;
                if subscription.users == 0 {
                    self.subscriptions.remove(&cover);
                    continue;
                }
                (subscription.confirmation, subscription.ends_ms) = (None, None);
            }
        }
        keys
    }

    /// The number of the confirmation after which publications on a name arrive. None if it is not wanted, or the engine knows
    /// nothing of it.
    pub(crate) fn confirmation_of(&self, name: &str) -> Option<u64> {
        let cover = &*self.names.get(name)?.cover;
        self.subscriptions.get(if self.wants_all { ALL } else { cover })?.confirmation
    }

    /// Notes that the engine has lost all subscriptions, and makes them again: they get this number of a confirmation.
    pub(crate) fn confirm_again(&mut self, number: u64) {
        let known = self.subscriptions.values_mut().filter(|subscription| subscription.confirmation.is_some());
        known.for_each(|subscription| subscription.confirmation = Some(number));
    }

    /// All wanted names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// The number of subscriptions at the engine, or soon there.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscribed
    }

    /// The widest wanted pattern that reaches all that a name reaches, or the name itself.
    fn cover_of(&self, name: &str) -> Box<str> {
        let mut pattern = String::with_capacity(name.len() + 3);
        for (at, _) in name.match_indices('/') {
            pattern.clear();
            pattern.push_str(&name[..at]);
            pattern.push_str("/**");
            if pattern == name || self.names.contains_key(pattern.as_str()) {
                return pattern.into();
            }
        }
        if !is_pattern(name) {
            let parent = parent_of(name);
            pattern.clear();
            pattern.push_str(parent);
            pattern.push_str("/*");
            let is_shared = self.parents.get(parent).is_some_and(|parent| parent.is_shared);
            if is_shared || self.names.contains_key(pattern.as_str()) {
                return pattern.into();
            }
        }
        name.into()
    }

    /// The covers of all names below a prefix have to be chosen again.
    fn choose_below(&mut self, prefix: &str) {
        self.unchosen.insert(prefix.into(), None);
    }

    /// Chooses covers again, of as many names as a turn has time for.
    fn choose_covers(&mut self) {
        let mut left = CHOSEN_MAX;
        while left > 0
            && let Some((prefix, after)) = self.unchosen.pop_first()
        {
            // All names below it have a slash there, and `0` is the character after the slash.
            let (from, to) = (format!("{prefix}/"), format!("{prefix}0"));
            let lower = after.as_deref().map_or(Bound::Included(&*from), Bound::Excluded);
            let (mut visited, mut last, mut changes) = (0, None, Vec::new());
            for (name, want) in self.names.range::<str, _>((lower, Bound::Excluded(&*to))).take(left) {
                (visited, last) = (visited + 1, Some(name));
                let cover = self.cover_of(name);
                if *cover != *want.cover {
                    changes.push((name.clone(), cover));
                }
            }
            if visited == left {
                self.unchosen.insert(prefix, last.cloned());
            }
            left = left.saturating_sub(visited.max(1));
            for (name, cover) in changes {
                let cover = self.start_using(&cover);
                let before = self.names.get_mut(&name).map(|want| std::mem::replace(&mut want.cover, cover));
                before.iter().for_each(|before| self.stop_using(before));
            }
        }
    }

    fn start_using(&mut self, cover: &str) -> Arc<str> {
        let known = self.subscriptions.get_key_value(cover).map(|(cover, _)| cover.clone());
        let cover = known.unwrap_or_else(|| cover.into());
        let subscription = self.subscriptions.entry(cover.clone()).or_default();
        subscription.users += 1;
        if subscription.users == 1 {
            self.in_use += 1;
            self.touched.push(cover.clone());
        }
        cover
    }

    fn stop_using(&mut self, cover: &Arc<str>) {
        let Some(subscription) = self.subscriptions.get_mut(cover) else { return };
        subscription.users -= 1;
        if subscription.users == 0 {
            self.in_use -= 1;
            self.touched.push(cover.clone());
        }
    }
}

/// All but the last segment of a name.
fn parent_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Lower keys are those of subscriptions of other parts, which are there all the time.
const KEYS_BELOW: u64 = 16;
/// The pattern of all channels.
const ALL: &str = "/**";
/// Time for which a subscription goes on beside those that replace it, in milliseconds: longer than a server takes to send.
const OVERLAP_MS: u64 = 1_000;
/// Names whose covers are chosen again in one turn: a few milliseconds.
const CHOSEN_MAX: usize = 4_096;
/// Names without subscribers that wait to be forgotten.
const LEAVING_MAX: usize = 10_000;

#[cfg(test)]
#[path = "wants_tests.rs"]
mod tests;
