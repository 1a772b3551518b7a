//! Session tickets of TLS 1.3, shared by all clients of a worker: a server cannot tell whose ticket resumes a session.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// The tickets that servers have sent and no connection has used.
#[derive(Debug, Default)]
pub(super) struct TlsTickets {
    unused: Mutex<VecDeque<Tls13ClientSessionValue>>,
    group: Mutex<Option<NamedGroup>>,
}

impl ClientSessionStore for TlsTickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock() = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock()
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut unused = self.unused.lock();
        if unused.len() < TICKETS_MAX {
            unused.push_back(ticket);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.unused.lock().pop_front()
    }
}

/// The most unused tickets of a worker.
const TICKETS_MAX: usize = 50_000;
