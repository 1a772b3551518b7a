//! The operations that the program has added.

use http::StatusCode;

use super::call::{Answer, Call};
use super::problem::{Kind, Problem};

/// The answer of an operation that the program has added.
pub(super) async fn answer(call: &Call<'_>) -> Result<Answer, Problem> {
    let added = call.added.iter().find(|added| added.path == call.path);
    let body = added.map(|added| (added.read)()).transpose().map_err(|error| {
        tracing::error!(%error, path = call.path, "the answer of an operation is no JSON");
        Problem::new(Kind::BUSY, "the answer of this operation is no JSON")
    })?;
    Ok(Answer { status: StatusCode::OK, body: body.unwrap_or_default().into(), is_repeated: false, compresses: false })
}
