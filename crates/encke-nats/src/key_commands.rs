//! Runs the commands about keys and journals.

use encke::{EngineCommand, EngineEvents};
use tokio::sync::mpsc;

use crate::journals::{JournalSettings, Journals};
use crate::keys::{self, KeySettings};
use crate::watches;

/// Runs commands about keys and journals, each in a task, until there are none any more.
pub(crate) async fn run(
    settings: KeySettings,
    journals: JournalSettings,
    mut commands: mpsc::UnboundedReceiver<EngineCommand>,
    events: EngineEvents,
) {
    let Some(mut command) = commands.recv().await else { return };
    let Some(keys) = keys::connect(settings, events).await else { return };
    let journals = Journals::new(journals);
    loop {
        let keys = keys.clone();
        match command {
            EngineCommand::Watch { bucket, prefix } => _ = tokio::spawn(watches::run(keys, bucket, prefix)),
            EngineCommand::Append { .. } | EngineCommand::ReadJournal { .. } => {
                _ = tokio::spawn(journals.clone().run(keys, command));
            }
            command => _ = tokio::spawn(keys.run(command)),
        }
        match commands.recv().await {
            Some(next) => command = next,
            None => return,
        }
    }
}
