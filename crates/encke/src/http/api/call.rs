//! A request of the HTTP API that has passed its checks, and its answer.

use std::sync::Arc;
use std::time::Duration;

use bayeux::RawJson;
use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderMap;
use serde::Serialize;

use super::input::Query;
use super::problem::{Kind, Problem};
use super::types::{LIMIT_DEFAULT, LIMIT_MAX};
use crate::added_operation::ApiOperation;
use crate::http::connection::Connection;
use crate::net::everywhere::WideCursor;
use crate::net::listing::Cursor;
use crate::session_names::SessionNames;
use encke_core::Settings;

/// A request that has passed the checks of its key and its query.
pub(super) struct Call<'a> {
    pub(super) connection: &'a Connection,
    pub(super) settings: &'a Settings,
    /// The path of the operation, below that of all.
    pub(super) path: &'static str,
    /// The operations that the program has added.
    pub(super) added: &'a [Arc<ApiOperation>],
    pub(super) headers: &'a HeaderMap,
    pub(super) query: Query,
    /// The part of the path that `{id}` stands for.
    pub(super) id: &'a str,
    /// The name of the key. Empty for a program on this machine without a key.
    pub(super) key_name: &'a str,
    pub(super) body: &'a [u8],
}

/// The outcome of an operation: a JSON text, and true if an earlier request got it first.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    pub(super) is_repeated: bool,
    /// True if it carries messages of a channel that compresses.
    pub(super) compresses: bool,
}

impl Answer {
    pub(super) fn new(answer: &impl Serialize) -> Answer {
        // The answers are structs of texts, numbers and valid JSON, so they have a JSON form.
        let body = serde_json::to_vec(answer).unwrap_or_default();
        Answer { status: StatusCode::OK, body: body.into(), is_repeated: false, compresses: false }
    }
}

impl Call<'_> {
    pub(super) fn limits(&self) -> bayeux::Limits {
        self.connection.node.shard().limits().clone()
    }

    /// Checks the depth of data.
    pub(super) fn data<'d>(&self, data: &'d str, limits: &bayeux::Limits) -> Result<RawJson<'d>, String> {
        let wanted =
            || format!("at most {} levels of arrays and objects (setting json_depth_max)", limits.json_depth_max);
        bayeux::json::validate(data, limits.json_depth_max)
            .map(RawJson::trusted)
            .map_err(|error| format!("{error}: {}", wanted()))
    }

    /// Waits until the server admits the work of this request.
    pub(super) async fn wait_for_turn(&self) -> Result<(), Problem> {
        let usage = self.connection.usage().get();
        let peer = self.connection.peer(&self.connection.client(self.headers));
        let turn = self.connection.node.wait_for_turn(&usage, self.body.len(), peer, || None);
        let has_turn = matches!(tokio::time::timeout(ADMISSION_TIMEOUT, turn).await, Ok(Ok(())));
        let busy = || Problem::new(Kind::BUSY, "the server takes no messages at the moment; nothing was published");
        has_turn.then_some(()).ok_or_else(busy)
    }

    /// The names of sessions in answers.
    pub(super) fn names(&self) -> &SessionNames {
        &self.connection.node.server().api.session_names
    }

    /// The number of items that the request wants.
    pub(super) fn limit(&self) -> Result<usize, Problem> {
        Ok(self.query.number("limit", 1..=LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT) as usize)
    }

    /// True if a list is about all nodes of a cluster.
    pub(super) fn is_about_all_nodes(&self) -> Result<bool, Problem> {
        match self.query.text("cluster") {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(Problem::parameter("cluster", "true or false")),
        }
    }

    /// The position at which the page of a list over all nodes begins.
    pub(super) fn wide_cursor(&self) -> Result<WideCursor, Problem> {
        let cursor = self.connection.node.server().wide_cursor(self.query.text("cursor"));
        cursor.ok_or_else(|| Problem::parameter("cursor", "the value of `next` on the page before"))
    }

    /// The position at which the page of a list of this node begins.
    pub(super) fn cursor(&self) -> Result<Cursor, Problem> {
        let cursor = self.connection.node.server().cursor(self.query.text("cursor"));
        cursor.ok_or_else(|| Problem::parameter("cursor", "the value of `next` on the page before"))
    }
}

/// The server stops while a request is being processed.
pub(super) fn going_away() -> Problem {
    Problem::new(Kind::BUSY, "the server is going away")
}

/// The time for which a request waits until the server admits its work.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(5);
