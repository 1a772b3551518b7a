//! Sessions: lists, one of them, and what is done to it.

use std::sync::Arc;

use bayeux::ChannelKind;

use crate::cluster::commands::{NodeCommand, NodeReply, Target};
use crate::error::{RevocationError, SubscriptionError};
use crate::net::ends::Ends;
use crate::net::everywhere::WidePage;
use crate::net::requests::Revocation;

use super::call::{Answer, Call, going_away};
use super::input::{self, any_channel};
use super::problem::{Kind, Problem};
use super::types::{
    Deliver, Disconnect, Ended, Nodes, OneSession, Page, Reached, Revoke, RevokedToken, SessionItem, SessionList,
    SetTerms, Subscription,
};

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Problem> {
    let (limit, server) = (call.limit()?, call.connection.node.server());
    let WidePage { items, next, nodes } = if call.is_about_all_nodes()? {
        server.list_sessions_everywhere(call.wide_cursor()?, limit).await.ok_or_else(going_away)?
    } else {
        let listed = server.list_sessions(call.cursor()?, limit).await.ok_or_else(going_away)?;
        let items = listed.items.into_iter().map(|view| server.listed_session(view)).collect();
        WidePage { items, next: listed.next, nodes: None }
    };
    let sessions = items.into_iter().map(SessionItem::from).collect();
    Ok(Answer::new(&SessionList { sessions, page: Page { next }, nodes: Nodes::of(nodes) }))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Problem> {
    let server = call.connection.node.server();
    let found = server.at_session(call.id, |session| NodeCommand::Session { session }).await.ok_or_else(going_away)?;
    let NodeReply::Session(session, channels) = found.of_session().map_err(unknown)? else { return Err(unknown(true)) };
    let channels = channels.into_iter().map(String::from).collect();
    Ok(Answer::new(&OneSession { session: session.into(), channels }))
}

pub(super) async fn deliver(call: &Call<'_>) -> Result<Answer, Problem> {
    let Deliver { session, user, channel, data } = input::json(call.body)?;
    let limits = call.limits();
    let target = target_of(session, user)?;
    let name = any_channel(&channel, &limits).map_err(|detail| Problem::field("/channel", detail))?;
    if name.is_pattern() || channel.starts_with("/meta/") {
        return Err(Problem::field("/channel", "a channel that is no pattern, and none below /meta/"));
    }
    let data = call.data(data.get(), &limits).map_err(|detail| Problem::field("/data", detail))?;
    call.wait_for_turn().await?;
    let message: Arc<[u8]> = encke_core::message_frame(&channel, data.as_str(), None, None).into();
    reach(call, target, |to| NodeCommand::Deliver { to, message: message.clone() }).await
}

pub(super) async fn disconnect(call: &Call<'_>) -> Result<Answer, Problem> {
    let Disconnect { session, user } = input::json(call.body)?;
    let server = call.connection.node.server();
    let Ends { sessions, is_recorded, nodes } = match target_of(session, user)? {
        Target::Session(session) => server.end_session(&session).await.ok_or_else(going_away)?.map_err(unknown)?,
        Target::User(user) => server.end_user(&user).await.ok_or_else(going_away)?,
    };
    Ok(Answer::new(&Ended { sessions, recorded: is_recorded, nodes: Nodes::of(nodes) }))
}

pub(super) async fn revoke(call: &Call<'_>) -> Result<Answer, Problem> {
    let Revoke { token_id } = input::json(call.body)?;
    if token_id.is_empty() {
        return Err(Problem::field("/token_id", "it is empty"));
    }
    let (node, tokens_max) = (&call.connection.node, call.settings.revoked_tokens_max);
    let revoked = node.server().revoke(&token_id, node.now().wall_ms + REVOKED_MS, tokens_max).await;
    let Revocation { sessions, is_durable, nodes } = revoked.map_err(|error| {
        let kind = match error {
            RevocationError::Full => Kind::FULL,
            RevocationError::NotStored => Kind::NOT_STORED,
            RevocationError::NotShared => Kind::BUSY,
            RevocationError::Stopped => return going_away(),
        };
        Problem::new(kind, error.to_string())
    })?;
    Ok(Answer::new(&RevokedToken { sessions, durable: is_durable, nodes: Nodes::of(nodes) }))
}

/// Changes a subscription, and waits for the outcome.
pub(super) async fn change(call: &Call<'_>, subscribes: bool) -> Result<Answer, Problem> {
    let Subscription { session, channel } = input::json(call.body)?;
    let limits = call.limits();
    let name = any_channel(&channel, &limits).map_err(|detail| Problem::field("/channel", detail))?;
    if name.kind() != ChannelKind::Broadcast {
        return Err(Problem::field("/channel", "a channel or pattern, and none below /meta/ or /service/"));
    }
    let channel: Box<str> = channel.into();
    let command = |session| NodeCommand::Change { session, channel: channel.clone(), subscribes };
    reach_session(call, &session, command).await
}

/// Gives a session terms above those of its identity, and waits for the outcome.
pub(super) async fn set_terms(call: &Call<'_>) -> Result<Answer, Problem> {
    let SetTerms { session, terms } = input::json(call.body)?;
    terms.check().map_err(|error| Problem::field(&format!("/terms/{}", error.name), error.wanted))?;
    reach_session(call, &session, |session| NodeCommand::Terms { session, terms }).await
}

/// The sessions that a request is about.
fn target_of(session: Option<String>, user: Option<String>) -> Result<Target, Problem> {
    match (session, user) {
        (Some(session), None) => Ok(Target::Session(session)),
        (None, Some(user)) if user.is_empty() => Err(Problem::field("/user", "it is empty")),
        (None, Some(user)) => Ok(Target::User(user.into())),
        _ => Err(Problem::field("", "one of session and user is needed, and only one")),
    }
}

/// Runs a command on the nodes with these sessions.
async fn reach(call: &Call<'_>, to: Target, command: impl Fn(Target) -> NodeCommand) -> Result<Answer, Problem> {
    if let Target::Session(session) = to {
        return reach_session(call, &session, |session| command(Target::Session(session))).await;
    }
    let reached = call.connection.node.server().everywhere(&command(to)).await.ok_or_else(going_away)?;
    Ok(Answer::new(&Reached { sessions: reached.sessions(), nodes: Nodes::of(reached.nodes) }))
}

/// Runs a command on the node with this session.
async fn reach_session(
    call: &Call<'_>,
    session: &str,
    command: impl Fn(String) -> NodeCommand,
) -> Result<Answer, Problem> {
    let reached = call.connection.node.server().at_session(session, command).await.ok_or_else(going_away)?;
    let nodes = Nodes::of(reached.nodes);
    match reached.of_session().map_err(unknown)? {
        NodeReply::Full => Err(Problem::new(Kind::FULL, SubscriptionError::Full.to_string())),
        reply => Ok(Answer::new(&Reached { sessions: reply.count(), nodes })),
    }
}

/// No node has a session. `have_all_answered`: no node can have it.
pub(super) fn unknown(have_all_answered: bool) -> Problem {
    match have_all_answered {
        true => Problem::new(Kind::NOT_FOUND, "there is no such session"),
        false => Problem::new(Kind::BUSY, "no node has this session, and some have not answered"),
    }
}

/// The time for which a token is revoked, in milliseconds: longer than tokens are usually valid.
const REVOKED_MS: u64 = 30 * 24 * 3_600_000;
