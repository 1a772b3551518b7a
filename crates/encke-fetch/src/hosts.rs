//! Counts the requests under way to each host.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The hosts with requests under way. A host without any has no entry.
#[derive(Debug)]
pub(crate) struct Hosts {
    requests_per_host_max: usize,
    semaphores: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The right to one request to a host.
#[derive(Debug)]
pub(crate) struct Permit {
    hosts: Arc<Hosts>,
    host: String,
    permit: Option<OwnedSemaphorePermit>,
}

impl Hosts {
    pub(crate) fn new(requests_per_host_max: usize) -> Arc<Hosts> {
        Arc::new(Hosts { requests_per_host_max, semaphores: Mutex::default() })
    }

    /// Waits until the host has room for one more request.
    pub(crate) async fn permit(self: &Arc<Self>, host: String) -> Permit {
        // The guard removes the host's entry, also if the caller gives up while it waits.
        let mut permit = Permit { hosts: self.clone(), host, permit: None };
        let semaphore = {
            let mut semaphores = self.semaphores.lock();
            let new = || Arc::new(Semaphore::new(self.requests_per_host_max.max(1)));
            semaphores.entry(permit.host.clone()).or_insert_with(new).clone()
        };
        // The semaphore is never closed.
        permit.permit = semaphore.acquire_owned().await.ok();
        permit
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut semaphores = self.hosts.semaphores.lock();
        if semaphores.get(&self.host).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            semaphores.remove(&self.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn a_request_waits_while_its_host_is_busy_and_hosts_without_requests_are_forgotten() {
        let hosts = Hosts::new(1);
        let first = poll(pin!(hosts.permit("a".into()))).expect("room");
        let other = poll(pin!(hosts.permit("b".into()))).expect("another host");
        {
            let mut given_up = pin!(hosts.permit("a".into()));
            assert!(poll(given_up.as_mut()).is_none());
        }
        let mut second = pin!(hosts.permit("a".into()));
        assert!(poll(second.as_mut()).is_none());
        drop(first);
        let second = poll(second.as_mut()).expect("room again");
        drop((second, other));
        assert!(hosts.semaphores.lock().is_empty());
    }
}
