//! The builder of a server: settings, hooks, files.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use encke_core::{Actions, Application, Settings};
use http::{Request, Response};
use hyper::body::Body as HttpBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_service::Service;

use crate::api_keys::ApiKeys;
use crate::app::call::Calling;
use crate::app::channel_hooks::ChannelHook;
use crate::app::events::SessionEvent;
use crate::app::handlers::{
    AuthenticateHandler, Authenticator, AuthorizeAsyncHandler, AuthorizeHandler, ChannelListener, FilterAsyncHandler,
    FilterHandler, SessionListener, SubscriptionListener,
};
use crate::app::hooks::BuilderHooks;
use crate::app::route::{Route, RouteHandler};
use crate::app::service::ServiceHandler;
use crate::asset::Asset;
use crate::beside::Beside;
use crate::cluster::engine::ClusterEngine;
use crate::cluster::settings::ClusterSettings;
use crate::cluster::store::{SessionStore, SessionStoreSettings};
use crate::fallback::{BoxError, RequestBody};
use crate::tls::TicketKey;

/// A server before its start: its settings, the hooks of the application, its files. [`Builder::start`] runs it.
///
/// The hooks:
///
/// | method | decides or does | may wait |
/// | --- | --- | --- |
/// | [`authenticate`](Builder::authenticate) | who may open a session, and as whom | yes |
/// | [`authorize`](Builder::authorize), [`authorize_async`](Builder::authorize_async) | who may create, subscribe to and publish to a channel | the second |
/// | [`service`](Builder::service) | answers calls | yes |
/// | [`filter`](Builder::filter), [`filter_async`](Builder::filter_async) | changes or refuses publications | the second |
/// | [`route`](Builder::route) | answers HTTP requests, and may hold them | yes |
/// | [`on_session`](Builder::on_session), [`on_channel`](Builder::on_channel), [`on_subscription`](Builder::on_subscription) | learns of sessions and subscribers | no |
///
/// A hook takes what it is about, and further values that implement [`FromCall`](crate::FromCall), as services do: a state of
/// [`Builder::state`], the typed data of a message, the user, a [`Handle`](crate::Handle).
///
/// ```
/// use std::collections::HashSet;
/// use std::sync::Arc;
///
/// use encke::{AppState, Publishing, Server, User, Verdict};
///
/// type Muted = Arc<HashSet<String>>;
///
/// let server = Server::builder().state(Muted::default()).filter(
///     "/chat/**",
///     |_: &Publishing, AppState(muted): AppState<Muted>, User(identity): User| match muted.contains(&*identity.user) {
///         true => Verdict::deny("muted"),
///         false => Verdict::Forward,
///     },
/// );
/// # drop(server);
/// ```
///
/// A hook is for a channel, for a pattern (`/room/*` for one segment more, `/room/**` for any number), or for a template: in
/// `/room/{id}/log` the parameter `{id}` stands for one segment, and the hook takes it as [`Params`](crate::Params). A channel has the hooks
/// of all names that cover it. Authorizers and filters of the widest come first: `/**`, `/room/**`, `/room/*`, then `/room/{id}`, then
/// `/room/7`. Of services and routes the closest one answers, so in the opposite order. Of two templates that one is closer whose first
/// segment that differs is no parameter. Two templates that stand for the same channels name their parameters alike.
/// [`Running::hooks`](crate::Running::hooks) adds and removes hooks while the server runs.
///
/// Hooks that do not wait run on the thread of a shard, between reading and writing: they must be short and never block. A
/// future is first polled there, too. If it is not ready, it continues on the threads of the application
/// ([`Settings::application_threads`]); the message of its session waits for it, and the messages after it. The rest of the
/// server does not. A future that takes longer than [`Settings::decision_timeout_ms`] is dropped and its message refused.
///
/// A panic in a hook refuses the message, too. The session and the server live on.
///
/// Sessions that a restart restores are not authenticated again, and come back only under the same
/// [`Authenticate::policy`](crate::Authenticate::policy). Authorizers are asked about their subscriptions. Messages of the
/// program itself ([`Handle::publish`]) pass no hook.
///
/// [`Handle::publish`]: crate::Handle::publish
#[derive(Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    pub(crate) settings: Settings,
    pub(crate) hooks: BuilderHooks,
    pub(crate) assets: &'static [Asset],
    pub(crate) listener: Option<TcpListener>,
    pub(crate) further_listeners: Vec<OwnedFd>,
    pub(crate) api_keys: ApiKeys,
    pub(crate) revoked: Vec<(Box<str>, u64)>,
    pub(crate) ticket_keys: Vec<TicketKey>,
    pub(crate) layers: Vec<Box<Layer>>,
    pub(crate) fallback: Option<Beside>,
    pub(crate) cluster: Option<(ClusterSettings, Box<dyn ClusterEngine>)>,
    pub(crate) session_store: Option<(SessionStoreSettings, Arc<dyn SessionStore>)>,
    pub(crate) without_listener: bool,
    pub(crate) echo: bool,
    pub(crate) reclaim_memory: Option<fn()>,
}

/// Puts an application in front of another.
pub(crate) type Layer = dyn FnOnce(Box<dyn Application>) -> Box<dyn Application> + Send;

impl Builder {
    /// Sets the settings.
    pub fn settings(mut self, settings: Settings) -> Builder {
        self.settings = settings;
        self
    }

    /// Sets the address to listen on: the setting [`Settings::listen`].
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.settings.listen = address;
        self
    }

    /// Authenticates handshakes. Without it, every session is anonymous.
    ///
    /// ```
    /// use encke::{Handshake, Identity, Refusal, Server};
    ///
    /// let server = Server::builder().authenticate(async |handshake: Handshake| match handshake.header("x-user") {
    ///     Some(user) => Ok(Identity::of_user(user)),
    ///     None => Err(Refusal::new(401, "who_are_you")),
    /// });
    /// # drop(server);
    /// ```
    pub fn authenticate<T: 'static, H: AuthenticateHandler<T>>(mut self, authenticator: H) -> Builder {
        self.hooks.authenticate(Arc::new(Authenticator::new(authenticator)));
        self
    }

    /// Adds an authorizer for a channel, a pattern or a template. Once a channel has any, at least one of them must grant an operation
    /// and none deny it. Those of wider patterns are asked first.
    ///
    /// Whoever subscribes to a pattern gets all channels that it matches. So the authorizers of `/room/*` are asked about
    /// `/room/**` and `/**`, too: beside those that cover the whole pattern, each name that it reaches has to grant. For that, `/room/{id}` is as `/room/*`.
    /// Authorizers of `/room/*` do not decide about `/room/a/b`. The start warns of that; those of `/room/**` do.
    ///
    /// ```
    /// use encke::{Access, Grant, Operation, Server};
    ///
    /// // Everybody reads the news, editors write them.
    /// let server = Server::builder().authorize("/news/**", |access: &Access| match access.operation() {
    ///     Operation::Publish if access.user() != "editor" => Grant::deny("editors_only"),
    ///     _ => Grant::Grant,
    /// });
    /// # drop(server);
    /// ```
    pub fn authorize<T, H: AuthorizeHandler<T>>(mut self, pattern: &str, authorizer: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::authorize(authorizer));
        self
    }

    /// Adds an authorizer that may wait, for a database, for example.
    pub fn authorize_async<T, H: AuthorizeAsyncHandler<T>>(mut self, pattern: &str, authorizer: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::authorize_async(authorizer));
        self
    }

    /// Adds a service: an async function that answers the calls to a channel below `/service/`, or to a pattern or a template. The
    /// closest one answers. [`ServiceHandler`] tells what it may take and return.
    ///
    /// ```
    /// use encke::{Call, Failure, Data, Server};
    ///
    /// let server = Server::builder().service("/service/divide", async |call: Call, Data((a, b)): Data<(i64, i64)>| {
    ///     let quotient = a.checked_div(b).ok_or(Failure::new("division", "that cannot be divided"))?;
    ///     println!("{} divides", call.session());
    ///     Ok::<_, Failure>(Data(quotient))
    /// });
    /// # drop(server);
    /// ```
    pub fn service<T, H: ServiceHandler<T>>(mut self, channel: &str, handler: H) -> Builder {
        self.hooks.add(channel, ChannelHook::service(handler));
        self
    }

    /// Adds a state that hooks and services take as [`AppState<T>`](crate::AppState), one for each type: mostly an `Arc`.
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, state: T) -> Builder {
        self.hooks.states.insert(state);
        self
    }

    /// Adds a filter for what clients publish on a channel, or on those of a pattern or a template: it passes a message on, changes it, drops it or
    /// refuses it. Each filter sees the changes of those before it. Those of wider patterns come first, then those that were
    /// added first.
    ///
    /// ```
    /// use encke::{Publishing, Server, Verdict};
    ///
    /// let server = Server::builder().filter("/chat/**", |message: &Publishing| match message.data() {
    ///     Some(data) if data.contains('!') => Verdict::Replace(data.replace('!', ".")),
    ///     _ => Verdict::Forward,
    /// });
    /// # drop(server);
    /// ```
    pub fn filter<T, H: FilterHandler<T>>(mut self, pattern: &str, filter: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::filter(filter));
        self
    }

    /// Adds a filter that takes and returns typed data: `Some` data replaces that of the message, `None` drops it. Data that is not of
    /// the type is refused (`403:invalid_data:publish_denied`).
    ///
    /// ```
    /// use encke::Server;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Deserialize, Serialize)]
    /// struct ChatMessage {
    ///     user: String,
    ///     chat: String,
    /// }
    ///
    /// let server = Server::builder().filter_json("/chat/**", |message: ChatMessage| {
    ///     let is_short = message.chat.len() < 1_000;
    ///     is_short.then(|| ChatMessage { chat: message.chat.trim().to_owned(), ..message })
    /// });
    /// # drop(server);
    /// ```
    pub fn filter_json<D, F>(mut self, pattern: &str, filter: F) -> Builder
    where
        D: DeserializeOwned + Serialize,
        F: Fn(D) -> Option<D> + Send + Sync + 'static,
    {
        self.hooks.add(pattern, ChannelHook::filter_json(filter));
        self
    }

    /// Adds a filter that may wait.
    pub fn filter_async<T, H: FilterAsyncHandler<T>>(mut self, pattern: &str, filter: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::filter_async(filter));
        self
    }

    /// Adds a listener for the beginnings and ends of sessions. What it requests through [`Actions`] is done after it.
    pub fn on_session<T, H: SessionListener<T>>(mut self, listener: H) -> Builder {
        let needs = listener.needs();
        let notify = move |event: &SessionEvent<'_>, actions: &mut Actions, calling: &Calling<'_>| {
            listener.notify(event, actions, calling)
        };
        self.hooks.on_session(Box::new(notify), needs);
        self
    }

    /// Adds a listener for the subscribers of a channel, or of the channels that a pattern covers: the first one, and that
    /// the last one is gone.
    pub fn on_channel<T, H: ChannelListener<T>>(mut self, pattern: &str, listener: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::on_channel(listener));
        self
    }

    /// Adds a listener for the subscriptions of each session to a channel, or to the channels and patterns that a pattern covers. It
    /// runs on the thread of the shard, also for subscriptions that a restart restores.
    pub fn on_subscription<T, H: SubscriptionListener<T>>(mut self, pattern: &str, listener: H) -> Builder {
        self.hooks.add(pattern, ChannelHook::on_subscription(listener));
        self
    }

    /// Adds a route: an async function that answers the HTTP requests for a path, or for the paths that a pattern or a template
    /// covers (`/orders/*` one segment more, `/orders/**` any number, `/orders/{id}/lines`). The closest one answers, and in front of
    /// [`Builder::fallback`]. The server's own paths stay its own.
    ///
    /// The function may await anything. A [`Hold`](crate::Hold) waits for messages of channels, a time or a condition, and
    /// the request is held meanwhile: without a thread, and until its client leaves. The function runs on the threads of the
    /// application. Its panic fails only this request, with the status 500.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use encke::{ConditionPanicked, Message, Raw, Release, RouteRequest, Server, SubscribeError};
    ///
    /// async fn wait_for_order(request: RouteRequest) -> Result<Result<Raw, ConditionPanicked>, SubscribeError> {
    ///     let hold = request.hold().on(&format!("/orders/{}", request.last_segment()))?;
    ///     let is_complete = |message: Option<&Message>| message.is_some_and(|it| it.data().contains("complete"));
    ///     Ok(match hold.timeout(Duration::from_secs(30)).until(is_complete).await {
    ///         Ok(Release::Message(message)) => Ok(Raw(message.data().to_owned())),
    ///         Ok(_) => Ok(Raw("null".to_owned())),
    ///         Err(panicked) => Err(panicked),
    ///     })
    /// }
    ///
    /// let server = Server::builder().route("/orders/wait/*", wait_for_order);
    /// # drop(server);
    /// ```
    pub fn route<T, H: RouteHandler<T>>(mut self, path: &str, handler: H) -> Builder {
        self.hooks.route(path, Route::new(path, handler));
        self
    }

    /// Puts an application of the core in front of all hooks, for crates such as `encke-webhooks`: `layer` gets the
    /// application that the hooks make, and returns one that asks it.
    pub fn layer<F>(mut self, layer: F) -> Builder
    where
        F: FnOnce(Box<dyn Application>) -> Box<dyn Application> + Send + 'static,
    {
        self.layers.push(Box::new(layer));
        self
    }

    /// Accepts connections from this bound socket instead of binding one: the socket of a supervisor, or of the
    /// previous server process.
    pub fn listener(mut self, listener: TcpListener) -> Builder {
        self.listener = Some(listener);
        self
    }

    /// Bound sockets of the previous server process. One with the address of a setting in [`Settings::listeners`] is used instead of
    /// a new one.
    pub fn further_listeners(mut self, listeners: Vec<OwnedFd>) -> Builder {
        self.further_listeners = listeners;
        self
    }

    /// Starts without a socket, for a server inside another HTTP server: see [`service`](crate::service).
    /// [`Settings::listen`] should be the address of that server: it decides which host names are ours.
    pub fn without_listener(mut self) -> Builder {
        self.without_listener = true;
        self
    }

    /// Passes requests that are not the server's to a tower service, such as an axum router. It gets all paths but those of
    /// the Bayeux endpoint, `/api/v1/`, held requests, `/healthz`, `/readyz`, `/metrics` and the files of
    /// [`Builder::assets`]; the directory of [`Settings::files`] is not served then. The address of the client
    /// ([`IpAddr`](std::net::IpAddr)) is an extension of the request.
    ///
    /// The service runs on the threads of the application, and is cancelled when its client leaves. It cannot upgrade a
    /// connection to another protocol: for that, put Encke inside the router ([`service`](crate::service)).
    pub fn fallback<S, B>(mut self, service: S) -> Builder
    where
        S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>,
        S: Clone + Send + Sync + 'static,
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.fallback = Some(Beside::new(service));
        self
    }

    /// Makes the server a node of a cluster: publications on channels without a history reach the subscribers of all nodes. The crate
    /// `encke-nats` has an engine. Without it, the server runs alone.
    pub fn cluster(mut self, settings: ClusterSettings, engine: impl ClusterEngine) -> Builder {
        self.cluster = Some((settings, Box::new(engine)));
        self
    }

    /// Keeps the sessions of a cluster in a store and not among the keys of its engine. All nodes need the same one. The crate
    /// `encke-mongodb` has one. Only a node of a cluster may have a store.
    pub fn session_store(mut self, settings: SessionStoreSettings, store: impl SessionStore) -> Builder {
        self.session_store = Some((settings, Arc::new(store)));
        self
    }

    /// Serves these files beside the Bayeux endpoint. [`Settings::files`] serves those of a directory.
    pub fn assets(mut self, assets: &'static [Asset]) -> Builder {
        self.assets = assets;
        self
    }

    /// The keys of the HTTP API below `/api/v1/`. Without any, only programs on this machine can use it, and only if
    /// [`Settings::api_loopback`] is set. [`Handle::set_api_keys`](crate::Handle::set_api_keys) replaces them.
    pub fn api_keys(mut self, keys: ApiKeys) -> Builder {
        self.api_keys = keys;
        self
    }

    /// The revoked tokens of the process before this one, as its [`Handle::revoked_tokens`](crate::Handle::revoked_tokens)
    /// gave them. A server with a `data` directory knows them from there.
    pub fn revoked_tokens(mut self, tokens: impl IntoIterator<Item = (Box<str>, u64)>) -> Builder {
        self.revoked.extend(tokens);
        self
    }

    /// The keys of TLS session tickets of the process before this one, as its
    /// [`Handle::ticket_keys`](crate::Handle::ticket_keys) gave them. Its clients resume their sessions here.
    pub fn ticket_keys(mut self, keys: impl IntoIterator<Item = TicketKey>) -> Builder {
        self.ticket_keys.extend(keys);
        self
    }

    /// Echoes every WebSocket message instead of speaking Bayeux, for suites that test the WebSocket protocol.
    pub fn echo(mut self) -> Builder {
        self.echo = true;
        self
    }

    /// Calls this function on the thread of a shard that has been busy and is now quiet, a few times more while it stays
    /// quiet, or that holds much less than before. It returns the thread's free memory to the system, with what other
    /// threads have freed of it: `mi_collect` of mimalloc, for example. Without it, an allocator may retain that memory.
    pub fn reclaim_memory_with(mut self, reclaim: fn()) -> Builder {
        self.reclaim_memory = Some(reclaim);
        self
    }
}

opaque!(Builder, settings);
