//! Lists of sessions and channels over all shards, page by page. Each shard reads its own table; nothing is locked, and no
//! shard searches for long at once.

use std::collections::HashMap;

use bayeux::ChannelName;
use foldhash::fast::RandomState;

use super::server_shared::ServerShared;
use encke_core::{ChannelView, Id, Owner, Page, SessionView, Shard};

/// A position in a list: a shard, and a slot of its table.
pub(crate) type Cursor = (usize, usize);

/// A page of a list. Items that exist during the whole listing are on exactly one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T> {
    /// The items. There may be fewer than the limit, or none, and still a next page.
    pub items: Vec<T>,
    /// The cursor of the next page. None after the last one.
    pub next: Option<String>,
}

impl ServerShared {
    /// The position with this text, or the first one. None if it is the text of no position.
    pub(crate) fn cursor(&self, text: Option<&str>) -> Option<Cursor> {
        let Some(text) = text else { return Some((0, 0)) };
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let (shard, slot) = text.split_once('.')?;
        Some((number(shard)?, number(slot)?)).filter(|(shard, _)| *shard < self.mailboxes.shards())
    }

    /// A page of the sessions. None if the server stops.
    pub(crate) async fn list_sessions(&self, from: Cursor, limit: usize) -> Option<List<SessionView>> {
        self.list(from, limit, |slot, max| move |shard: &Shard| shard.sessions_from(slot, max)).await
    }

    /// A page of the channels and patterns with subscribers that a pattern matches, or of all. A channel with subscribers
    /// on several shards belongs to the list of the lowest of them; the others only count their subscribers. None if the
    /// server stops.
    pub(crate) async fn list_channels(
        &self,
        from: Cursor,
        limit: usize,
        pattern: Option<&str>,
    ) -> Option<List<ChannelView>> {
        let page = |slot, max| {
            let pattern = pattern.map(String::from);
            move |shard: &Shard| {
                let pattern = pattern.as_deref().map(ChannelName::known);
                let lower = (1_u64 << shard.index()) - 1;
                let interest = &shard.shared().interest;
                shard.channels_from(slot, max, |name| {
                    let channel = ChannelName::known(name);
                    let fits = pattern.is_none_or(|pattern| pattern == channel || pattern.matches(channel));
                    fits && interest.of_name(name) & lower == 0
                })
            }
        };
        let mut listed = self.list(from, limit, page).await?;
        self.add_other_shards(&mut listed.items).await?;
        Some(listed)
    }

    /// The sessions of an owner, on all shards. None if the server stops.
    pub(crate) async fn sessions_of(&self, owner: Owner) -> Option<Vec<Id>> {
        let mut ids = Vec::new();
        for shard in 0..self.mailboxes.shards() {
            let owner = owner.clone();
            ids.extend(self.inspect(shard, move |shard| shard.sessions_of(&owner)).await?);
        }
        Some(ids)
    }

    /// Reads shards until there are `limit` items, or one of them has searched for long.
    async fn list<T: Send + 'static, L: FnOnce(&Shard) -> Page<T> + Send + 'static>(
        &self,
        from: Cursor,
        limit: usize,
        look: impl Fn(usize, usize) -> L,
    ) -> Option<List<T>> {
        let (mut items, mut next) = (Vec::new(), Some(from));
        while let Some((shard, slot)) = next
            && items.len() < limit
        {
            let max = limit - items.len();
            let page = self.inspect(shard, look(slot, max)).await?;
            let has_searched = page.next.is_some() && page.items.len() < max;
            items.extend(page.items);
            let following = (shard + 1 < self.mailboxes.shards()).then_some((shard + 1, 0));
            next = page.next.map(|slot| (shard, slot)).or(following);
            if has_searched {
                break;
            }
        }
        Some(List { items, next: next.map(|(shard, slot)| format!("{shard}.{slot}")) })
    }

    /// Adds the subscribers on other shards than the first of each channel.
    async fn add_other_shards(&self, channels: &mut [ChannelView]) -> Option<()> {
        let shards = self.mailboxes.shards();
        let mut elsewhere: HashMap<usize, Vec<usize>, RandomState> = HashMap::default();
        for (index, channel) in channels.iter().enumerate() {
            let interested = self.shared().interest.of_name(&channel.name);
            // The lowest bit is the shard that has listed it.
            let others = interested & interested.wrapping_sub(1);
            (0..shards).filter(|shard| others >> shard & 1 == 1).for_each(|shard| {
                elsewhere.entry(shard).or_default().push(index);
            });
        }
        for (shard, indexes) in elsewhere {
            let names: Vec<Box<str>> = indexes.iter().map(|index| channels[*index].name.clone()).collect();
            let count = move |shard: &Shard| names.iter().map(|name| shard.subscribers_of(name)).collect::<Vec<_>>();
            let counts = self.inspect(shard, count).await?;
            indexes.into_iter().zip(counts).for_each(|(index, count)| channels[index].subscribers += count);
        }
        Some(())
    }
}
