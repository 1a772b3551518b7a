//! Limits of files: memory, open files, and the names of a list.

use encke::Settings;

use crate::common::{Http, Tcp, TestServer, wait_until};
use crate::files::{Folder, bytes, get, serving};

/// Files that were requested last are in memory, whatever was requested before; all of them are served.
#[test]
fn files_cache_bytes_max_lets_other_files_go() {
    let folder = Folder::new();
    for number in 0..50 {
        folder.write(&format!("{number}.bin"), bytes(10_000));
    }
    let server = TestServer::start(Settings { files_cache_bytes_max: 100_000, ..serving(&folder.site()) });
    for number in 0..50 {
        assert!(get(&server, &format!("/{number}.bin"), &[]).body == bytes(10_000), "{number}");
    }
    let held = server.metric("encke_files_cache_bytes");
    assert!((50_000..=100_000).contains(&held), "{held}");
    assert!(server.metric("encke_files_evicted") >= 40);
    let server = TestServer::start(Settings { files_cache_bytes_max: 0, ..serving(&folder.site()) });
    for _ in 0..2 {
        assert!(get(&server, "/7.bin", &[]).body == bytes(10_000));
    }
    assert_eq!((server.metric("encke_files_cache_bytes"), server.metric("encke_files_evicted")), (0, 0));
    wait_until("the file is closed", || server.metric("encke_files_open") == 0);
}

#[test]
fn files_cache_file_bytes_max_is_the_largest_file_in_memory() {
    let folder = Folder::new();
    folder.write("fits.bin", bytes(10_000));
    folder.write("large.bin", bytes(10_001));
    let server = TestServer::start(Settings { files_cache_file_bytes_max: 10_000, ..serving(&folder.site()) });
    assert!(get(&server, "/fits.bin", &[]).body == bytes(10_000));
    let held = server.metric("encke_files_cache_bytes");
    assert!(held >= 10_000 && server.metric("encke_files_open") == 0, "{held}");
    assert!(get(&server, "/large.bin", &[]).body == bytes(10_001));
    assert!(server.metric("encke_files_cache_bytes") < held + 10_000);
    assert_eq!(server.metric("encke_files_open"), 1);
}

/// A file that nobody reads is closed for another one. One that a client reads stays open, for all who read it.
#[test]
fn files_open_max_refuses_further_files_while_clients_read() {
    let folder = Folder::new();
    for name in ["a.bin", "b.bin", "c.bin", "d.bin"] {
        folder.write(name, bytes(20_000_000));
    }
    let server = TestServer::start(Settings { files_open_max: 2, ..serving(&folder.site()) });
    let begin = |path: &str| {
        let mut http = Http::on(Tcp::narrow(server.address()), server.address());
        http.send("GET", path, &[], b"");
        http.tcp.read_ahead(1_000);
        http
    };
    assert!(get(&server, "/c.bin", &[]).body == bytes(20_000_000));
    let mut readers = [begin("/a.bin"), begin("/b.bin"), begin("/a.bin")];
    assert_eq!(server.metric("encke_files_open"), 2);
    let refused = get(&server, "/d.bin", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    assert_eq!(server.metric("encke_files_refused"), 1);
    for reader in &mut readers {
        assert!(reader.receive().body == bytes(20_000_000));
    }
    assert!(get(&server, "/d.bin", &[]).body == bytes(20_000_000));
}

/// Those who ask for a file at the same time, before anybody has, share it, too.
#[test]
fn requests_for_one_file_at_the_same_time_open_it_once() {
    let folder = Folder::new();
    folder.write("a.bin", bytes(5_000_000));
    let server = TestServer::start(Settings { files_open_max: 1, shards: 2, ..serving(&folder.site()) });
    let mut clients: Vec<Http> = (0..30).map(|_| server.http()).collect();
    clients.iter_mut().for_each(|client| client.send("GET", "/a.bin", &[], b""));
    for client in &mut clients {
        let response = client.receive();
        assert!(response.status == 200 && response.body == bytes(5_000_000), "{}", response.status);
    }
    assert_eq!((server.metric("encke_files_open"), server.metric("encke_files_refused")), (1, 0));
}

#[test]
fn files_listing_names_max_is_the_length_of_a_list() {
    let folder = Folder::new();
    for number in 0..12 {
        folder.write(&format!("sub/{number}.txt"), "x");
    }
    let names = |files_listing_names_max| {
        let settings = Settings { files_listing: true, files_listing_names_max, ..serving(&folder.site()) };
        let page = get(&TestServer::start(settings), "/sub/", &[]).text();
        (page.matches(".txt</a>").count(), page.contains("Only 5 names are shown."))
    };
    assert_eq!((names(12), names(5)), ((12, false), (5, true)));
}
