//! Files of the user's directory (setting `files`) and of the program: which files are served, with which headers, and which are refused
//! (RFC 9110 §13 and §14; row 9 of `docs/contributing/bad-input.md`).

mod conditions;
mod memory;
mod pages;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use encke::{Asset, Encoded, Server, Settings};

use crate::common::{Response, TestServer, settings};

/// A directory that is removed with its test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("encke-files-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("site/sub")).expect("a folder");
        Folder(path)
    }

    /// The served directory. Files that must not be served lie beside it.
    pub fn site(&self) -> PathBuf {
        self.0.join("site")
    }

    /// Writes a file that was last changed an hour ago.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.site().join(name), bytes).expect("a file");
        self.set_age(name, SystemTime::now() - Duration::from_secs(3_600));
    }

    fn set_age(&self, name: &str, modified: SystemTime) {
        let file = fs::File::options().append(true).open(self.site().join(name)).expect("a file");
        file.set_modified(modified).expect("a time");
    }

    fn serve(&self) -> TestServer {
        TestServer::start(serving(&self.site()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn serving(folder: &Path) -> Settings {
    Settings { files: folder.to_str().expect("a path in UTF-8").into(), ..settings() }
}

pub fn get(server: &TestServer, path: &str, headers: &[(&str, &str)]) -> Response {
    server.http().request("GET", path, headers, b"")
}

/// Bytes without repetition.
pub fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect()
}

#[test]
fn a_file_comes_whole_with_its_type() {
    let folder = Folder::new();
    let cases = [
        ("page.html", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("code.js", "text/javascript; charset=utf-8"),
        ("module.mjs", "text/javascript; charset=utf-8"),
        ("data.json", "application/json"),
        ("font.woff2", "font/woff2"),
        ("picture.svg", "image/svg+xml"),
        ("sub/what is it", "application/octet-stream"),
    ];
    for (name, _) in cases {
        folder.write(name, name);
    }
    let server = folder.serve();
    let mut http = server.http();
    for (name, kind) in cases {
        let response = http.get(&format!("/{}", name.replace(' ', "%20")));
        assert_eq!((response.status, response.text().as_str()), (200, name));
        assert_eq!(response.header("content-type"), Some(kind), "{name}");
        assert_eq!(response.header("cache-control"), Some("no-cache"));
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    }
}

/// Files of up to 1 MiB are in memory, others are read piece by piece: both sides of the limits, and far beyond them.
#[test]
fn files_of_any_size_arrive_as_they_are() {
    let folder = Folder::new();
    let sizes = [0, 1, 2_000, 65_536, 954_000, 1_048_575, 1_048_576, 1_048_577, 1_179_648, 5_000_000];
    for size in sizes {
        folder.write(&format!("{size}.bin"), bytes(size));
    }
    let server = folder.serve();
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    // The second time from memory.
    for size in sizes.iter().chain(&sizes) {
        let response = http.get(&format!("/{size}.bin"));
        assert_eq!(response.status, 200);
        assert!(response.body == bytes(*size), "{size} bytes");
    }
    // Several at a time, read only after all requests are sent.
    let mut clients: Vec<_> = (0..20).map(|_| server.http()).collect();
    for client in &mut clients {
        client.send("GET", "/954000.bin", &[], b"");
    }
    neighbour.lives(&server);
    for client in &mut clients {
        assert!(client.receive().body == bytes(954_000));
    }
}

#[test]
fn a_head_request_has_the_same_headers_and_no_body() {
    let folder = Folder::new();
    folder.write("large.bin", bytes(100_000));
    let server = folder.serve();
    let mut tcp = server.tcp();
    let request = format!("HEAD /large.bin HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address());
    tcp.send(request);
    let mut answer = Vec::new();
    loop {
        let more = tcp.read_some();
        if more.is_empty() {
            break;
        }
        answer.extend(more);
    }
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-length: 100000\r\n"), "{answer}");
    assert_eq!(answer.matches("\r\n\r\n").count(), 1);
}

#[test]
fn built_in_pages_take_precedence_except_for_the_start_page() {
    const ASSETS: &[Asset] = &[
        Asset::new("/", "text/html", b"the program's start", "\"1\""),
        Asset::new("/own.css", "text/css", b"the program's style", "\"2\""),
    ];
    let folder = Folder::new();
    for name in ["healthz", "own.css", "cometd", "metrics"] {
        folder.write(name, "the user's");
    }
    let running =
        Server::builder().settings(serving(&folder.site())).assets(ASSETS).start().expect("the server starts");
    let mut http = crate::common::Http::connect(running.address());
    assert_eq!(http.get("/").text(), "the program's start");
    folder.write("index.html", "the user's start");
    assert_eq!(http.get("/").text(), "the user's start");
    assert_eq!(http.get("/own.css").text(), "the program's style");
    assert_eq!(http.get("/healthz").text(), "ok\n");
    assert!(http.get("/metrics").text().contains("encke_connections"));
    assert_eq!(http.get("/cometd").status, 400);
    running.handle().drain();
    running.join();
}

#[test]
fn a_file_comes_in_the_compressed_form_beside_it_that_the_client_prefers() {
    let folder = Folder::new();
    for (name, text) in [("a.js", "the file itself"), ("a.js.br", "small"), ("a.js.gz", "smaller"), ("b.js", "alone")] {
        folder.write(name, text);
    }
    symlink(folder.site().join("a.js.gz"), folder.site().join("b.js.gz")).expect("a link");
    let server = folder.serve();
    let mut tags = Vec::new();
    for (path, accepted, coding, body) in [
        ("/a.js", "gzip, deflate, br, zstd", Some("br"), "small"),
        ("/a.js", "gzip", Some("gzip"), "smaller"),
        ("/a.js", "br;q=0, gzip;q=0.5", Some("gzip"), "smaller"),
        ("/a.js", "zstd", None, "the file itself"),
        ("/a.js", "", None, "the file itself"),
        // Links are not followed.
        ("/b.js", "gzip", None, "alone"),
    ] {
        let response = get(&server, path, &[("accept-encoding", accepted)]);
        assert_eq!(
            (response.header("content-encoding"), response.text().as_str()),
            (coding, body),
            "{path} {accepted}"
        );
        assert_eq!(response.header("content-type"), Some("text/javascript; charset=utf-8"));
        // A file in one form is the same for all clients.
        assert_eq!(response.header("vary"), (path == "/a.js").then_some("accept-encoding"));
        let tag = response.header("etag").expect("a tag").to_owned();
        assert!(tag.starts_with('"'), "a strong one: {tag}");
        tags.push((tag, body));
    }
    // Each form has another tag, and that of one form says nothing about another.
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "{tags:?}");
    for (tag, body) in &tags {
        let again = get(&server, "/a.js", &[("accept-encoding", "br"), ("if-none-match", tag)]);
        assert_eq!(again.status, if *body == "small" { 304 } else { 200 }, "{body}");
    }
}

#[test]
fn a_built_in_page_comes_in_the_coding_that_the_client_prefers() {
    const FORMS: &[Encoded] =
        &[Encoded::new("br", b"small", "\"1-br\""), Encoded::new("gzip", b"smaller", "\"1-gzip\"")];
    const ASSETS: &[Asset] = &[
        Asset::new("/page", "text/html", b"the page itself", "\"1\"").encoded(FORMS),
        Asset::new("/picture", "image/png", b"the picture", "\"2\"").content_security_policy("default-src 'none'"),
    ];
    let running = Server::builder().settings(settings()).assets(ASSETS).start().expect("the server starts");
    let mut http = crate::common::Http::connect(running.address());
    for (accepted, coding, etag, body) in [
        ("gzip, br", Some("br"), "\"1-br\"", "small"),
        ("gzip, br;q=0", Some("gzip"), "\"1-gzip\"", "smaller"),
        ("deflate", None, "\"1\"", "the page itself"),
    ] {
        let accepts = ("accept-encoding", accepted);
        let whole = http.request("GET", "/page", &[accepts], b"");
        let head = http.request("HEAD", "/page", &[accepts], b"");
        let known = http.request("GET", "/page", &[accepts, ("if-none-match", etag)], b"");
        let other = http.request("GET", "/page", &[accepts, ("if-none-match", "\"1-zstd\"")], b"");
        assert_eq!((whole.status, head.status, known.status, other.status), (200, 200, 304, 200), "{accepted}");
        assert_eq!((whole.text().as_str(), head.text().as_str(), known.text().as_str()), (body, "", ""), "{accepted}");
        for response in [&whole, &head] {
            assert_eq!(response.header("content-length"), Some(body.len().to_string().as_str()), "{accepted}");
            assert_eq!(response.header("content-type"), Some("text/html"), "{accepted}");
        }
        for response in [&whole, &head, &known] {
            assert_eq!(response.header("content-encoding"), coding, "{accepted}");
            assert_eq!(response.header("etag"), Some(etag), "{accepted}");
            assert_eq!(response.header("vary"), Some("accept-encoding"), "{accepted}");
        }
    }
    let picture = http.request("GET", "/picture", &[("accept-encoding", "br")], b"");
    assert_eq!((picture.text().as_str(), picture.header("vary")), ("the picture", None));
    assert_eq!(picture.header("content-security-policy"), Some("default-src 'none'"));
    running.handle().drain();
    running.join();
}

#[test]
fn a_folder_shows_its_index_and_nothing_else() {
    let folder = Folder::new();
    folder.write("sub/there.txt", "there");
    let server = folder.serve();
    let mut http = server.http();
    assert_eq!(http.get("/sub/").status, 404);
    assert_eq!(http.get("/").status, 404);
    folder.write("sub/index.html", "index");
    assert_eq!(http.get("/sub/").text(), "index");
    let redirect = http.get("/sub?a=b");
    assert_eq!((redirect.status, redirect.header("location")), (307, Some("/sub/?a=b")));
    assert_eq!(http.get("/sub/there.txt/").status, 404);
    let refused = http.request("POST", "/sub/there.txt", &[], b"x");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn nothing_outside_of_the_directory_and_nothing_hidden_is_served() {
    let folder = Folder::new();
    let site = folder.site();
    fs::write(folder.0.join("secret"), "secret").expect("a file");
    fs::create_dir(site.join(".git")).expect("a folder");
    for name in [".htpasswd", ".git/config", "a\\b", "plain", "sub/there.txt"] {
        folder.write(name, "secret");
    }
    symlink("../secret", site.join("link")).expect("a link");
    symlink("..", site.join("up")).expect("a link");
    symlink("plain", site.join("inside")).expect("a link");
    symlink("loop", site.join("loop")).expect("a link");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, site.join("pipe"), fifo, 0o600.into(), 0).expect("a pipe");
    let server = folder.serve();
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    // Once from the disk, and once more from memory: no other name finds the entry.
    for _ in 0..2 {
        assert_eq!((http.get("/plain").status, http.get("/sub/there.txt").status), (200, 200));
    }
    let long = format!("/{}", "a".repeat(300));
    let deep = "/sub".repeat(2_000);
    let outside = folder.0.join("secret");
    for path in [
        "/../secret",
        "/sub/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/sub%2f..%2f..%2fsecret",
        "/sub%2Fthere.txt",
        "/%252e%252e/secret",
        "/.%2e/secret",
        "/sub/%2e%2e/plain",
        "/sub/./there.txt",
        "/..;/secret",
        "/%c0%ae%c0%ae/secret",
        "/\\..\\secret",
        "/plain%0a",
        "/..%5csecret",
        "/%2e%2e%5csecret",
        "//secret",
        "//plain",
        "/sub//index.html",
        &format!("/%2f{}", outside.display()),
        &outside.display().to_string(),
        "/plain%00",
        "/%00",
        "/%ff",
        "/plain/",
        "/plain/x",
        "/.htpasswd",
        "/%2ehtpasswd",
        "/.git/config",
        "/a%5cb",
        "/link",
        "/up/secret",
        "/up/site/plain",
        "/inside",
        "/loop",
        "/pipe",
        &long,
        &deep,
    ] {
        let response = http.get(path);
        assert_eq!((response.status, response.text().as_str()), (404, "there is nothing here\n"), "{path}");
    }
    neighbour.lives(&server);
}

/// As for sessions, a foreign name that points to loopback (DNS rebinding) opens nothing.
#[test]
fn a_page_of_a_foreign_name_reads_no_files() {
    let folder = Folder::new();
    folder.write("a.txt", "a");
    let server = folder.serve();
    assert_eq!(get(&server, "/a.txt", &[("host", "evil.example")]).status, 421);
    assert_eq!(get(&server, "/a.txt", &[("host", "localhost:1")]).status, 200);
    let named = Settings { allowed_hosts: vec!["push.example".into()], ..serving(&folder.site()) };
    let server = TestServer::start(named);
    assert_eq!(get(&server, "/a.txt", &[("host", "push.example")]).status, 200);
    assert_eq!(get(&server, "/a.txt", &[("host", "evil.example")]).status, 421);
}

#[test]
fn a_directory_must_exist_at_the_start_and_may_be_removed_later() {
    let folder = Folder::new();
    folder.write("a.txt", "a");
    let missing =
        Server::builder().settings(serving(&folder.0.join("missing"))).start().expect_err("no such directory");
    let name = folder.0.join("missing");
    assert_eq!(missing.to_string(), format!("files = {}: a directory that is there and can be read", name.display()));
    assert!(
        Server::builder().settings(serving(&folder.site().join("a.txt"))).start().is_err(),
        "a file is no directory"
    );
    let server = folder.serve();
    let mut neighbour = server.neighbour();
    fs::remove_dir_all(folder.site()).expect("removed");
    assert_eq!(get(&server, "/a.txt", &[]).status, 404);
    neighbour.lives(&server);
}

/// A client that disconnects in the middle of a file leaks nothing.
#[test]
fn the_file_of_a_reset_response_is_closed() {
    let folder = Folder::new();
    folder.write("large.bin", bytes(20_000_000));
    let server = folder.serve();
    let mut neighbour = server.neighbour();
    for _ in 0..20 {
        let mut tcp = crate::common::Tcp::narrow(server.address());
        tcp.send(format!("GET /large.bin HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()));
        tcp.read_ahead(1_000);
        tcp.reset();
    }
    server.wait_for_exactly("encke_connections", 2);
    neighbour.lives(&server);
}
