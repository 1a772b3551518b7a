//! Rules for caches, lists of folders, and the files that pages need.

use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::symlink;

use encke::{Asset, FileRule, Server, Settings};

use super::{Folder, get, serving};
use crate::common::{Http, TestServer};

fn rule(pattern: &str, cache_control: &str) -> FileRule {
    FileRule { pattern: pattern.into(), cache_control: cache_control.into() }
}

#[test]
fn the_first_rule_that_matches_says_how_long_caches_may_store_a_file() {
    const ASSETS: &[Asset] = &[Asset::new("/assets/own.js", "text/javascript", b"own", "\"1\"")];
    const FOREVER: &str = "public, max-age=31536000, immutable";
    let folder = Folder::new();
    fs::create_dir(folder.site().join("assets")).expect("a folder");
    for name in ["index.html", "a.txt", "assets/a.js", "assets/index.html"] {
        folder.write(name, name);
    }
    let files_rules = vec![rule("/**.html", "max-age=60"), rule("/assets/**", FOREVER)];
    let settings = Settings { files_rules, ..serving(&folder.site()) };
    let running = Server::builder().settings(settings).assets(ASSETS).start().expect("the server starts");
    let mut http = Http::connect(running.address());
    for (path, wanted) in [
        ("/", "max-age=60"),
        ("/a.txt", "no-cache"),
        ("/assets/a.js", FOREVER),
        ("/assets/", "max-age=60"),
        ("/assets/own.js", FOREVER),
    ] {
        assert_eq!(http.get(path).header("cache-control"), Some(wanted), "{path}");
    }
    assert_eq!(http.get("/assets/none.js").header("cache-control"), None, "an error is no file");
    running.handle().drain();
    running.join();
    for (pattern, cache_control, name) in
        [("assets", "no-store", "files_rules.pattern"), ("/a", "x\r\ny: z", "files_rules.cache_control")]
    {
        let settings = Settings { files_rules: vec![rule(pattern, cache_control)], ..Settings::default() };
        assert_eq!(encke::check_settings(&settings).expect_err("invalid").name, name);
    }
}

#[test]
fn a_folder_lists_its_files_only_where_the_setting_says_so() {
    let folder = Folder::new();
    for name in ["sub/b & c.txt", "sub/a.txt", "sub/.hidden", "sub/<b>"] {
        folder.write(name, "x");
    }
    fs::create_dir(folder.site().join("sub/deep")).expect("a folder");
    symlink("a.txt", folder.site().join("sub/link")).expect("a link");
    assert_eq!(get(&folder.serve(), "/sub/", &[]).status, 404);
    let server = TestServer::start(Settings { files_listing: true, ..serving(&folder.site()) });
    let page = get(&server, "/sub/", &[]);
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'")));
    let text = page.text();
    let names: Vec<_> = text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(names, ["../", "%3Cb%3E", "a.txt", "b%20%26%20c.txt", "deep/"], "{text}");
    assert!(text.contains("&lt;b&gt;") && !text.contains("<b>"), "{text}");
    assert_eq!(get(&server, "/sub/b%20%26%20c.txt", &[]).status, 200);
    folder.write("sub/index.html", "the index");
    assert_eq!(get(&server, "/sub/", &[]).text(), "the index");
    assert_eq!(get(&server, "/none/", &[]).status, 404);
}

fn preloading(folder: &Folder, text: &str) -> Settings {
    let file = folder.0.join("preload.json");
    fs::write(&file, text).expect("a file");
    Settings { files_preload: file.display().to_string(), files_cache_ms: 0, ..serving(&folder.site()) }
}

const LINKS: &str = "</app.css>; rel=preload; as=style, </app.mjs>; rel=modulepreload";

#[test]
fn a_page_names_the_files_that_it_needs() {
    let folder = Folder::new();
    folder.write("index.html", "a page");
    let text = r#"{"/": ["/app.css", "</app.mjs>; rel=modulepreload"], "/gone.html": ["/app.css"]}"#;
    let server = TestServer::start(preloading(&folder, text));
    let page = get(&server, "/", &[]);
    assert_eq!((page.status, page.header("link")), (200, Some(LINKS)));
    assert_eq!(get(&server, "/gone.html", &[]).header("link"), None);
    assert_eq!(get(&server, "/index.html", &[]).header("link"), None);
    // A build writes the file again, and a broken one changes nothing.
    preloading(&folder, r#"{"/": ["/new.css"]}"#);
    assert_eq!(get(&server, "/", &[]).header("link"), Some("</new.css>; rel=preload; as=style"));
    preloading(&folder, r#"{"/": "#);
    assert_eq!(get(&server, "/", &[]).header("link"), Some("</new.css>; rel=preload; as=style"));
}

#[test]
fn a_file_of_links_that_cannot_be_used_is_refused_with_the_reason() {
    let folder = Folder::new();
    for (text, reason) in [
        ("{", "EOF while parsing"),
        (r#"{"index.html": []}"#, "\"index.html\" is no path of a page"),
        (r#"{"/": ["/app"]}"#, "\"/app\" of / is neither a path"),
        (r#"{"/": 7}"#, "expected a sequence"),
    ] {
        let error = encke::check_settings(&preloading(&folder, text)).expect_err(text).to_string();
        assert!(error.starts_with("files_preload = ") && error.contains(reason), "{error}");
    }
    let missing = Settings { files_preload: "/nowhere/preload.json".into(), ..Settings::default() };
    assert!(encke::check_settings(&missing).expect_err("missing").to_string().contains("No such file"));
}

/// RFC 8297. Clients of HTTP/1.1 get the links with the page only.
#[test]
fn over_http2_the_links_of_a_page_come_before_it() {
    let folder = Folder::new();
    folder.write("index.html", "a page");
    let text = r#"{"/": ["/app.css", "</app.mjs>; rel=modulepreload"]}"#;
    let server = TestServer::start(preloading(&folder, text));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let stream = crate::common::http2::connect(server.address()).await.expect("a connection");
        let (mut sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(async move { _ = connection.await });
        for (path, hints) in [("/", Some(LINKS)), ("/none", None), ("/", Some(LINKS))] {
            let uri = format!("{}://localhost{path}", crate::common::tls::scheme());
            let request = http::Request::get(uri).body(()).expect("a request");
            let (mut response, _) = sender.send_request(request, true).expect("a stream");
            let early = poll_fn(|cx| response.poll_informational(cx)).await.map(|early| early.expect("a head"));
            let links = early.as_ref().map(|early| (early.status().as_u16(), early.headers()["link"].as_bytes()));
            assert_eq!(links, hints.map(|hints| (103, hints.as_bytes())), "{path}");
            let page = response.await.expect("the page");
            assert_eq!(page.headers().get("link").map(|links| links.as_bytes()), hints.map(str::as_bytes), "{path}");
        }
    });
}
