//! One run of a source: its ends, and the order to stop.

use tokio::sync::watch;

/// The reason why the run of a source ended.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The regular end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The source has nothing more to publish.
    Finished,
    /// It runs again after a pause.
    Again,
}

/// The order to stop.
#[derive(Clone)]
pub(crate) struct Stop(pub(crate) watch::Receiver<bool>);

impl Stop {
    /// Waits for the order.
    pub(crate) async fn ordered(&mut self) {
        // The sender is gone if the thread ends.
        let _gone = self.0.wait_for(|is_stopped| *is_stopped).await;
    }

    /// Runs a source that may be dropped at any time.
    pub(crate) async fn ends(mut self, run: impl Future<Output = Result<End, Failure>>) -> Result<End, Failure> {
        tokio::select! {
            outcome = run => outcome,
            () = self.ordered() => Ok(End::Finished),
        }
    }

    pub(crate) fn is_ordered(&self) -> bool {
        *self.0.borrow()
    }
}
