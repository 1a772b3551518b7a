//! Files of a user's directory (setting `files`), served by tower-http: media types, `ETag` and `Last-Modified` (RFC
//! 9110 §13), ranges (RFC 9110 §14).
//!
//! It opens only files below the directory, name by name, without following links. Everything that touches the disk
//! runs on the runtime's blocking threads, never on the shard's own.

use std::future::{Ready, ready};
use std::io::{self, Cursor, Read, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, IF_RANGE, RANGE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Either;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tokio::task::spawn_blocking;
use tower_http::services::fs::{Backend, File, Metadata, ServeDir};

use super::{Body, text};
use encke_core::Settings;

/// Answers with the file of the request's path, if the settings name a directory and it contains the file.
pub(crate) async fn answer<B>(settings: &Settings, request: &Request<B>) -> Option<Response<Body>> {
    let path = request.uri().path();
    // With an empty segment the redirect to a folder's `//name/` would point to another server.
    if settings.files.is_empty() || !matches!(*request.method(), Method::GET | Method::HEAD) || path.contains("//") {
        return None;
    }
    let mut asked = Request::new(());
    *asked.method_mut() = request.method().clone();
    *asked.uri_mut() = request.uri().clone();
    *asked.headers_mut() = request.headers().clone();
    // The range is not compared with the file that `If-Range` names: the whole file is always a valid answer (RFC
    // 9110 §13.1.5).
    if asked.headers().contains_key(IF_RANGE) {
        asked.headers_mut().remove(RANGE);
    }
    let tree = Tree { root: Path::new(&settings.files).into(), found: Arc::default() };
    let mut served = ServeDir::with_backend("", tree)
        .precompressed_br()
        .precompressed_gzip()
        .precompressed_zstd()
        .ignore_multi_range_requests(true);
    let served = served.try_call(asked).await;
    let mut response = match served {
        Ok(response) if response.status() == StatusCode::NOT_FOUND => return None,
        Ok(response) => response.map(|body| Either::Right(Either::Left(body))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, path, "a file cannot be read");
            return Some(text(StatusCode::SERVICE_UNAVAILABLE, "this cannot be read at the moment\n"));
        }
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(kind) = headers.get(CONTENT_TYPE).and_then(in_utf_8) {
        headers.insert(CONTENT_TYPE, kind);
    }
    Some(response)
}

/// The media type of a text with its character set; browsers would guess it otherwise.
fn in_utf_8(kind: &HeaderValue) -> Option<HeaderValue> {
    let kind = kind.to_str().ok().filter(|kind| kind.starts_with("text/") && !kind.contains(';'))?;
    HeaderValue::try_from(format!("{kind}; charset=utf-8")).ok()
}

/// The directory, for one request. It retains the result of the first look-up until the file is read.
#[derive(Clone)]
struct Tree {
    root: Arc<Path>,
    found: Arc<Mutex<Option<(PathBuf, Found)>>>,
}

/// A file or a folder that may be served.
struct Found {
    about: About,
    content: Content,
}

#[derive(Clone, Copy)]
struct About {
    is_dir: bool,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// A small file in memory, or a large one on the disk.
type Content = tokio_util::either::Either<Cursor<Vec<u8>>, tokio::fs::File>;

impl Tree {
    async fn find(self, path: PathBuf) -> io::Result<Found> {
        spawn_blocking(move || find(&self.root, &path)).await?
    }
}

impl Backend for Tree {
    type File = Found;
    type Metadata = About;
    type OpenFuture = Pin<Box<dyn Future<Output = io::Result<Found>> + Send>>;
    type MetadataFuture = Pin<Box<dyn Future<Output = io::Result<About>> + Send>>;

    fn open(&self, path: PathBuf) -> Self::OpenFuture {
        let (tree, looked_at) = (self.clone(), self.found.lock().take());
        Box::pin(async move {
            match looked_at {
                Some((known, found)) if known == path => Ok(found),
                _ => tree.find(path).await,
            }
        })
    }

    fn metadata(&self, path: PathBuf) -> Self::MetadataFuture {
        let tree = self.clone();
        Box::pin(async move {
            let found = tree.clone().find(path.clone()).await?;
            let about = found.about;
            *tree.found.lock() = Some((path, found));
            Ok(about)
        })
    }
}

impl File for Found {
    type Metadata = About;
    type MetadataFuture<'a> = Ready<io::Result<About>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.about))
    }
}

impl Metadata for About {
    fn is_dir(&self) -> bool {
        self.is_dir
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.modified.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> u64 {
        self.bytes
    }
}

impl AsyncRead for Found {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.content).poll_read(cx, buf)
    }
}

impl AsyncSeek for Found {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.content).start_seek(position)
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Pin::new(&mut self.content).poll_complete(cx)
    }
}

/// Opens the file or folder at `path` below `root`, name by name.
fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let mut at = step(rustix::fs::CWD, root, OFlags::DIRECTORY)?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        // Names with a dot are private (`.git`, `.htpasswd`). Browsers treat a backslash as a slash.
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b".") || bytes.contains(&b'\\') {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Non-blocking: opening a named pipe would wait.
        at = step(&at, Path::new(name), OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    }
    opened(at.into())
}

fn step(from: impl rustix::fd::AsFd, name: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    openat(from, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | flags, Mode::empty()).map_err(|error| {
        match error {
            // These are failures of the machine. All others mean that no such file is served.
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO => error.into(),
            _ => io::ErrorKind::NotFound.into(),
        }
    })
}

fn opened(mut file: std::fs::File) -> io::Result<Found> {
    let metadata = file.metadata()?;
    let mut about = About { is_dir: metadata.is_dir(), bytes: metadata.len(), modified: metadata.modified().ok() };
    if metadata.is_dir() {
        return Ok(Found { about, content: Content::Left(Cursor::default()) });
    }
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    if about.bytes > SMALL_FILE_BYTES_MAX {
        return Ok(Found { about, content: Content::Right(file.into()) });
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    Read::take(&mut file, SMALL_FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    about.bytes = bytes.len() as u64;
    Ok(Found { about, content: Content::Left(Cursor::new(bytes)) })
}

/// Files up to this size are read when they are opened: one call to another thread instead of two. Larger ones are
/// read piece by piece as the client takes them, so that a request holds no more memory than this.
const SMALL_FILE_BYTES_MAX: u64 = 64 * 1024;
