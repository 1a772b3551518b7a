//! Files in memory: they are served as they are on the disk, and others are read while they are sent.

use std::fs;

use encke::Settings;

use super::{Folder, bytes, get, serving};
use crate::common::{Tcp, TestServer, wait_until};

/// By another content, another file of the name, or none.
#[test]
fn a_file_in_memory_is_served_as_it_is_on_the_disk() {
    let folder = Folder::new();
    let server = TestServer::start(Settings { files_cache_ms: 1, ..serving(&folder.site()) });
    let shows = |wanted: &str, coding: Option<&str>| {
        wait_until(wanted, || {
            let response = get(&server, "/a.txt", &[("accept-encoding", "gzip")]);
            response.text() == wanted && response.header("content-encoding") == coding
        });
    };
    folder.write("a.txt", "one");
    shows("one", None);
    folder.write("a.txt", "two");
    shows("two", None);
    folder.write("b.txt", "six");
    fs::rename(folder.site().join("b.txt"), folder.site().join("a.txt")).expect("another file");
    shows("six", None);
    folder.write("a.txt.gz", "compressed");
    shows("compressed", Some("gzip"));
    fs::remove_file(folder.site().join("a.txt.gz")).expect("no compressed form");
    shows("six", None);
    fs::remove_file(folder.site().join("a.txt")).expect("no file");
    shows("there is nothing here\n", None);
    wait_until("it has left memory", || server.metric("encke_files_cache_bytes") == 0);
}

/// Within `files_cache_ms` nobody looks at the disk.
#[test]
fn a_file_in_memory_needs_no_look_at_the_disk_for_some_time() {
    let folder = Folder::new();
    folder.write("a.txt", "one");
    let server = TestServer::start(Settings { files_cache_ms: 100_000, ..serving(&folder.site()) });
    assert_eq!(get(&server, "/a.txt", &[]).text(), "one");
    fs::remove_file(folder.site().join("a.txt")).expect("no file");
    assert_eq!(get(&server, "/a.txt", &[]).text(), "one");
    // Other settings may have another directory.
    let other = Settings { listen: server.address(), files_cache_ms: 99_999, ..serving(&folder.site()) };
    server.handle.reload(other).expect("settings");
    wait_until("the other settings hold", || get(&server, "/a.txt", &[]).status == 404);
}

/// A client that reads slowly gets the file that it began with.
#[test]
fn a_file_that_is_replaced_while_a_client_reads_it_stays_whole_for_that_client() {
    let folder = Folder::new();
    for size in [900_000, 20_000_000] {
        folder.write("a.bin", bytes(size));
        let server = TestServer::start(Settings { files_cache_ms: 0, ..serving(&folder.site()) });
        let mut slow = crate::common::Http::on(Tcp::narrow(server.address()), server.address());
        slow.send("GET", "/a.bin", &[], b"");
        slow.tcp.read_ahead(1_000);
        folder.write("new.bin", "new");
        fs::rename(folder.site().join("new.bin"), folder.site().join("a.bin")).expect("another file");
        assert_eq!(get(&server, "/a.bin", &[]).text(), "new");
        assert!(slow.receive().body == bytes(size), "{size}");
    }
}

/// The client notices that the end is missing.
#[test]
fn a_file_that_gets_shorter_while_a_client_reads_it_ends_its_connection() {
    let folder = Folder::new();
    folder.write("a.bin", bytes(20_000_000));
    let server = folder.serve();
    let mut neighbour = server.neighbour();
    let mut tcp = Tcp::narrow(server.address());
    tcp.send(format!("GET /a.bin HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()));
    tcp.read_ahead(1_000);
    fs::File::options().write(true).open(folder.site().join("a.bin")).expect("a file").set_len(10).expect("shorter");
    assert!(tcp.ends());
    neighbour.lives(&server);
}
