//! Leases of a cluster, as a program sees them.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A lease that one node of a cluster holds at a time: [`Handle::lease`](crate::Handle::lease). Without a cluster it is always held.
#[derive(Debug)]
pub struct Lease(State);

#[derive(Debug)]
enum State {
    /// There is no cluster.
    Always,
    /// The time until which this node holds it. None: it does not.
    Until(watch::Receiver<Option<Instant>>),
}

impl Lease {
    /// A lease that is always held: the lease of a server without a cluster.
    pub fn always() -> Lease {
        Lease(State::Always)
    }

    /// A lease of a cluster.
    pub(crate) fn of_cluster(until: watch::Receiver<Option<Instant>>) -> Lease {
        Lease(State::Until(until))
    }

    /// True if this node holds it now.
    pub fn is_held(&self) -> bool {
        match &self.0 {
            State::Always => true,
            State::Until(until) => is_later(*until.borrow()),
        }
    }

    /// Waits until this node holds it. If the server has stopped, it waits for ever.
    pub async fn held(&mut self) {
        if let State::Until(until) = &mut self.0
            && until.wait_for(|until| is_later(*until)).await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this node does not hold it: another one may hold it soon. Work for which it is must stop then.
    pub async fn lost(&mut self) {
        let State::Until(until) = &mut self.0 else { return std::future::pending().await };
        loop {
            let end = *until.borrow_and_update();
            let Some(end) = end else { return };
            tokio::select! {
                // A server that has stopped holds nothing.
                changed = until.changed() => if changed.is_err() { return },
                () = sleep_until(end) => return,
            }
        }
    }
}

fn is_later(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_by_itself_unless_it_is_renewed() {
        let (renew, until) = watch::channel(None);
        let mut lease = Lease::of_cluster(until);
        assert!(!lease.is_held());
        lease.lost().await;
        renew.send_replace(Some(Instant::now() + Duration::from_secs(4)));
        lease.held().await;
        let begun = Instant::now();
        let lost = lease.lost();
        let renewed = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            renew.send_replace(Some(Instant::now() + Duration::from_secs(4)));
        };
        tokio::join!(lost, renewed);
        assert_eq!(begun.elapsed().as_secs(), 7);
        assert!(!lease.is_held() && Lease::always().is_held());
    }
}
