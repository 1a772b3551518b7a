//! Channels and their histories.

use bayeux::ChannelName;
use encke_core::{Id, ServerEntry};
use serde_json::value::RawValue;

use crate::cluster::commands::ListedChannel;
use crate::error::RemovalError;
use crate::history_page::{HistoryPage, StoredMessage};
use crate::net::everywhere::WidePage;
use encke_local::{Member, PresenceCounts};

use super::call::{Answer, Call, going_away};
use super::input::{any_channel, broadcast_channel};
use super::problem::{Kind, Problem};
use super::types::{
    ChannelItem, ChannelList, History, HistoryMessage, Nodes, OFFSET_MAX, Page, PresenceItem, PresenceList, Removed,
};

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Problem> {
    let (limit, limits, server) = (call.limit()?, call.limits(), call.connection.node.server());
    let pattern = call.query.text("pattern").map(|name| any_channel(name, &limits)).transpose();
    let pattern = pattern.map_err(|detail| Problem::parameter("pattern", detail))?.map(ChannelName::as_str);
    let WidePage { items, next, nodes } = if call.is_about_all_nodes()? {
        let from = call.wide_cursor()?;
        server.list_channels_everywhere(from, limit, pattern).await.ok_or_else(going_away)?
    } else {
        let listed = server.list_channels(call.cursor()?, limit, pattern).await.ok_or_else(going_away)?;
        let items = listed.items.into_iter().map(ListedChannel::from).collect();
        WidePage { items, next: listed.next, nodes: None }
    };
    let item = |ListedChannel { name, subscribers }: ListedChannel| ChannelItem { channel: name.into(), subscribers };
    let channels = items.into_iter().map(item).collect();
    Ok(Answer::new(&ChannelList { channels, page: Page { next }, nodes: Nodes::of(nodes) }))
}

/// Lists the users on a channel.
pub(super) async fn presence(call: &Call<'_>) -> Result<Answer, Problem> {
    let (limit, channel) = (call.limit()?, channel(call)?);
    let after = call.query.text("cursor").unwrap_or_default();
    if !call.connection.node.shard_mut().has_presence(&channel) {
        let detail = "the channel has no presence: no rule has presence for it";
        return Err(Problem::new(Kind::NOT_FOUND, detail));
    }
    let (server, granted) = (call.connection.node.server(), ServerEntry::ApiPresence.may());
    let (members, nodes) = if call.is_about_all_nodes()? {
        server.members_everywhere(&channel, (after, limit), None, granted).await
    } else {
        (server.presence.members_here(&channel, after, limit, granted), None)
    };
    let item = |member: Member| {
        let Member { user, sessions, session_ids, .. } = member;
        let session_ids = session_ids.iter().filter_map(|id| Some(call.names().of(&Id::parse(id)?))).collect();
        PresenceItem { user, sessions, session_ids }
    };
    let PresenceCounts { users, anonymous, sessions, .. } = members.counts;
    let (page, members) = (Page { next: members.next }, members.members.into_iter().map(item).collect());
    Ok(Answer::new(&PresenceList { channel, users, anonymous, sessions, members, page, nodes: Nodes::of(nodes) }))
}

/// Reads messages of a history. Any shard may read it.
pub(super) async fn history(call: &Call<'_>) -> Result<Answer, Problem> {
    let limit = call.limit()?;
    let after = call.query.number("after", 0..=OFFSET_MAX)?;
    let channel = channel(call)?;
    let found = call.connection.node.server().shared().read_history(&channel, ServerEntry::ApiHistory.may(), |ring| {
        (HistoryPage::read(ring, after, limit), ring.compresses())
    });
    let (page, compresses) = found.ok_or_else(no_history)?;
    let HistoryPage { epoch, oldest, next, is_complete: complete, messages } = page;
    let message = |stored: StoredMessage| {
        let (offset, time_ms) = (stored.position.offset, stored.time_ms);
        Some(HistoryMessage { offset, time_ms, message: RawValue::from_string(stored.into_json()).ok()? })
    };
    let (epoch, messages) = (epoch.to_string(), messages.into_iter().filter_map(message).collect());
    let history = History { channel, epoch, oldest, next, complete, messages };
    Ok(Answer { compresses, ..Answer::new(&history) })
}

pub(super) async fn remove_history(call: &Call<'_>) -> Result<Answer, Problem> {
    let channel = channel(call)?;
    let removed = call.connection.node.server().clear_history(&channel).await.map_err(|error| match error {
        RemovalError::NoHistory(_) => no_history(),
        RemovalError::NotStored => {
            Problem::new(Kind::NOT_STORED, "removed; the messages may return with the next start")
        }
        RemovalError::Stopped => going_away(),
    })?;
    Ok(Answer::new(&Removed { removed }))
}

fn channel(call: &Call<'_>) -> Result<String, Problem> {
    let name = call.query.required("channel")?;
    let channel = broadcast_channel(name, &call.limits()).map_err(|detail| Problem::parameter("channel", detail))?;
    Ok(channel.as_str().into())
}

fn no_history() -> Problem {
    Problem::new(Kind::NOT_FOUND, "the channel has no history: no rule gives it one, or it was never used")
}
