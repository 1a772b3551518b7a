//! The pages, as they were built into `web/dist`, inside the program.

use encke::Asset;

/// A page or a part of one: where it is served, and its file.
struct File {
    path: &'static str,
    name: &'static str,
    body: &'static [u8],
}

/// All files that the server serves beside Bayeux. The tags are computed once, so call it once.
pub(crate) fn all() -> &'static [Asset] {
    let asset = |file: &File| Asset::new(file.path, content_type(file.name), file.body, etag(file.body).leak());
    FILES.iter().map(asset).collect::<Vec<Asset>>().leak()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("webp") => "image/webp",
        Some("woff2") => "font/woff2",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

/// A strong entity tag (RFC 9110 §8.8.3): FNV-1a, 64 bits. It tells builds apart; nobody gains by forging one.
fn etag(body: &[u8]) -> String {
    let hash = body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
}

macro_rules! files {
    ($($path:literal => $name:literal,)*) => {
        &[$(File { path: $path, name: $name, body: include_bytes!(concat!("../../../web/dist/", $name)) },)*]
    };
}

const FILES: &[File] = files! {
    "/" => "index.html",
    "/demo/chat" => "demo/chat/index.html",
    "/demo/chat/" => "demo/chat/index.html",
    "/assets/chat.js" => "assets/chat.js",
    "/assets/comet.svg" => "assets/comet.svg",
    "/assets/encke.css" => "assets/encke.css",
    "/assets/start.js" => "assets/start.js",
    "/assets/timer.js" => "assets/timer.js",
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { files_below(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn every_built_file_is_served() {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
        let mut found = Vec::new();
        files_below(&dist, &mut found);
        for path in &found {
            let name = path.strip_prefix(&dist).expect("below").to_str().expect("UTF-8");
            assert!(FILES.iter().any(|file| file.name == name), "web/dist/{name} is not in assets.rs");
        }
        assert!(!found.is_empty());
    }

    #[test]
    fn each_file_has_its_type_and_its_tag() {
        for asset in all() {
            assert_ne!(asset.content_type, "application/octet-stream", "{}", asset.path);
            assert_eq!(asset.etag.len(), 18);
        }
        assert_ne!(etag(b"a"), etag(b"b"));
    }
}
