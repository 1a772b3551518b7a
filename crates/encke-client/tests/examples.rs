//! The program that the README shows, and the other documents.

mod common;

#[expect(dead_code, reason = "its main reads standard input")]
#[path = "../examples/terminal_chat.rs"]
mod chat;

#[expect(dead_code, reason = "its main is not called")]
#[path = "../examples/price_board.rs"]
mod price_board;

use std::sync::{Mutex, mpsc};

use encke::{ChannelRule, Settings};
use encke_client::{Client, ReplayFrom};

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

#[test]
fn the_price_board_shows_each_price_once_over_all_its_runs() {
    let rule = ChannelRule { pattern: "/stock/*".into(), history_messages: 10, ..ChannelRule::default() };
    let server = start(Settings { channels: vec![rule], ..any_port() });
    let stored = std::env::temp_dir().join(format!("encke-price-board-{}.json", std::process::id()));
    run(async {
        let mut published = 0;
        for _run in 0..3 {
            for symbol in ["GOOG", "AAPL"] {
                published += 1;
                let price = format!("{{\"cents\":{published}}}");
                server.handle().publish(&format!("/stock/{symbol}"), &price).expect("published");
            }
            let client = Client::builder().replay(ReplayFrom::Earliest).connect(&url(server.address())).await;
            let client = client.expect("connects");
            let shown = Mutex::new(Vec::new());
            let board = price_board::board(&client, &stored, |symbol, cents| {
                shown.lock().expect("whole").push((symbol.to_owned(), cents));
            });
            let ending = async {
                while shown.lock().expect("whole").len() < 2 {
                    tokio::task::yield_now().await;
                }
                client.disconnect().await
            };
            let (ended, disconnected) = tokio::join!(board, ending);
            ended.expect("ends in order");
            disconnected.expect("disconnects");
            let mut shown = shown.into_inner().expect("whole");
            shown.sort_unstable_by_key(|(_, cents)| *cents);
            assert_eq!(shown, [("GOOG".to_owned(), published - 1), ("AAPL".to_owned(), published)]);
        }
    });
    let _ = std::fs::remove_file(stored);
    end(server);
    assert!(include_str!("../examples/price_board.rs").lines().count() <= 60, "it is a short program");
}
