//! The check of settings before a server starts or reloads.

mod check;

use encke_core::{Declared as _, Settings};

use crate::error::SettingsError;
use crate::files;
use crate::tls;

use check::Found;
pub(crate) use check::OWN_PATHS;
pub use check::hidden_rules;

/// Checks what types cannot express: ranges, and settings that contradict each other. [`Builder::start`](crate::Builder::start)
/// and [`Handle::reload`](crate::Handle::reload) do so themselves.
///
/// # Errors
/// The first setting that cannot work.
pub fn check_settings(settings: &Settings) -> Result<(), SettingsError> {
    if let Some(error) = wrong_settings(settings).into_iter().next() {
        return Err(error);
    }
    hidden_rules(&settings.channels).into_iter().next().map_or(Ok(()), |(first, hidden)| {
        let pattern = |index: usize| &settings.channels[index].pattern;
        let value = format!("{} (rule {}) after {} (rule {})", pattern(hidden), hidden + 1, pattern(first), first + 1);
        let wanted =
            "a rule that can apply: the first rule that matches a channel holds, so put the narrower one first";
        Err(SettingsError { entry: Some(hidden), ..SettingsError::new("channels.pattern", value, wanted) })
    })
}

/// All settings that cannot work, but for the rules that [`hidden_rules`] finds.
pub fn wrong_settings(settings: &Settings) -> Vec<SettingsError> {
    let mut found = Found::default();
    if settings.transports.is_empty() {
        let wanted = "at least one of websocket, eventsource, json-stream, long-polling, callback-polling";
        found.add("transports", "[]", wanted);
    }
    if settings.mounts.is_empty() {
        found.add("mounts", "[]", "at least one path such as /cometd");
    }
    if !settings.files.is_empty() && std::fs::read_dir(&settings.files).is_err() {
        found.add("files", &settings.files, "a directory that is there and can be read");
    }
    if let Some(reason) =
        files::check_preload(&settings.files_preload).err().filter(|_| !settings.files_preload.is_empty())
    {
        let value = format!("{}: {reason}", settings.files_preload);
        found.add("files_preload", value, "a JSON file such as {\"/index.html\": [\"/app.css\"]}");
    }
    check::texts(settings, &mut found);
    check::file_rules(settings, &mut found);
    for (setting, value, wanted) in settings.out_of_range() {
        found.add(setting.name, value.to_string(), wanted);
    }
    check::rules(settings, &mut found);
    check::listeners(settings, &mut found);
    found.0.extend(tls::check(settings));
    found.0
}
