//! Conditional requests and ranges (RFC 9110 §13 and §14), of files in memory, of others, and of built-in pages.

use std::time::{Duration, SystemTime};

use encke::{Asset, Server, Settings};

use super::{Folder, bytes, get, serving};
use crate::common::{Http, TestServer, settings};

/// RFC 9110 §13.1.2 and §13.1.3.
#[test]
fn an_unchanged_file_is_not_sent_again() {
    let folder = Folder::new();
    folder.write("a.txt", "one");
    let server = TestServer::start(Settings { files_cache_ms: 0, ..serving(&folder.site()) });
    let first = get(&server, "/a.txt", &[]);
    let tag = first.header("etag").expect("a tag").to_owned();
    let date = first.header("last-modified").expect("a date").to_owned();
    for (name, value) in [("if-none-match", &tag), ("if-modified-since", &date)] {
        let again = get(&server, "/a.txt", &[(name, value)]);
        assert_eq!((again.status, again.body.len()), (304, 0), "{name}");
        assert_eq!(again.header("etag"), Some(tag.as_str()));
        assert_eq!(again.header("cache-control"), Some("no-cache"));
    }
    folder.write("a.txt", "two and three");
    let changed = get(&server, "/a.txt", &[("if-none-match", &tag)]);
    assert_eq!((changed.status, changed.text().as_str()), (200, "two and three"));
    // Another content of the same length.
    let tag = changed.header("etag").expect("a tag").to_owned();
    folder.write("a.txt", "three and two");
    assert_eq!(get(&server, "/a.txt", &[("if-none-match", &tag)]).text(), "three and two");
}

/// RFC 9110 §13.1.1 and §13.1.4.
#[test]
fn a_file_that_the_client_does_not_expect_is_not_sent() {
    let folder = Folder::new();
    folder.write("a.txt", "one");
    let server = folder.serve();
    let tag = get(&server, "/a.txt", &[]).header("etag").expect("a tag").to_owned();
    for (name, value, status) in [
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"another\"", 412),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ] {
        assert_eq!(get(&server, "/a.txt", &[(name, value)]).status, status, "{name}: {value}");
    }
}

/// RFC 9110 §8.8.1: a tag is strong only if no change can have the same one. The clock of files stands still for some milliseconds.
#[test]
fn a_file_that_changes_now_has_a_weak_tag_and_one_from_the_future_has_no_date() {
    let folder = Folder::new();
    folder.write("a.txt", "one");
    folder.set_age("a.txt", SystemTime::now() + Duration::from_secs(3_600));
    let server = folder.serve();
    let first = get(&server, "/a.txt", &[]);
    let tag = first.header("etag").expect("a tag").to_owned();
    assert!(tag.starts_with("W/\"") && first.header("last-modified").is_none(), "{tag}");
    assert_eq!(get(&server, "/a.txt", &[("if-none-match", &tag)]).status, 304);
    assert_eq!(get(&server, "/a.txt", &[("range", "bytes=0-0"), ("if-range", &tag)]).status, 200);
}

/// RFC 9110 §14, and `If-Range` (§13.1.5).
#[test]
fn a_range_of_a_file_can_be_requested() {
    let folder = Folder::new();
    for (name, size) in [("/small.bin", 1_000), ("/large.bin", 3_000_000)] {
        folder.write(&name[1..], bytes(size));
        let server = folder.serve();
        let part = get(&server, name, &[("range", "bytes=100-199")]);
        assert_eq!(part.status, 206);
        assert_eq!(part.header("content-range"), Some(format!("bytes 100-199/{size}").as_str()));
        assert!(part.body == bytes(size)[100..200]);
        let end = get(&server, name, &[("range", "bytes=-10")]);
        assert!(end.body == bytes(size)[size - 10..]);
        let rest = get(&server, name, &[("range", "bytes=300-")]);
        assert!(rest.body == bytes(size)[300..]);
        let beyond = get(&server, name, &[("range", "bytes=9999999-")]);
        assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(format!("bytes */{size}").as_str())));
        let whole = get(&server, name, &[]);
        assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")));
        let (tag, date) = (whole.header("etag").expect("a tag"), whole.header("last-modified").expect("a date"));
        for (if_range, status) in
            [(tag, 206), (date, 206), ("\"another\"", 200), ("Thu, 01 Jan 1970 00:00:00 GMT", 200)]
        {
            let response = get(&server, name, &[("range", "bytes=0-1"), ("if-range", if_range)]);
            assert_eq!((response.status, response.body.len()), (status, if status == 206 { 2 } else { size }));
        }
        for ranges in ["bytes=0-1,5-6,8-9", "bytes=5-2", "lines=0-1", "bytes=x"] {
            let many = get(&server, name, &[("range", ranges)]);
            assert_eq!((many.status, many.body.len()), (200, size), "{ranges}");
        }
        let twice = get(&server, name, &[("range", "bytes=0-1"), ("range", "bytes=5-6")]);
        assert_eq!((twice.status, twice.body.len()), (200, size));
        // A range is about the content of a response, which HEAD has none of (§14.2).
        let head = server.http().request("HEAD", name, &[("range", "bytes=0-1")], b"");
        assert_eq!((head.status, head.header("content-length")), (200, Some(size.to_string().as_str())));
    }
}

#[test]
fn a_range_is_one_of_the_form_that_the_client_gets() {
    let folder = Folder::new();
    folder.write("a.js", "the file itself");
    folder.write("a.js.gz", "compressed");
    let server = folder.serve();
    let part = get(&server, "/a.js", &[("accept-encoding", "gzip"), ("range", "bytes=0-3")]);
    assert_eq!((part.status, part.text().as_str()), (206, "comp"));
    assert_eq!((part.header("content-range"), part.header("content-encoding")), (Some("bytes 0-3/10"), Some("gzip")));
}

#[test]
fn built_in_pages_have_ranges_and_conditions_as_files_have() {
    const ASSETS: &[Asset] = &[Asset::new("/page", "text/html", b"the page itself", "\"1\"")];
    let running = Server::builder().settings(settings()).assets(ASSETS).start().expect("the server starts");
    let mut http = Http::connect(running.address());
    let part = http.request("GET", "/page", &[("range", "bytes=4-7"), ("if-range", "\"1\"")], b"");
    assert_eq!((part.status, part.text().as_str()), (206, "page"));
    assert_eq!(http.request("GET", "/page", &[("if-match", "\"2\"")], b"").status, 412);
    assert_eq!(http.request("POST", "/page", &[], b"x").status, 405);
    running.handle().drain();
    running.join();
}
