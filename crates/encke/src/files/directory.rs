//! The files of the directory (setting `files`), found by the paths of requests.
//!
//! Everything that touches the disk runs on the runtime's blocking threads, never on the shard's own.

use std::fs::File;
use std::hash::BuildHasher as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use encke_core::Settings;
use foldhash::fast::RandomState;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::cache::{Cache, Entry, Stamps};
use super::conditions::Validators;
use super::listing;
use super::preload::Preloads;
use super::resource::{Content, Form, NO_CACHE, Resource};
use super::tree::{self, Stamp};
use crate::metric::Metric;

/// The directory, for all shards.
#[derive(Clone, Default)]
pub(crate) struct Directory(Arc<State>);

#[derive(Default)]
struct State {
    cache: Cache,
    preloads: Preloads,
    refused: AtomicU64,
    /// Those who load a file: others that want it at the same time wait for its entry. By a hash of its name.
    turns: [Mutex<()>; TURNS],
    hasher: RandomState,
}

/// The answer of the directory to a path.
pub(crate) enum Found {
    /// A file.
    File(Arc<Entry>),
    /// A folder, whose path ends with a slash.
    Folder,
    /// A page that lists the files of a folder.
    List(String),
    /// A file that cannot be opened, because too many are open.
    Busy,
}

impl Directory {
    /// The directory of a server that starts.
    pub(crate) fn open(settings: &Settings) -> Directory {
        let directory = Directory::default();
        directory.0.preloads.read(settings);
        directory
    }

    /// Looks for the file of a path.
    ///
    /// # Errors
    /// The machine cannot read now.
    pub(crate) async fn find(&self, settings: &Arc<Settings>, path: &str, now_ms: u64) -> io::Result<Option<Found>> {
        if settings.files.is_empty() {
            return Ok(None);
        }
        let Some(file) = tree::file_of(path) else { return Ok(None) };
        let known = self.0.cache.get(&file).filter(|entry| Arc::ptr_eq(&entry.settings, settings));
        if let Some(entry) = known.as_ref().filter(|entry| entry.may_be_used(now_ms)) {
            return Ok(Some(Found::File(entry.clone())));
        }
        let (state, settings) = (self.0.clone(), settings.clone());
        spawn_blocking(move || state.look(&settings, &file, known, now_ms)).await?
    }

    /// The links to the files that a page needs, as the field `Link`.
    pub(crate) async fn links(&self, settings: &Settings, page: &str, now_ms: u64) -> Option<HeaderValue> {
        self.0.preloads.of(settings, page, now_ms).await
    }

    /// The `Cache-Control` of the file at this path, if a rule sets it.
    pub(crate) fn cache_control(settings: &Settings, path: &str) -> Option<HeaderValue> {
        let rule = settings.files_rules.iter().find(|rule| rule.matches(path))?;
        HeaderValue::try_from(&rule.cache_control).ok()
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let (cache, refused) = (&self.0.cache, self.0.refused.load(Ordering::Relaxed));
        let (bytes, open) = (cache.account.bytes() as u64, cache.account.open() as u64);
        vec![
            Metric::gauge("encke_files_cache_bytes", "Bytes of files in memory.").with(&[], bytes),
            Metric::counter("encke_files_evicted", "Files that left memory, or were closed, for others.")
                .with(&[], cache.evicted()),
            Metric::gauge("encke_files_open", "Files that are open because they are too large for memory.")
                .with(&[], open),
            Metric::counter("encke_files_refused", "Requests for files when too many were open.").with(&[], refused),
        ]
    }
}

impl State {
    /// Looks at the disk for a file, and for the folder whose index it is.
    fn look(
        &self,
        settings: &Arc<Settings>,
        file: &str,
        known: Option<Arc<Entry>>,
        now_ms: u64,
    ) -> io::Result<Option<Found>> {
        let _turn = self.turns[self.hasher.hash_one(file) as usize % TURNS].lock();
        if known.is_none()
            && let Some(entry) = self.cache.get(file)
            && Arc::ptr_eq(&entry.settings, settings)
            && settings.files_cache_ms > 0
            && entry.may_be_used(now_ms)
        {
            return Ok(Some(Found::File(entry)));
        }
        let Some((folder, name)) = tree::open_folder(Path::new(&settings.files), file)? else {
            self.cache.remove(file);
            return Ok(None);
        };
        let mut files = Vec::new();
        let mut stamps = Stamps::default();
        for (slot, (coding, ending)) in stamps.iter_mut().zip(FORMS) {
            let opened = tree::open_file(&folder, &format!("{name}{ending}"))?;
            if let Some((opened, stamp)) = opened {
                *slot = Some(stamp);
                files.push((coding, opened, stamp));
            } else if ending.is_empty() {
                break;
            }
        }
        if stamps[0].is_none() {
            self.cache.remove(file);
            return Ok(match tree::folder_of(file) {
                Some(path) if settings.files_listing => {
                    let (names, has_more) = tree::names(&folder, settings.files_listing_names_max)?;
                    Some(Found::List(listing::page(&format!("/{path}"), &names, has_more)))
                }
                Some(_) => None,
                None => tree::is_folder(&folder, name)?.then_some(Found::Folder),
            });
        }
        if let Some(entry) = known.filter(|entry| entry.is_still(&stamps)) {
            return Ok(Some(Found::File(entry)));
        }
        let Some(entry) = self.load(settings, file, files, stamps, now_ms)? else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(Some(Found::Busy));
        };
        Ok(Some(Found::File(entry)))
    }

    /// Reads the forms of a file, or leaves them open. None if too many files are open.
    fn load(
        &self,
        settings: &Arc<Settings>,
        file: &str,
        opened: Vec<(&'static str, File, Stamp)>,
        stamps: Stamps,
        now_ms: u64,
    ) -> io::Result<Option<Arc<Entry>>> {
        let now = SystemTime::now();
        let is_fresh = opened.iter().any(|(_, _, stamp)| stamp.is_fresh(now));
        let cache_control = Directory::cache_control(settings, &format!("/{file}")).unwrap_or(NO_CACHE);
        let (kind, mut forms, mut is_open) = (kind_of(file), Vec::new(), false);
        for (coding, opened, stamp) in opened {
            let bytes = usize::try_from(stamp.bytes).ok().filter(|bytes| *bytes <= settings.files_cache_file_bytes_max);
            let held = bytes.and_then(|bytes| self.cache.hold(bytes, settings.files_cache_bytes_max));
            let content = match held {
                Some(held) => Content::Memory(held.with(tree::read(&opened, stamp.bytes)?)),
                None => match self.cache.open(opened, settings.files_open_max) {
                    Some(opened) => {
                        is_open = true;
                        Content::Disk(Arc::new(opened), stamp.bytes)
                    }
                    None => return Ok(None),
                },
            };
            let validators = Validators::of_file(stamp.modified, stamp.bytes, coding, is_fresh, now);
            forms.push(Form::new(coding, validators, kind.clone(), cache_control.clone(), content));
        }
        let held = self.cache.hold(ENTRY_BYTES + forms.len() * FORM_BYTES + file.len(), settings.files_cache_bytes_max);
        let encoded = forms.split_off(1);
        let Some(itself) = forms.pop() else { return Ok(None) };
        let entry = Arc::new(Entry {
            resource: Resource::new(itself, encoded),
            stamps,
            settings: settings.clone(),
            is_fresh,
            is_open,
            checked_ms: AtomicU64::new(now_ms),
            is_used: AtomicBool::new(false),
            held,
        });
        if entry.held.is_some() {
            self.cache.insert(file, &entry);
        }
        Ok(Some(entry))
    }
}

/// The media type of a file by the ending of its name. That of a text names its character set, which browsers would guess otherwise.
fn kind_of(file: &str) -> HeaderValue {
    let kind = match mime_guess::from_path(file).first_raw() {
        // The registered name of scripts is another one since RFC 9239.
        Some("application/javascript") => "text/javascript",
        Some(kind) => kind,
        None => "application/octet-stream",
    };
    let set = if kind.starts_with("text/") { "; charset=utf-8" } else { "" };
    HeaderValue::try_from(format!("{kind}{set}")).unwrap_or(HeaderValue::from_static("application/octet-stream"))
}

/// The content codings of the forms of a file, and the endings that their names have behind its own. The first one is the file itself.
const FORMS: [(&str, &str); 4] = [("", ""), ("br", ".br"), ("gzip", ".gz"), ("zstd", ".zst")];
/// The files that may be loaded at the same time.
const TURNS: usize = 32;
/// The memory of an entry without its forms, roughly.
const ENTRY_BYTES: usize = 512;
/// The memory of a form without its content, roughly.
const FORM_BYTES: usize = 1536;
