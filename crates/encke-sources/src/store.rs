//! The memory of a source: over its restarts, and with a data directory also over those of the server.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use journal::replace_file;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The memory of one source. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// The file, if there is a data directory.
    file: Option<Arc<Path>>,
    memory: Arc<Mutex<Option<String>>>,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct Stored<T> {
    /// The input that the value belongs to, for example a mailbox or a path.
    of: String,
    value: T,
}

impl Store {
    /// The memory of the source with this name.
    pub(crate) fn new(data: Option<&Path>, name: &str) -> Store {
        let file = data.map(|data| data.join(FOLDER).join(format!("{name}.json")).into());
        Store { file, memory: Arc::default() }
    }

    /// The value that was saved for this input. A damaged file is logged and counts as none.
    pub(crate) fn read<T: DeserializeOwned>(&self, of: &str) -> Option<T> {
        let mut memory = self.memory.lock();
        let text = match (&*memory, &self.file) {
            (Some(text), _) => text.clone(),
            (None, Some(file)) => match fs::read_to_string(file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
                Err(error) => {
                    tracing::warn!(file = %file.display(), "cannot be read, the source begins as at its first start: {error}");
                    return None;
                }
            },
            (None, None) => return None,
        };
        match serde_json::from_str::<Stored<T>>(&text) {
            Ok(stored) if stored.of == of => {
                *memory = Some(text);
                Some(stored.value)
            }
            // It belongs to an earlier configuration.
            Ok(_) => None,
            Err(error) => {
                let file = self.file.as_deref().unwrap_or(Path::new("")).display();
                tracing::warn!(%file, "is damaged, the source begins as at its first start: {error}");
                None
            }
        }
    }

    /// Saves a value for this input. Until the next start of the server it is remembered even if the disk refuses it.
    pub(crate) fn write<T: Serialize>(&self, of: &str, value: &T) -> io::Result<()> {
        let text = serde_json::to_string(&Stored { of: of.into(), value })?;
        *self.memory.lock() = Some(text.clone());
        let Some(file) = &self.file else { return Ok(()) };
        fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        replace_file(file, |file| file.write_all(text.as_bytes()))
    }
}

/// The folder in the data directory.
const FOLDER: &str = "sources";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outlives_the_process_and_belongs_to_its_input() {
        let folder = std::env::temp_dir().join(format!("encke-sources-store-{}", std::process::id()));
        let store = Store::new(Some(&folder), "home");
        assert_eq!(store.read::<u32>("a"), None);
        store.write("a", &7).expect("written");
        let next = Store::new(Some(&folder), "home");
        assert_eq!((next.read::<u32>("a"), next.read::<u32>("b")), (Some(7), None));
        fs::write(folder.join("sources/home.json"), "{\"of\":").expect("written");
        assert_eq!(Store::new(Some(&folder), "home").read::<u32>("a"), None, "damaged");
        assert_eq!(store.read::<u32>("a"), Some(7), "in memory");
        fs::remove_dir_all(&folder).expect("removed");
        let memory = Store::new(None, "home");
        memory.write("a", &8).expect("remembered");
        assert_eq!(memory.clone().read::<u32>("a"), Some(8));
    }
}
