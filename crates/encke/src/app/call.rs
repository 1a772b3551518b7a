//! A call of a service, and what a handler takes from it.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use encke_core::{Identity, Service};
use serde::de::DeserializeOwned;

use super::caller::Caller;
use super::reply::{Failure, Json, Raw};
use crate::handle::{Handle, WeakHandle};

/// A call of a service. Clones share its content.
#[derive(Clone, Debug)]
pub struct Call(Arc<Content>);

#[derive(Debug)]
struct Content {
    /// The session, the channel, the id, the data and the `ext` of the message, one after the other.
    text: Box<str>,
    /// The ends of the first four in the text.
    ends: [usize; 4],
    has: [bool; 3],
    identity: Option<Arc<Identity>>,
    context: Arc<Context>,
}

/// The data that handlers of one server share.
#[derive(Debug)]
pub(crate) struct Context {
    states: States,
    /// Set when the server starts.
    handle: OnceLock<WeakHandle>,
}

impl Context {
    pub(crate) fn new(states: States) -> Context {
        Context { states, handle: OnceLock::new() }
    }

    /// Sets the handle, once.
    pub(crate) fn set(&self, handle: WeakHandle) {
        let _again = self.handle.set(handle);
    }

    /// A handle of the server, while it runs.
    pub(crate) fn handle(&self) -> Option<Handle> {
        self.handle.get()?.upgrade()
    }
}

/// The states of [`Builder::state`](crate::Builder::state), by type.
#[derive(Default)]
pub(crate) struct States(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}

impl States {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, state: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(state));
    }

    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl Call {
    /// A call of an anonymous session with this `data` (valid JSON), for tests of a handler: without an id, and without a
    /// server.
    pub fn new(session: &str, channel: &str, data: &str) -> Call {
        Call::of(&Service::new(session, channel, data), &Arc::new(Context::new(States::default())))
    }

    /// The same with an id.
    pub fn with_id(self, id: &str) -> Call {
        let mut service = Service::new(self.session(), self.channel(), self.data().unwrap_or("null"));
        service.id = Some(id);
        Call::of(&service, &self.0.context)
    }

    pub(crate) fn of(service: &Service<'_>, context: &Arc<Context>) -> Call {
        let parts = [Some(service.caller.id), Some(service.channel), service.id, service.data, service.ext];
        let mut ends = [0; 4];
        let mut text = String::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        for (at, part) in parts.iter().enumerate() {
            text.push_str(part.unwrap_or_default());
            if let Some(end) = ends.get_mut(at) {
                *end = text.len();
            }
        }
        Call(Arc::new(Content {
            text: text.into(),
            ends,
            has: [service.id.is_some(), service.data.is_some(), service.ext.is_some()],
            identity: service.caller.identity.cloned(),
            context: context.clone(),
        }))
    }

    /// The id of the session that calls: its client id.
    pub fn session(&self) -> &str {
        &self.0.text[..self.0.ends[0]]
    }

    /// The channel of the service, below `/service/`.
    pub fn channel(&self) -> &str {
        &self.0.text[self.0.ends[0]..self.0.ends[1]]
    }

    /// The id of the message. The reply carries it.
    pub fn id(&self) -> Option<&str> {
        self.0.has[0].then(|| &self.0.text[self.0.ends[1]..self.0.ends[2]])
    }

    /// The `data` of the message, as raw JSON.
    pub fn data(&self) -> Option<&str> {
        self.0.has[1].then(|| &self.0.text[self.0.ends[2]..self.0.ends[3]])
    }

    /// The `ext` of the message, as raw JSON.
    pub fn ext(&self) -> Option<&str> {
        self.0.has[2].then(|| &self.0.text[self.0.ends[3]..])
    }

    /// The identity of the session, if its handshake gave it one.
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        self.0.identity.as_ref()
    }

    /// The user of the session, empty for an anonymous one.
    pub fn user(&self) -> &str {
        self.identity().map_or("", |identity| &identity.user)
    }

    /// The session and its identity.
    pub fn caller(&self) -> Caller<'_> {
        match self.identity() {
            Some(identity) => Caller::of(self.session(), identity),
            None => Caller::anonymous(self.session()),
        }
    }

    /// A handle of the server. None when the server has ended.
    pub fn handle(&self) -> Option<Handle> {
        self.0.context.handle()
    }
}

/// A value that a handler takes from a call: [`Call`] itself, [`Json`], [`Raw`], [`State`], [`User`].
pub trait FromCall: Sized {
    /// Takes it.
    ///
    /// # Errors
    /// The failure that the caller gets, if the call has no such value. The handler does not run then.
    fn from_call(call: &Call) -> Result<Self, Failure>;

    /// The type of a state that must have been given to the builder. The start fails without it.
    fn needs() -> Option<Need> {
        None
    }
}

/// A state that a handler needs.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    id: TypeId,
    name: &'static str,
}

impl Need {
    /// The need for a state of this type.
    pub fn of<T: 'static>() -> Need {
        Need { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// The name of the type, if it is missing.
    pub(crate) fn missing(self, states: &States) -> Option<&'static str> {
        (!states.0.contains_key(&self.id)).then_some(self.name)
    }
}

impl FromCall for Call {
    fn from_call(call: &Call) -> Result<Call, Failure> {
        Ok(call.clone())
    }
}

impl<T: DeserializeOwned> FromCall for Json<T> {
    /// A message without `data` reads as `null`.
    fn from_call(call: &Call) -> Result<Json<T>, Failure> {
        let read = serde_json::from_str(call.data().unwrap_or("null"));
        read.map(Json).map_err(|error| Failure::new("invalid_data", &error.to_string()))
    }
}

impl FromCall for Raw {
    fn from_call(call: &Call) -> Result<Raw, Failure> {
        Ok(Raw(call.data().unwrap_or("null").into()))
    }
}

/// A state given to [`Builder::state`](crate::Builder::state): mostly an `Arc`, because each call gets a clone.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromCall for State<T> {
    fn from_call(call: &Call) -> Result<State<T>, Failure> {
        let state = call.0.context.states.get::<T>().cloned();
        state.map(State).ok_or_else(|| Failure::new("internal", "a state is missing"))
    }

    fn needs() -> Option<Need> {
        Some(Need::of::<T>())
    }
}

/// The identity of the caller. A call of an anonymous session fails with the class `anonymous`.
#[derive(Clone, Debug)]
pub struct User(pub Arc<Identity>);

impl FromCall for User {
    fn from_call(call: &Call) -> Result<User, Failure> {
        let identity = call.identity().filter(|identity| !identity.user.is_empty());
        identity.cloned().map(User).ok_or_else(|| Failure::new("anonymous", "only users may call this"))
    }
}
