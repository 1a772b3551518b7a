//! State of the HTTP API that outlives a request.

use std::sync::{Arc, PoisonError, RwLock};

use crate::added_operation::AddedOperations;
use crate::api_keys::ApiKeys;
use crate::idempotency::Idempotency;
use crate::session_names::SessionNames;

/// The state of the HTTP API.
pub(crate) struct ApiState {
    keys: RwLock<Arc<ApiKeys>>,
    session_names: SessionNames,
    idempotency: Arc<Idempotency>,
    added_operations: AddedOperations,
}

impl ApiState {
    pub(crate) fn new(keys: ApiKeys) -> ApiState {
        let keys = RwLock::new(Arc::new(keys));
        let (idempotency, added_operations) = (Arc::default(), AddedOperations::default());
        ApiState { keys, session_names: SessionNames::new(), idempotency, added_operations }
    }

    /// The keys that are valid now.
    pub(crate) fn keys(&self) -> Arc<ApiKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the keys.
    pub(crate) fn set_keys(&self, keys: ApiKeys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// The names of sessions in lists.
    pub(crate) fn session_names(&self) -> &SessionNames {
        &self.session_names
    }

    /// The operations of the program.
    pub(crate) fn added_operations(&self) -> &AddedOperations {
        &self.added_operations
    }

    /// Answers that are remembered.
    pub(crate) fn idempotency(&self) -> &Arc<Idempotency> {
        &self.idempotency
    }
}
