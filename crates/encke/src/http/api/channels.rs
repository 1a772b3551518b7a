//! Channels and their histories.

use std::collections::HashMap;

use bayeux::ChannelName;
use encke_core::{ChannelView, ShardMessage};
use foldhash::fast::RandomState;
use serde_json::value::RawValue;

use super::input::{any_channel, broadcast_channel};
use super::problem::{Kind, Problem};
use super::routes::OFFSET_MAX;
use super::sessions::written;
use super::types::{ChannelItem, ChannelList, History, HistoryMessage, Removed};
use super::{Answer, Call, going_away};

/// Lists channels in the order of the shards' tables. A channel with subscribers on several shards belongs to the list
/// of the lowest of them; the others are asked for their subscribers only.
pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Problem> {
    let limit = call.limit()?;
    let mut cursor = call.cursor()?;
    let limits = call.limits();
    let pattern = call.query.text("pattern");
    let pattern = pattern.map(|name| any_channel(name, &limits).map(|name| name.as_str().to_owned()));
    let pattern = pattern.transpose().map_err(|detail| Problem::parameter("pattern", detail))?;
    let server_shared = &call.connection.node.server_shared;
    let mut channels = Vec::new();
    while let Some((shard, slot)) = cursor
        && channels.len() < limit
    {
        let max = limit - channels.len();
        let pattern = pattern.clone();
        let look = move |shard: &encke_core::Shard| {
            let pattern = pattern.as_deref().map(ChannelName::known);
            let lower = (1_u64 << shard.index()) - 1;
            let interest = &shard.shared().interest;
            shard.channels_from(slot, max, |name| {
                let is_wanted =
                    |pattern: ChannelName<'_>| pattern.as_str() == name || pattern.matches(ChannelName::known(name));
                pattern.is_none_or(is_wanted) && interest.of_name(name) & lower == 0
            })
        };
        let page = server_shared.inspect(shard, look).await.ok_or_else(going_away)?;
        let is_searched = page.next.is_some() && page.items.len() < max;
        channels.extend(page.items);
        cursor = call.next_cursor(shard, page.next);
        if is_searched {
            break;
        }
    }
    let channels = with_other_shards(call, channels).await?;
    Ok(Answer::new(&ChannelList { channels, next: cursor.map(written) }))
}

/// Adds the subscribers on other shards than the first of each channel.
async fn with_other_shards(call: &Call<'_>, channels: Vec<ChannelView>) -> Result<Vec<ChannelItem>, Problem> {
    let node = &call.connection.node;
    let shards = node.server_shared.mailboxes.len();
    let mut elsewhere: HashMap<usize, Vec<usize>, RandomState> = HashMap::default();
    if shards > 1 {
        let shared = node.shard.borrow().shared().clone();
        for (index, channel) in channels.iter().enumerate() {
            let interested = shared.interest.of_name(&channel.name);
            // The lowest bit is the shard that has listed it.
            let others = interested & interested.wrapping_sub(1);
            (0..shards).filter(|shard| others >> shard & 1 == 1).for_each(|shard| {
                elsewhere.entry(shard).or_default().push(index);
            });
        }
    }
    let mut items: Vec<_> = channels
        .into_iter()
        .map(|channel| ChannelItem { channel: channel.name.into(), subscribers: channel.subscribers })
        .collect();
    for (shard, indexes) in elsewhere {
        let names: Vec<String> = indexes.iter().map(|index| items[*index].channel.clone()).collect();
        let counts = node
            .server_shared
            .inspect(shard, move |shard| names.iter().map(|name| shard.subscribers_of(name)).collect::<Vec<_>>());
        let counts = counts.await.ok_or_else(going_away)?;
        indexes.into_iter().zip(counts).for_each(|(index, count)| items[index].subscribers += count);
    }
    Ok(items)
}

/// Reads messages of a history. Any shard may read it.
pub(super) fn history(call: &Call<'_>) -> Result<Answer, Problem> {
    let limit = call.limit()?;
    let after = call.query.number("after", 0..=OFFSET_MAX)?;
    let channel = channel(call)?;
    let shared = call.connection.node.shard.borrow().shared().clone();
    let found = shared.histories.find(&channel, 0).and_then(|position| {
        shared.histories.with(position.ring, |ring| {
            let first = after.map_or(ring.oldest(), |after| after + 1);
            let mut bytes = 0;
            let entries = ring.from(first).take(limit).take_while(|entry| {
                let is_first = bytes == 0;
                bytes += entry.text.len();
                is_first || bytes <= HISTORY_BYTES_MAX
            });
            let message = |entry: &encke_core::history::Entry| {
                let text = RawValue::from_string(entry.text.to_string()).ok()?;
                Some(HistoryMessage { offset: entry.number, time_ms: entry.wall_ms, message: text })
            };
            let messages = entries.filter_map(message).collect();
            let (epoch, oldest, next) = (ring.epoch().to_string(), ring.oldest(), ring.next());
            History { channel: channel.clone(), epoch, oldest, next, complete: first >= oldest, messages }
        })
    });
    found.map(|history| Answer::new(&history)).ok_or_else(no_history)
}

pub(super) async fn remove_history(call: &Call<'_>) -> Result<Answer, Problem> {
    let channel = channel(call)?;
    let node = &call.connection.node;
    let owner = node.shard.borrow().shared().histories.owner(&channel);
    let outcomes = &node.server_shared.outcomes;
    let token = outcomes.token();
    let outcome = outcomes.wait(token);
    node.send_to_shard(owner, ShardMessage::ClearHistory(channel.into(), token));
    let outcome = outcome.await.map_err(|_| going_away())?;
    match outcome.removed {
        None => Err(no_history()),
        Some(_) if !outcome.is_persisted => {
            Err(Problem::new(Kind::NotStored, "removed; the messages may return with the next start"))
        }
        Some(removed) => Ok(Answer::new(&Removed { removed })),
    }
}

fn channel(call: &Call<'_>) -> Result<String, Problem> {
    let name = call.query.required("channel")?;
    let channel = broadcast_channel(name, &call.limits()).map_err(|detail| Problem::parameter("channel", detail))?;
    Ok(channel.as_str().into())
}

fn no_history() -> Problem {
    Problem::new(Kind::NotFound, "the channel has no history: no rule gives it one, or it was never used")
}

/// Bytes of messages in one answer, but at least one message.
const HISTORY_BYTES_MAX: usize = 4 << 20;
