//! The operations that a program adds to the HTTP API of its server.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::api_keys::Scope;

/// An operation that a program adds to the HTTP API: `GET` on a separate path, with an answer in JSON. See
/// [`Handle::add_operation`](crate::Handle::add_operation).
///
/// ```
/// use encke::{ApiOperation, Scope};
/// use schemars::JsonSchema;
/// use serde::Serialize;
///
/// /// The till of the shop.
/// #[derive(Serialize, JsonSchema)]
/// struct Till {
///     /// The orders of today.
///     orders: u64,
/// }
///
/// let operation = ApiOperation::get("getTill", "/shop/till", Scope::Read, || Till { orders: 7 })
///     .summary("Show the till")
///     .description("The orders of today.");
/// # drop(operation);
/// ```
pub struct ApiOperation {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) scope: Scope,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    /// The schema of the answer.
    pub(crate) answer: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) read: Box<Read>,
}

/// Reads the answer, as JSON.
type Read = dyn Fn() -> Result<Vec<u8>, serde_json::Error> + Send + Sync;

impl ApiOperation {
    /// An operation by its name in the OpenAPI document, its path below `/api/v1`, and the scope that a key needs. The server calls the
    /// function at each request, on the thread of a shard, so it must not block. The document has the schema of its answer.
    pub fn get<T: Serialize + JsonSchema>(
        name: &'static str,
        path: &'static str,
        scope: Scope,
        read: impl Fn() -> T + Send + Sync + 'static,
    ) -> ApiOperation {
        let read = Box::new(move || serde_json::to_vec(&read()));
        let answer = SchemaGenerator::subschema_for::<T>;
        ApiOperation { name, path, scope, summary: "", description: "", answer, read }
    }

    /// The purpose of the operation, in a few words.
    pub fn summary(self, summary: &'static str) -> ApiOperation {
        ApiOperation { summary, ..self }
    }

    /// Its effect and its answer, in sentences.
    pub fn description(self, description: &'static str) -> ApiOperation {
        ApiOperation { description, ..self }
    }
}

opaque!(ApiOperation, path);

/// The operations that the program has added, and the document with all operations.
#[derive(Default)]
pub(crate) struct AddedOperations(Mutex<Added>);

#[derive(Default)]
struct Added {
    operations: Arc<Vec<Arc<ApiOperation>>>,
    /// Made when it is first read after a change.
    document: Option<Bytes>,
}

impl AddedOperations {
    pub(crate) fn add(&self, operation: ApiOperation) {
        let mut added = self.0.lock();
        Arc::make_mut(&mut added.operations).push(Arc::new(operation));
        added.document = None;
    }

    /// All of them.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<ApiOperation>>> {
        self.0.lock().operations.clone()
    }

    /// The document, which `make` writes if it has changed.
    pub(crate) fn document(&self, make: impl FnOnce(&[Arc<ApiOperation>]) -> String) -> Bytes {
        let Added { operations, document } = &mut *self.0.lock();
        document.get_or_insert_with(|| make(operations).into()).clone()
    }
}
