//! Sessions: lists, one of them, and what is done to it.

use std::sync::Arc;

use bayeux::ChannelKind;

use crate::error::{RevocationError, SubscriptionError};
use crate::net::requests::{Change, Revocation};
use encke_core::{Id, Owner, SessionView, ShardMessage};

use super::call::{Answer, Call, going_away};
use super::input::{self, any_channel};
use super::problem::{Kind, Problem};
use super::types::{
    Deliver, Disconnect, OneSession, Page, Reached, Revoke, RevokedToken, SessionItem, SessionList, Subscription,
};

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Problem> {
    let (limit, from) = (call.limit()?, call.cursor()?);
    let listed = call.connection.node.server().list_sessions(from, limit).await.ok_or_else(going_away)?;
    let sessions = listed.items.iter().map(|view| item(call, view)).collect();
    Ok(Answer::new(&SessionList { sessions, page: Page { next: listed.next } }))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Problem> {
    let Some((view, channels)) = find(call, call.id).await? else { return Err(unknown()) };
    let channels = channels.into_iter().map(String::from).collect();
    Ok(Answer::new(&OneSession { session: item(call, &view), channels }))
}

pub(super) async fn deliver(call: &Call<'_>) -> Result<Answer, Problem> {
    let Deliver { session, user, channel, data } = input::json(call.body)?;
    let limits = call.limits();
    let target = Target::of(session, user)?;
    let name = any_channel(&channel, &limits).map_err(|detail| Problem::field("/channel", detail))?;
    if name.is_pattern() || channel.starts_with("/meta/") {
        return Err(Problem::field("/channel", "a channel that is no pattern, and none below /meta/"));
    }
    let data = call.data(data.get(), &limits).map_err(|detail| Problem::field("/data", detail))?;
    call.wait_for_turn().await?;
    let frame: Arc<[u8]> = encke_core::message_frame(&channel, data.as_str(), None, None).into();
    reach(call, target, |id| ShardMessage::Deliver(id, frame.clone())).await
}

pub(super) async fn disconnect(call: &Call<'_>) -> Result<Answer, Problem> {
    let Disconnect { session, user } = input::json(call.body)?;
    reach(call, Target::of(session, user)?, ShardMessage::Disconnect).await
}

pub(super) async fn revoke(call: &Call<'_>) -> Result<Answer, Problem> {
    let Revoke { token_id } = input::json(call.body)?;
    if token_id.is_empty() {
        return Err(Problem::field("/token_id", "it is empty"));
    }
    let (node, tokens_max) = (&call.connection.node, call.settings.revoked_tokens_max);
    let revoked = node.server().revoke(&token_id, node.now().wall_ms + REVOKED_MS, tokens_max).await;
    let Revocation { sessions, is_durable } = revoked.map_err(|error| {
        let kind = match error {
            RevocationError::Full => Kind::FULL,
            RevocationError::NotStored => Kind::NOT_STORED,
            RevocationError::Stopped => return going_away(),
        };
        Problem::new(kind, error.to_string())
    })?;
    Ok(Answer::new(&RevokedToken { sessions, durable: is_durable }))
}

/// Changes a subscription, and waits for the outcome.
pub(super) async fn change(call: &Call<'_>, change: Change) -> Result<Answer, Problem> {
    let Subscription { session, channel } = input::json(call.body)?;
    let limits = call.limits();
    let name = any_channel(&channel, &limits).map_err(|detail| Problem::field("/channel", detail))?;
    if name.kind() != ChannelKind::Broadcast {
        return Err(Problem::field("/channel", "a channel or pattern, and none below /meta/ or /service/"));
    }
    let id = call.names().id(&session).ok_or_else(unknown)?;
    let changed = call.connection.node.server().change_subscription(change, id, &channel).await;
    changed.map_err(|error| match error {
        SubscriptionError::Full => Problem::new(Kind::FULL, error.to_string()),
        SubscriptionError::Stopped => going_away(),
        _ => unknown(),
    })?;
    Ok(Answer::new(&Reached { sessions: 1 }))
}

/// The sessions that a request is about.
enum Target {
    Session(String),
    User(String),
}

impl Target {
    fn of(session: Option<String>, user: Option<String>) -> Result<Target, Problem> {
        match (session, user) {
            (Some(session), None) => Ok(Target::Session(session)),
            (None, Some(user)) if user.is_empty() => Err(Problem::field("/user", "it is empty")),
            (None, Some(user)) => Ok(Target::User(user)),
            _ => Err(Problem::field("", "one of session and user is needed, and only one")),
        }
    }
}

/// Sends a message to the shards of these sessions.
async fn reach(call: &Call<'_>, target: Target, message: impl Fn(Id) -> ShardMessage) -> Result<Answer, Problem> {
    let ids = match target {
        Target::User(user) => {
            let sessions = call.connection.node.server().sessions_of(Owner::User(user.into()));
            sessions.await.ok_or_else(going_away)?
        }
        Target::Session(session) => {
            let Some((view, _)) = find(call, &session).await? else { return Err(unknown()) };
            vec![view.id]
        }
    };
    let shared = call.connection.node.server().shared().clone();
    ids.iter().for_each(|id| call.connection.node.send_to_shard(shared.shard_of(id), message(*id)));
    Ok(Answer::new(&Reached { sessions: ids.len() }))
}

/// A session with its channels. None if there is none with this name or id.
async fn find(call: &Call<'_>, id: &str) -> Result<Option<(SessionView, Vec<Box<str>>)>, Problem> {
    let server_shared = &call.connection.node.server();
    let shards = server_shared.mailboxes.shards();
    let home = |id: &Id| server_shared.shared().shard_of(id);
    let Some(id) = call.names().id(id).filter(|id| home(id) < shards) else { return Ok(None) };
    server_shared.inspect(home(&id), move |shard| shard.session(&id)).await.ok_or_else(going_away)
}

fn unknown() -> Problem {
    Problem::new(Kind::NOT_FOUND, "there is no such session")
}

fn item(call: &Call<'_>, view: &SessionView) -> SessionItem {
    SessionItem {
        id: call.names().of(&view.id),
        user: Some(String::from(&*view.user)).filter(|user| !user.is_empty()),
        connected: view.is_connected,
        subscriptions: view.subscriptions,
        waiting_messages: view.waiting_messages,
        waiting_bytes: view.waiting_bytes,
    }
}

/// The time for which a token is revoked, in milliseconds: longer than tokens are usually valid.
const REVOKED_MS: u64 = 30 * 24 * 3_600_000;
