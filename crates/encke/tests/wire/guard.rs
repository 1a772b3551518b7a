//! The five parts of the server that answer HTTP requests pass the same checks: host, origin, preflight, method.

use encke::Settings;

use crate::common::{Folder, TestServer, settings};

/// A request to each part, with a method that it has not.
const PARTS: [(&str, &str, &str, &str); 5] = [
    ("POST", "/cometd", "PUT", "POST, GET, OPTIONS"),
    ("GET", "/hold/a?timeout=0", "POST", "GET, OPTIONS"),
    ("GET", "/history/a", "POST", "GET, OPTIONS"),
    ("GET", "/api/v1/info", "POST", "GET, HEAD"),
    ("GET", "/file.txt", "POST", "GET, HEAD"),
];

const PAGE: (&str, &str) = ("origin", "https://page.example");

fn body_of(method: &str) -> &'static [u8] {
    if method == "POST" { br#"[{"channel":"/meta/handshake","version":"1.0"}]"# } else { b"" }
}

/// A server with a file, and the folder of the file.
fn server(allowed_origins: Vec<String>) -> (TestServer, Folder) {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file.txt"), "text").expect("a file");
    let server = TestServer::start(Settings { files: folder.name(), allowed_origins, ..settings() });
    (server, folder)
}

/// A file is found by GET and HEAD only; `/metrics`, which has the same guard, is there for every method.
fn with_methods(path: &str) -> &str {
    if path == "/file.txt" { "/metrics" } else { path }
}

#[test]
fn a_foreign_host_is_refused_and_counted_by_all() {
    let (server, _folder) = server(Vec::new());
    for (method, path, ..) in PARTS {
        let host = [("host", "evil.example")];
        let response = server.http().request(method, path, &host, body_of(method));
        assert_eq!(response.status, 421, "{path}");
    }
    assert_eq!(server.metric("encke_hosts_refused"), PARTS.len() as u64);
}

#[test]
fn another_method_gets_405_with_the_methods_of_the_path() {
    let (server, _folder) = server(Vec::new());
    for (_, path, other, allow) in PARTS {
        let response = server.http().request(other, with_methods(path), &[], b"");
        assert_eq!((response.status, response.header("allow")), (405, Some(allow)), "{path}");
    }
}

#[test]
fn a_page_of_another_origin_is_refused_where_no_key_decides_and_reads_nothing_anywhere() {
    let (server, _folder) = server(Vec::new());
    let statuses = PARTS.map(|(method, path, ..)| {
        let response = server.http().request(method, path, &[PAGE], body_of(method));
        assert_eq!(response.header("access-control-allow-origin"), None, "{path}");
        response.status
    });
    assert_eq!(statuses, [403, 403, 403, 401, 200]);
    assert_eq!(server.metric("encke_origins_refused"), 3);
}

#[test]
fn a_preflight_of_an_allowed_origin_is_answered_where_pages_may_call() {
    let (server, _folder) = server(vec![PAGE.1.into()]);
    let answers = PARTS.map(|(_, path, ..)| {
        let response = server.http().request("OPTIONS", with_methods(path), &[PAGE], b"");
        let allows = |field| response.header(field).is_some();
        (response.status, allows("access-control-allow-origin"), allows("access-control-allow-methods"))
    });
    let (allowed, refused) = ((200, true, true), (405, false, false));
    assert_eq!(answers, [allowed, allowed, allowed, refused, refused]);
    assert_eq!(server.metric("encke_origins_refused"), 0);
}
