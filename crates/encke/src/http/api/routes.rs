//! The operations of the HTTP API: the one table that requests are routed by and that the OpenAPI document is made from.

use std::pin::Pin;
use std::sync::Arc;

use schemars::{Schema, SchemaGenerator};

use super::call::{Answer, Call};
use super::problem::Problem;
use super::session_store::{SessionStoreInfo, Upkeep};
use super::types::{
    AttributesVersion, ChannelList, Deliver, Disconnect, Ended, History, Info, LIMIT_DEFAULT, LIMIT_MAX, OFFSET_MAX,
    OneSession, PresenceList, Publish, PublishBatch, Published, Reached, Removed, Revoke, RevokedToken,
    SessionAttributes, SessionList, SetAttribute, SetTerms, Subscription, channel, channel_or_pattern,
};
use super::{added, attributes, channels, info, publish, session_store, sessions};
use crate::added_operation::ApiOperation;
use crate::api_keys::Scope;

/// An operation.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// The path below [`ROOT`]. `{id}` stands for one segment.
    pub(super) path: &'static str,
    /// Its name in the OpenAPI document.
    pub(super) operation: &'static str,
    pub(super) run: Run,
    /// The scope that a key needs.
    pub(super) scope: Scope,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// The schema of the body. None if the operation has no body.
    pub(super) body: Option<SchemaOf>,
    /// The schema of the answer.
    pub(super) answer: SchemaOf,
    /// The statuses of errors beside those that every operation has.
    pub(super) errors: &'static [u16],
}

/// Makes a schema.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Performs an operation.
pub(super) type Run = for<'a> fn(&'a Call<'a>) -> Pin<Box<dyn Future<Output = Result<Answer, Problem>> + 'a>>;

/// A parameter of the query, or of the path.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) is_required: bool,
    pub(super) is_in_path: bool,
    pub(super) schema: SchemaOf,
}

impl Route {
    /// An operation that the program has added.
    fn added(added: &ApiOperation) -> Route {
        let ApiOperation { name, path, scope, summary, description, answer, .. } = *added;
        Route { summary, description, ..without_body(path, name, scope, answer) }
    }
}

/// The routes of the server, and those that the program has added.
pub(super) fn all(added: &[Arc<ApiOperation>]) -> impl Iterator<Item = Route> {
    ROUTES.iter().copied().chain(added.iter().map(|added| Route::added(added)))
}

/// The route of a path below [`ROOT`] with the value of its `{id}`, or the methods of the path. None if there is no such
/// path.
pub(super) fn find<'a>(
    path: &'a str,
    method: &str,
    added: &[Arc<ApiOperation>],
) -> Option<Result<(Route, &'a str), &'static str>> {
    let of_path = || all(added).filter_map(|route| Some((route, id_in(path, &route)?)));
    if let Some(found) = of_path().find(|(route, _)| route.method == method) {
        return Some(Ok(found));
    }
    let has = |method| of_path().any(|(route, _)| route.method == method);
    match (has("GET"), has("POST"), has("DELETE")) {
        (false, false, false) => None,
        (true, false, false) => Some(Err("GET, HEAD")),
        (true, false, true) => Some(Err("GET, HEAD, DELETE")),
        (false, true, false) => Some(Err("POST")),
        _ => Some(Err("GET, HEAD, POST, DELETE")),
    }
}

/// The value of `{id}` in a path, if the path is that of the route. Empty if the route has none.
fn id_in<'p>(path: &'p str, route: &Route) -> Option<&'p str> {
    match route.path.split_once("{id}") {
        None => path.strip_prefix(route.path).filter(|rest| rest.is_empty()),
        Some((before, after)) => {
            let id = path.strip_prefix(before)?.strip_suffix(after);
            id.filter(|id| !id.is_empty() && !id.contains('/'))
        }
    }
}

fn of<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn limit(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT })
}

fn offset(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": OFFSET_MAX })
}

fn boolean(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "boolean", "default": true })
}

fn text(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string" })
}

/// An operation without a body that can have parameters, as programs add it. Its texts are empty.
const fn without_body(path: &'static str, operation: &'static str, scope: Scope, answer: SchemaOf) -> Route {
    let (method, body, parameters, errors): (_, _, &[Parameter], &[u16]) = ("GET", None, &[], &[]);
    let (summary, description, run): (_, _, Run) = ("", "", |call| Box::pin(added::answer(call)));
    Route { method, path, operation, run, scope, summary, description, parameters, body, answer, errors }
}

/// An operation that changes something and needs no body.
const fn order(path: &'static str, operation: &'static str, answer: SchemaOf) -> Route {
    Route { method: "POST", ..without_body(path, operation, Scope::Manage, answer) }
}

/// An operation with a body.
const fn post(path: &'static str, operation: &'static str, scope: Scope, body: SchemaOf, answer: SchemaOf) -> Route {
    Route { method: "POST", body: Some(body), ..without_body(path, operation, scope, answer) }
}

const fn parameter(name: &'static str, schema: SchemaOf, description: &'static str) -> Parameter {
    Parameter { name, description, is_required: false, is_in_path: false, schema }
}

const LIMIT: Parameter = parameter("limit", limit, "The most items of the answer.");
const CURSOR: Parameter =
    parameter("cursor", text, "The value of `next` on the page before. Missing for the first page.");
const CLUSTER: Parameter = parameter(
    "cluster",
    boolean,
    "False: only this node of a cluster. Its cursors belong to lists of one node. Without a cluster it changes nothing.",
);
const SESSION: Parameter = Parameter {
    is_required: true,
    is_in_path: true,
    ..parameter("id", text, "The session: its `id` in a list, or its `clientId`.")
};
const CHANNEL: Parameter = Parameter { is_required: true, ..parameter("channel", channel, "The channel.") };

/// The path of all operations.
pub(super) const ROOT: &str = "/api/v1";
/// The path of the OpenAPI document below [`ROOT`].
pub(super) const DOCUMENT: &str = "/openapi.json";
/// All operations.
pub(super) const ROUTES: &[Route] = &[
    Route {
        summary: "Publish a message on a channel",
        description: "All subscribers of the channel get the message. If the channel has a history, the answer comes when the message is \
                      stored, and contains its position. Requests that are sent one after another publish in this order.",
        errors: &[409, 422, 507],
        run: |call| Box::pin(publish::one(call)),
        ..post("/publish", "publish", Scope::Publish, of::<Publish<'_>>, of::<Published>)
    },
    Route {
        summary: "Publish messages, each on one or more channels",
        description: "The messages are published in their order. If one of them is not valid, none is published.",
        errors: &[409, 422, 507],
        run: |call| Box::pin(publish::batch(call)),
        ..post("/publish/batch", "publishBatch", Scope::Publish, of::<PublishBatch<'_>>, of::<Published>)
    },
    Route {
        summary: "Send a message to one session, or to all sessions of a user",
        description: "The sessions need no subscription. The answer comes when the message is on its way, on all nodes of a cluster.",
        errors: &[404],
        run: |call| Box::pin(sessions::deliver(call)),
        ..post("/deliver", "deliver", Scope::Deliver, of::<Deliver<'_>>, of::<Reached>)
    },
    Route {
        summary: "End one session, or all sessions of a user",
        description: "The clients get a disconnect message, on all nodes of a cluster. A user without sessions is no error.",
        errors: &[404],
        run: |call| Box::pin(sessions::disconnect(call)),
        ..post("/disconnect", "disconnect", Scope::Manage, of::<Disconnect>, of::<Ended>)
    },
    Route {
        summary: "Subscribe a session to a channel or pattern",
        description: "Nothing is decided about it, and its client gets no reply: only the messages from now on.",
        errors: &[404, 409],
        run: |call| Box::pin(sessions::change(call, true)),
        ..post("/subscribe", "subscribe", Scope::Manage, of::<Subscription>, of::<Reached>)
    },
    Route {
        summary: "End the subscription of a session",
        description: "Its client gets no reply. A subscription that it does not have is no error.",
        errors: &[404],
        run: |call| Box::pin(sessions::change(call, false)),
        ..post("/unsubscribe", "unsubscribe", Scope::Manage, of::<Subscription>, of::<Reached>)
    },
    Route {
        summary: "Give a session other terms than the settings",
        description: "Its times, and the way in which it gets messages. They stand above those of its token, in place of those that an earlier \
                      request gave it, until it ends.",
        errors: &[404],
        run: |call| Box::pin(sessions::set_terms(call)),
        ..post("/terms", "setSessionTerms", Scope::Manage, of::<SetTerms>, of::<Reached>)
    },
    Route {
        summary: "Revoke a token",
        description: "All sessions that were opened with the token end, and it opens no other for 30 days, on no node of a cluster. If the \
                      server has a data directory, or is a node of a cluster, the answer comes when the revocation is stored.",
        errors: &[409, 507],
        run: |call| Box::pin(sessions::revoke(call)),
        ..post("/revoke", "revokeToken", Scope::Manage, of::<Revoke>, of::<RevokedToken>)
    },
    Route {
        summary: "List sessions",
        description: "A session that exists during the whole listing is on exactly one page. In a cluster the list goes from node to node; a \
                      session that moves meanwhile may be missing, or come twice.",
        parameters: &[LIMIT, CURSOR, CLUSTER],
        run: |call| Box::pin(sessions::list(call)),
        ..without_body("/sessions", "listSessions", Scope::Read, of::<SessionList>)
    },
    Route {
        summary: "Show the store of sessions",
        description: "Only a cluster with a store such as MongoDB has one; without, sessions are among the keys of its engine.",
        errors: &[404],
        run: |call| Box::pin(session_store::info(call)),
        ..without_body("/session-store", "getSessionStore", Scope::Read, of::<SessionStoreInfo<'_>>)
    },
    Route {
        summary: "End the sessions of nodes that are gone",
        description: "Those whose node this node has found gone for longer than their clients may stay away. The setting scavenge_period_ms \
                      does the same by time.",
        errors: &[404],
        run: |call| Box::pin(session_store::scavenge(call)),
        ..order("/session-store/scavenge", "scavengeSessions", of::<Upkeep>)
    },
    Route {
        summary: "Delete old sessions from their store",
        description: "Those that ended before purge_invalid_age_ms, and those that were not written for purge_valid_age_ms. The setting purge \
                      does the same by time.",
        errors: &[404],
        run: |call| Box::pin(session_store::purge(call)),
        ..order("/session-store/purge", "purgeSessions", of::<Upkeep>)
    },
    Route {
        summary: "Show one session",
        description: "With the channels and patterns that it subscribes to.",
        parameters: &[SESSION],
        errors: &[404],
        run: |call| Box::pin(sessions::one(call)),
        ..without_body("/sessions/{id}", "getSession", Scope::Read, of::<OneSession>)
    },
    Route {
        summary: "Show the attributes of a session",
        description: "The values that the application has set for it.",
        parameters: &[SESSION],
        errors: &[404],
        run: |call| Box::pin(attributes::all(call)),
        ..without_body("/sessions/{id}/attributes", "getSessionAttributes", Scope::Read, of::<SessionAttributes>)
    },
    Route {
        summary: "Set an attribute of a session",
        description: "The session keeps it until it ends, also over a clean restart. With a version it is set only if no other change came \
                      first.",
        parameters: &[SESSION],
        errors: &[404, 409],
        run: |call| Box::pin(attributes::set(call)),
        ..post(
            "/sessions/{id}/attributes",
            "setSessionAttribute",
            Scope::Manage,
            of::<SetAttribute<'_>>,
            of::<AttributesVersion>,
        )
    },
    Route {
        method: "DELETE",
        summary: "Remove an attribute of a session",
        description: "One that it does not have is no error.",
        parameters: &[
            SESSION,
            Parameter { is_required: true, ..parameter("name", text, "The name of the attribute.") },
            parameter("version", offset, "The version that the attributes must have. Missing: any."),
        ],
        errors: &[404, 409],
        run: |call| Box::pin(attributes::remove(call)),
        ..without_body("/sessions/{id}/attributes", "removeSessionAttribute", Scope::Manage, of::<AttributesVersion>)
    },
    Route {
        summary: "List channels and patterns with subscribers",
        description: "A channel that has subscribers during the whole listing is on exactly one page. In a cluster the list goes from node to \
                      node, and counts the subscribers of all nodes.",
        parameters: &[
            LIMIT,
            CURSOR,
            CLUSTER,
            parameter("pattern", channel_or_pattern, "Only channels that this pattern matches, or this channel."),
        ],
        run: |call| Box::pin(channels::list(call)),
        ..without_body("/channels", "listChannels", Scope::Read, of::<ChannelList>)
    },
    Route {
        summary: "List the users on a channel",
        description: "In the order of their names. A channel whose rule has no presence is not found. In a cluster these are the users of all \
                      nodes.",
        parameters: &[CHANNEL, LIMIT, CURSOR, CLUSTER],
        errors: &[404],
        run: |call| Box::pin(channels::presence(call)),
        ..without_body("/presence", "listPresence", Scope::Read, of::<PresenceList>)
    },
    Route {
        summary: "Read messages of a channel's history",
        description: "The messages after an offset, oldest first.",
        parameters: &[
            CHANNEL,
            parameter(
                "after",
                offset,
                "The offset of the last message that is known. Missing: from the oldest message on.",
            ),
            LIMIT,
        ],
        errors: &[404],
        run: |call| Box::pin(channels::history(call)),
        ..without_body("/history", "readHistory", Scope::Read, of::<History>)
    },
    Route {
        method: "DELETE",
        summary: "Remove all messages of a channel's history",
        description: "Subscribers that replay the channel are informed that messages are gone. The answer comes when the removal is stored.",
        parameters: &[CHANNEL],
        errors: &[404, 507],
        run: |call| Box::pin(channels::remove_history(call)),
        ..without_body("/history", "removeHistory", Scope::Manage, of::<Removed>)
    },
    Route {
        summary: "Show the server",
        description: "Its version, its uptime, and how much it serves.",
        run: |call| Box::pin(info::info(call)),
        ..without_body("/info", "getInfo", Scope::Read, of::<Info>)
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_methods() {
        let found = |path, method| find(path, method, &[]).map(|found| found.map(|(route, id)| (route.operation, id)));
        assert_eq!(found("/publish", "POST"), Some(Ok(("publish", ""))));
        assert_eq!(found("/publish", "GET"), Some(Err("POST")));
        assert_eq!(found("/sessions/abc", "GET"), Some(Ok(("getSession", "abc"))));
        let attributes = found("/sessions/abc/attributes", "DELETE");
        assert_eq!(attributes, Some(Ok(("removeSessionAttribute", "abc"))));
        assert_eq!(found("/sessions/abc/attributes", "PUT"), Some(Err("GET, HEAD, POST, DELETE")));
        assert_eq!(found("/history", "POST"), Some(Err("GET, HEAD, DELETE")));
        assert_eq!(find("/history", "PATCH", &[]).map(|found| found.err()), Some(Some("GET, HEAD, DELETE")));
        for path in ["", "/", "/publish/", "/sessions/", "/sessions/a/b", "/sessions//attributes", "/PUBLISH", "/other"]
        {
            assert_eq!(found(path, "GET"), None, "{path}");
        }
    }

    #[test]
    fn operations_are_described_once() {
        for (index, route) in ROUTES.iter().enumerate() {
            let others = &ROUTES[index + 1..];
            assert!(others.iter().all(|other| other.operation != route.operation), "{}", route.path);
            assert!(others.iter().all(|other| (other.path, other.method) != (route.path, route.method)));
            assert!(route.summary.len() > 5 && route.description.ends_with('.'), "{}", route.path);
        }
    }
}
