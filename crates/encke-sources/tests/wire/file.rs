//! `kind = "file"`.

use serde_json::json;

use crate::common::{Folder, TestServer};

fn source(path: &str, more: &str) -> String {
    format!("[[source]]\nkind = \"file\"\nname = \"f\"\nchannel = \"/f\"\npoll_ms = 10\npath = \"{path}\"\n{more}\n")
}

#[tokio::test]
async fn lines_are_messages_once_they_are_complete() {
    let folder = Folder::new();
    let path = folder.write("log", "1\n2\n");
    let (_server, mut messages) = TestServer::with("/f", &source(&path, "start = \"beginning\"")).await;
    assert_eq!((messages.data().await, messages.data().await), (json!(1), json!(2)));
    folder.append("log", "thr");
    folder.append("log", "ee\r\n{\"four\":");
    assert_eq!(messages.data().await, json!("three"));
    folder.append("log", "4}\n");
    assert_eq!(messages.data().await, json!({"four": 4}));
}

#[tokio::test]
async fn the_default_start_is_the_end_and_a_file_that_appears_later_is_read_whole() {
    let folder = Folder::new();
    let old = folder.write("old", "before\n");
    let (server, mut messages) = TestServer::with("/f", &source(&old, "")).await;
    // The source does not show that it has found the end, and begins after the lines until then.
    let append = async {
        loop {
            folder.append("old", "after\n");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let first = tokio::select! {
        data = messages.data() => data,
        () = append => unreachable!(),
    };
    assert_eq!(first, json!("after"));
    let new = folder.path("new");
    server.reload(&source(&new, ""));
    server.wait_for("errors", "f", 1).await;
    folder.append("new", "first\n");
    let mut next = messages.data().await;
    while next == json!("after") {
        next = messages.data().await;
    }
    assert_eq!(next, json!("first"));
    assert_eq!(server.metric("errors", "f"), 1, "the missing file is one error");
}

#[tokio::test]
async fn a_renamed_file_is_read_to_its_end_and_then_the_new_one() {
    let folder = Folder::new();
    let path = folder.write("log", "");
    let (_server, mut messages) = TestServer::with("/f", &source(&path, "start = \"beginning\"")).await;
    for round in 0..5 {
        folder.append("log", format!("{round}0\n"));
        // The file is open when its first line has come.
        messages.data().await;
        folder.append("log", format!("{round}1\n{round}2\n{round}3"));
        std::fs::rename(&path, folder.path("log.1")).expect("renamed");
        folder.append("log.1", "4\n");
        folder.append("log", "");
        for line in ["1", "2", "34"] {
            let expected: serde_json::Value =
                format!("{round}{line}").parse().unwrap_or(json!(format!("{round}{line}")));
            assert_eq!(messages.data().await, expected);
        }
    }
}

#[tokio::test]
async fn a_truncated_file_is_read_from_its_beginning_even_if_it_has_grown_past_the_old_end() {
    let folder = Folder::new();
    let path = folder.write("log", "11\n12\n");
    let (_server, mut messages) = TestServer::with("/f", &source(&path, "start = \"beginning\"")).await;
    assert_eq!((messages.data().await, messages.data().await), (json!(11), json!(12)));
    folder.write("log", "21\n");
    assert_eq!(messages.data().await, json!(21));
    // One write: the file is not seen while it is short.
    let new = folder.write("new", "31\n32\n33\n34\n");
    let text = std::fs::read(new).expect("read");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, &text, 0).expect("written");
    for line in 31..35 {
        assert_eq!(messages.data().await, json!(line));
    }
}

#[tokio::test]
async fn long_lines_are_left_out_whatever_their_length() {
    let folder = Folder::new();
    let long = |bytes: usize| "x".repeat(bytes);
    let lines =
        [long(20), "12345678".into(), long(9), long(1_000_000), long(65_536), "1".into(), long(65_535), "2".into()];
    let path = folder.write("log", &(lines.join("\n") + "\n"));
    let (server, mut messages) =
        TestServer::with("/f", &source(&path, "start = \"beginning\"\nline_bytes_max = 8")).await;
    for expected in [12_345_678, 1, 2] {
        assert_eq!(messages.data().await, json!(expected));
    }
    assert_eq!(server.metric("errors", "f"), 5);
}

#[tokio::test]
async fn the_position_outlives_the_server_if_there_is_a_data_directory() {
    let folder = Folder::new();
    let path = folder.write("log", "1\n2\n3");
    let data = std::path::PathBuf::from(folder.path("data"));
    for expected in [[1, 2], [34, 5], [6, 7]] {
        let server = TestServer::start(Some(data.clone())).await;
        let mut messages = server.messages("/f").await;
        server.reload(&source(&path, "start = \"beginning\""));
        for expected in expected {
            assert_eq!(messages.data().await, json!(expected));
        }
        server.stop();
        folder.append("log", if expected[0] == 1 { "4\n5\n" } else { "6\n7\n" });
    }
    // Another file under the same name is new.
    std::fs::remove_file(&path).expect("removed");
    folder.write("other", "");
    folder.write("log", "8\n");
    let server = TestServer::start(Some(data)).await;
    let mut messages = server.messages("/f").await;
    server.reload(&source(&path, ""));
    assert_eq!(messages.data().await, json!(8));
}

#[tokio::test]
async fn a_path_that_is_no_file_fails_and_never_blocks() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("runs").success());
    let (server, _messages) =
        TestServer::with("/f", &source(&fifo, "restart_pause_ms = 1\nrestart_pause_max_ms = 1")).await;
    server.wait_for("restarts", "f", 3).await;
    server.reload(&source(&folder.path(""), "restart_pause_ms = 1"));
    server.wait_for("restarts", "f", 3).await;
}
