//! State of the HTTP API that outlives a request.

use std::sync::Arc;

use encke_core::{NodeTag, Settings};
use parking_lot::RwLock;

use crate::added_operation::AddedOperations;
use crate::api_keys::ApiKeys;
use crate::idempotency::{Idempotency, Window};
use crate::session_names::SessionNames;

/// The state of the HTTP API.
pub(crate) struct ApiState {
    /// The keys that are valid now.
    pub(crate) keys: RwLock<Arc<ApiKeys>>,
    /// The names of sessions in lists.
    pub(crate) session_names: SessionNames,
    /// Answers that are remembered.
    pub(crate) idempotency: Arc<Idempotency>,
    /// The operations of the program.
    pub(crate) added_operations: AddedOperations,
}

impl ApiState {
    /// The state at the start. `node`: the tag of the node in a cluster.
    pub(crate) fn new(keys: ApiKeys, node: Option<NodeTag>, settings: &Settings) -> ApiState {
        let idempotency = Arc::new(Idempotency::new(Window::of(settings)));
        let added_operations = AddedOperations::default();
        let session_names = SessionNames::new(node);
        ApiState { keys: RwLock::new(keys.into()), session_names, idempotency, added_operations }
    }
}
