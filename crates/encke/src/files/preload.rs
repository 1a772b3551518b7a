//! The files that pages need (setting `files_preload`): links for the field `Link` and for Early Hints (RFC 8297).

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use encke_core::Settings;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// The links of each page by its path.
type Links = Arc<HashMap<String, HeaderValue>>;

/// The links, as they were last read.
#[derive(Default)]
pub(super) struct Preloads(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The path of the file.
    file: String,
    /// When it was changed, and its size.
    stamp: Option<(SystemTime, u64)>,
    checked_ms: u64,
    links: Links,
}

impl Preloads {
    /// Reads the file of the settings. A later error is logged, and the links stay as they are.
    pub(super) fn read(&self, settings: &Settings) {
        refresh(&self.0, &settings.files_preload);
    }

    /// The links of a page, if it has any. The file is looked at again from time to time.
    pub(super) async fn of(&self, settings: &Settings, page: &str, now_ms: u64) -> Option<HeaderValue> {
        if settings.files_preload.is_empty() {
            return None;
        }
        if self.is_over(settings, now_ms) {
            let (state, file) = (self.0.clone(), settings.files_preload.clone());
            let _panicked = spawn_blocking(move || refresh(&state, &file)).await;
        }
        let links = self.0.lock().links.clone();
        links.get(page).cloned()
    }

    /// True if this request has to look at the file.
    fn is_over(&self, settings: &Settings, now_ms: u64) -> bool {
        let mut state = self.0.lock();
        let is_over = now_ms.saturating_sub(state.checked_ms) >= settings.files_cache_ms;
        if is_over {
            state.checked_ms = now_ms;
        }
        is_over || state.file != settings.files_preload
    }
}

fn refresh(state: &Mutex<State>, file: &str) {
    let stamp = std::fs::metadata(file).and_then(|metadata| Ok((metadata.modified()?, metadata.len()))).ok();
    {
        let state = state.lock();
        if file.is_empty() || state.file == file && state.stamp == stamp {
            return;
        }
    }
    let read = read(Path::new(file));
    let mut state = state.lock();
    if let Err(error) = &read {
        tracing::warn!(file, %error, "the links of pages stay as they were: the file cannot be used");
    }
    (state.file, state.stamp) = (file.into(), stamp);
    if let Ok(links) = read {
        state.links = Arc::new(links);
    }
}

/// Checks the file.
///
/// # Errors
/// The reason that it cannot be used.
pub(crate) fn check(file: &str) -> Result<(), String> {
    read(Path::new(file)).map(drop).map_err(|error| error.to_string())
}

/// Reads the file: an object whose names are the paths of pages, each with a list of links.
fn read(file: &Path) -> io::Result<HashMap<String, HeaderValue>> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    if std::fs::metadata(file)?.len() > FILE_BYTES_MAX {
        return Err(invalid(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    let pages: HashMap<String, Vec<String>> = serde_json::from_slice(&std::fs::read(file)?)?;
    let mut links = HashMap::new();
    for (page, files) in pages {
        if !page.starts_with('/') {
            return Err(invalid(format!("{page:?} is no path of a page, such as /index.html")));
        }
        let list: Option<Vec<String>> = files.iter().map(|file| link(file)).collect();
        let value = list.ok_or_else(|| {
            let broken = files.iter().find(|file| link(file).is_none()).cloned().unwrap_or_default();
            invalid(format!("{broken:?} of {page} is neither a path with a known ending, such as /app.css, nor a link, such as </app.js>; rel=modulepreload"))
        })?;
        let value = value.join(", ");
        if value.len() > LINKS_BYTES_MAX {
            return Err(invalid(format!("the links of {page} have more than {LINKS_BYTES_MAX} bytes")));
        }
        links.insert(page, HeaderValue::try_from(value).map_err(|error| invalid(error.to_string()))?);
    }
    Ok(links)
}

/// The link to a file (RFC 8288 §3); a text that is a link stays as it is.
fn link(file: &str) -> Option<String> {
    let is_visible = file.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if file.starts_with('<') {
        return file.split_once('>').filter(|(_, rest)| is_visible && rest.contains("rel=")).map(|_| file.to_owned());
    }
    if !file.starts_with('/') || !is_visible || file.contains([' ', '<', '>', '"']) {
        return None;
    }
    let (path, _) = file.split_once('?').unwrap_or((file, ""));
    let rest = match path.rsplit_once('.')?.1 {
        "css" => "rel=preload; as=style",
        "js" => "rel=preload; as=script",
        "mjs" => "rel=modulepreload",
        // Browsers request fonts and data without credentials.
        "woff2" | "woff" | "ttf" | "otf" => "rel=preload; as=font; crossorigin",
        "json" => "rel=preload; as=fetch; crossorigin",
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "avif" | "svg" => "rel=preload; as=image",
        _ => return None,
    };
    Some(format!("<{file}>; {rest}"))
}

/// The size of the file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The links of one page: a head with them stays far below what clients take.
const LINKS_BYTES_MAX: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_what_kind_of_file_the_page_needs() {
        for (file, wanted) in [
            ("/app.css", Some("</app.css>; rel=preload; as=style")),
            ("/app.js?v=2", Some("</app.js?v=2>; rel=preload; as=script")),
            ("/app.mjs", Some("</app.mjs>; rel=modulepreload")),
            ("/a.woff2", Some("</a.woff2>; rel=preload; as=font; crossorigin")),
            ("</a>; rel=preload; as=track", Some("</a>; rel=preload; as=track")),
            ("</a>", None),
            ("/a", None),
            ("/a.exe", None),
            ("app.css", None),
            ("/a b.css", None),
            ("/a>.css", None),
            ("/a\r\nx: y.css", None),
            ("</a>; rel=x\r\n", None),
        ] {
            assert_eq!(link(file).as_deref(), wanted, "{file}");
        }
    }
}
