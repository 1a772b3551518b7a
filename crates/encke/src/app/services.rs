//! The services of a running server: those of the builder, and those that the program adds and removes.

use std::sync::Arc;

use bayeux::ChannelKind;
use parking_lot::RwLock;

use super::call::Context;
use super::hooks::name_of;
use super::patterns::Patterns;
use super::service::{Registered, ServiceHandler};
use crate::error::HookError;

/// The services of a running server, by their channels and patterns. Clones are the same.
///
/// ```
/// use encke::{Data, Server, Settings};
///
/// let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
/// let running = Server::builder().settings(settings).start()?;
/// running.services().add("/service/double", async |Data(number): Data<i64>| Data(2 * number))?;
/// assert!(running.services().remove("/service/double"));
/// running.handle().drain();
/// running.join();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Services(Arc<Inner>);

struct Inner {
    table: RwLock<Table>,
    context: Arc<Context>,
}

/// An entry has a service.
pub(crate) type Table = Patterns<Option<Arc<Registered>>>;

impl Services {
    pub(crate) fn new(table: Table, context: Arc<Context>) -> Services {
        Services(Arc::new(Inner { table: RwLock::new(table), context }))
    }

    /// Adds a service, or replaces the one with this channel or pattern. Calls that wait for an earlier one get its answer.
    ///
    /// # Errors
    /// The name is no channel or pattern below `/service/`, or the handler takes a state that the builder was not given.
    pub fn add<T, H: ServiceHandler<T>>(&self, channel: &str, handler: H) -> Result<(), HookError> {
        let name = name_of(channel).ok_or_else(|| HookError::Pattern(channel.into()))?;
        if name.kind() != ChannelKind::Service {
            return Err(HookError::NotAService(channel.into()));
        }
        let service = Registered::new(handler);
        if let Some(state) = service.needs.iter().find_map(|need| self.0.context.missing(*need)) {
            return Err(HookError::StateMissing { hook: format!("the service {channel}"), state });
        }
        *self.0.table.write().entry(name) = Some(Arc::new(service));
        Ok(())
    }

    /// Removes the service with this channel or pattern. False if there is none.
    pub fn remove(&self, channel: &str) -> bool {
        name_of(channel).is_some_and(|name| self.0.table.write().remove(name).is_some_and(|service| service.is_some()))
    }

    /// The service that answers calls of this channel: the closest one.
    pub(crate) fn closest(&self, channel: &str) -> Option<Arc<Registered>> {
        self.0.table.read().of(channel).into_iter().rev().find_map(Clone::clone)
    }
}

opaque!(Services);
