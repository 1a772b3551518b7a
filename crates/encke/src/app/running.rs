//! The hooks for channels of a running server: those of the builder, and those that the program adds and removes.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::call::Context;
use super::channel_hooks::{ChannelHook, HookId, Table};
use crate::error::HookError;

/// The hooks for channels of a running server: authorizers, filters, services and listeners. Clones are the same.
///
/// A change holds for every message that arrives after the call has returned. An operation that waits for a hook goes on with the hooks of
/// its beginning. Subscriptions that exist stay: a new authorizer is asked about them only when their session has a new identity, or a
/// restart restores them. [`Handle::unsubscribe_user`](crate::Handle::unsubscribe_user) and
/// [`Handle::unsubscribe_session`](crate::Handle::unsubscribe_session) end them. A new listener for the first and last subscriber learns
/// of changes only: of a channel that has subscribers, first that the last one is gone.
///
/// Each change copies the table of hooks, and a change of authorizers or such listeners makes each shard walk its channels once. In a
/// cluster each node has its own hooks.
///
/// ```
/// use encke::{Access, ChannelHook, Data, Grant, Params, Server, Settings};
///
/// let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
/// let running = Server::builder().settings(settings).start()?;
/// let hooks = running.hooks();
///
/// hooks.add("/service/double/{number}", ChannelHook::service(async |Params(number): Params<i64>| Data(2 * number)))?;
/// let closed = hooks.add("/room/**", ChannelHook::authorize(|_: &Access| Grant::deny("closed_for_today")))?;
/// assert!(hooks.remove(closed) && !hooks.remove(closed));
/// assert_eq!(hooks.clear("/service/double/{number}"), 1);
///
/// running.handle().drain();
/// running.join();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Hooks(Arc<Inner>);

struct Inner {
    /// Read for each message, by all shards: a lock would be one cache line that they all write.
    table: ArcSwap<Table>,
    /// Held while the table is replaced.
    changing: Mutex<()>,
    context: Arc<Context>,
}

opaque!(Hooks);

impl Hooks {
    pub(crate) fn new(table: Table, context: Arc<Context>) -> Hooks {
        Hooks(Arc::new(Inner { table: ArcSwap::from_pointee(table), changing: Mutex::new(()), context }))
    }

    /// Adds a hook for a channel, a pattern or a template, behind those that it has. A service replaces the one with exactly this name:
    /// calls that wait for that one get its answer.
    ///
    /// # Errors
    /// The name is none for such a hook, another template covers the same channels, or the hook takes a state that the builder
    /// was not given, or parameters that the name does not have.
    pub fn add(&self, pattern: &str, hook: ChannelHook) -> Result<HookId, HookError> {
        if let Some(state) = hook.needs().iter().find_map(|need| self.0.context.missing(*need)) {
            return Err(HookError::StateMissing { hook: hook.described(pattern), state });
        }
        self.change(|table| table.add(pattern, hook).map(|(id, _)| id))
    }

    /// Removes a hook. False if it has been removed or replaced.
    pub fn remove(&self, hook: HookId) -> bool {
        self.change(|table| table.remove(hook))
    }

    /// Removes all hooks of exactly this channel, pattern or template, also those of the builder. Returns their number.
    pub fn clear(&self, pattern: &str) -> usize {
        self.change(|table| table.clear(pattern))
    }

    /// The hooks of now.
    #[inline]
    pub(crate) fn table(&self) -> Guard<Arc<Table>> {
        self.0.table.load()
    }

    fn change<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let changing = self.0.changing.lock();
        let before = self.0.table.load_full();
        let mut table = Table::clone(&before);
        let result = change(&mut table);
        let shards_have_to_know = table.revision != before.revision;
        self.0.table.store(Arc::new(table));
        drop(changing);
        if shards_have_to_know && let Some(handle) = self.0.context.handle() {
            handle.application_changed();
        }
        result
    }
}
