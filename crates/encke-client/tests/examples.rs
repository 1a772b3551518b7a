//! The program that the README shows, and the other documents.

mod common;

#[expect(dead_code, reason = "its main reads standard input")]
#[path = "../examples/terminal_chat.rs"]
mod chat;

use std::sync::mpsc;

use encke_client::Client;

use common::{any_port, end, run, start, url};

#[test]
fn who_chats_sees_each_line_and_leaves_after_the_last() {
    let server = start(any_port());
    run(async {
        let client = Client::connect(&url(server.address())).await.expect("connects");
        let (lines, typed) = mpsc::channel();
        let (shown, seen) = mpsc::channel();
        lines.send("hello".into()).expect("taken");
        let mut lines = Some(lines);
        let show = |line| {
            shown.send(line).expect("taken");
        };
        let chatting = chat::chat(client.clone(), "alice".into(), typed.into_iter(), show);
        let ending = async {
            // The last line has been shown.
            while seen.try_recv().map_or(true, |line| line != "alice: hello") {
                tokio::task::yield_now().await;
            }
            lines.take();
        };
        let (ended, ()) = tokio::join!(chatting, ending);
        ended.expect("the session ends in order");
    });
    end(server);
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let (readme, example) = (include_str!("../README.md"), include_str!("../examples/terminal_chat.rs"));
    let (_, program) = example.split_once("\n\n").expect("docs, then the program");
    assert!(readme.contains(program), "README.md does not show examples/terminal_chat.rs");
    assert!(example.lines().count() < 60, "it is a short program");
}
