//! The check of settings before a server starts or reloads.

mod check;

use encke_core::{Declared as _, Settings};

use crate::error::SettingsError;
use crate::files;
use crate::tls;

pub(crate) use check::OWN_PATHS;
pub use check::hidden_rule;

/// Checks what types cannot express: ranges, and settings that contradict each other. [`Builder::start`](crate::Builder::start)
/// and [`Handle::reload`](crate::Handle::reload) do so themselves.
///
/// # Errors
/// The first setting that cannot work.
pub fn check_settings(settings: &Settings) -> Result<(), SettingsError> {
    let fail = |name, value: &str, wanted| Err(SettingsError { name, value: value.to_string(), wanted });
    if settings.transports.is_empty() {
        return fail(
            "transports",
            "[]",
            "at least one of websocket, eventsource, json-stream, long-polling, callback-polling",
        );
    }
    if settings.mounts.is_empty() {
        return fail("mounts", "[]", "at least one path such as /cometd");
    }
    if !settings.files.is_empty() && std::fs::read_dir(&settings.files).is_err() {
        return fail("files", &settings.files, "a directory that is there and can be read");
    }
    if let Some(reason) =
        files::check_preload(&settings.files_preload).err().filter(|_| !settings.files_preload.is_empty())
    {
        return fail(
            "files_preload",
            &format!("{}: {reason}", settings.files_preload),
            "a JSON file such as {\"/index.html\": [\"/app.css\"]}",
        );
    }
    check::texts(settings)?;
    check::file_rules(settings)?;
    if let Some((setting, value, wanted)) = settings.out_of_range() {
        return fail(setting.name, &value.to_string(), wanted);
    }
    check::rules(settings)?;
    check::listeners(settings)?;
    tls::check(settings)
}
