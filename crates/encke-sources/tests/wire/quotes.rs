//! `kind = "quotes"`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::json;

use crate::common::{Folder, TestServer};

fn source(more: &str) -> String {
    format!("[[source]]\nkind = \"quotes\"\nname = \"q\"\nrestart_pause_ms = 1\n{more}\n")
}

#[tokio::test]
async fn a_walk_publishes_every_symbol_in_every_round() {
    let (server, mut messages) = TestServer::with("/stock/*", &source("symbols = 50\ninterval_ms = 1")).await;
    let mut rounds: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    // Only the messages of one channel have an order: some of the next rounds may come before the last of these.
    while (1..=20).any(|round| rounds.get(&round).is_none_or(|symbols| symbols.len() < 50)) {
        let (channel, quote) = messages.next().await;
        assert_eq!(channel, format!("/stock/{}", quote["symbol"].as_str().expect("a symbol")));
        let price = |name: &str| quote[name].as_f64().expect("a price");
        assert!(price("bid") < price("last") && price("last") < price("ask"), "{quote}");
        rounds.entry(quote["loop"].as_u64().expect("the loop counter")).or_default().insert(channel);
    }
    assert!(rounds.values().all(|symbols| symbols.len() <= 50));
    assert_eq!(server.metric("runs", "q"), 1);
}

#[tokio::test]
async fn the_default_walk_has_three_thousand_symbols() {
    let (server, mut messages) = TestServer::with("/stock/S2999", &source("")).await;
    assert_eq!(messages.data().await["loop"], json!(1));
    assert_eq!(messages.data().await["loop"], json!(2));
    server.wait_for("messages", "q", 6_000).await;
}

#[tokio::test]
async fn a_file_is_replayed_line_by_line_and_wrong_lines_are_left_out() {
    let folder = Folder::new();
    let ticks = "symbol,time,bid,ask,last\nA,10.0,1,2,1.5\nB,10.0,3,4,\nA,wrong,5,6,7\nA,x\n\nA,10.01,1.25,2.25,1.75\n";
    let file = folder.write("ticks.csv", ticks);
    let (server, mut messages) = TestServer::with("/stock/*", &source(&format!("file = \"{file}\""))).await;
    let mut quotes = [messages.data().await, messages.data().await, messages.data().await];
    // Only the messages of one channel have an order.
    quotes.sort_by_key(|quote| quote["symbol"].to_string());
    let expected = [
        json!({"symbol": "A", "bid": 1, "ask": 2, "last": 1.5, "loop": 1}),
        json!({"symbol": "A", "bid": 1.25, "ask": 2.25, "last": 1.75, "loop": 2}),
        json!({"symbol": "B", "bid": 3, "ask": 4, "last": null, "loop": 1}),
    ];
    assert_eq!(quotes, expected);
    // The file has ended, and it is not repeated.
    crate::common::wait_until("it finishes", || server.metric("running", "q") == 0).await;
    assert_eq!((server.metric("runs", "q"), server.metric("errors", "q")), (1, 2));
}

#[tokio::test]
async fn a_file_may_be_repeated_at_a_chosen_pace() {
    let folder = Folder::new();
    let file = folder.write("ticks.csv", "symbol,last\nA,1\nA,2\n");
    let settings = source(&format!("file = \"{file}\"\nrepeat = true\ninterval_ms = 1"));
    let (_server, mut messages) = TestServer::with("/stock/*", &settings).await;
    for round in 1..=7 {
        let quote = messages.data().await;
        assert_eq!((&quote["last"], &quote["loop"]), (&json!(2 - round % 2), &json!(round)));
    }
}

#[tokio::test]
async fn a_file_that_is_no_table_fails_and_is_tried_again() {
    let folder = Folder::new();
    let file = folder.write("ticks.csv", "<html>\n");
    let settings = source(&format!("file = \"{file}\"\nrestart_pause_max_ms = 2"));
    let (server, mut messages) = TestServer::with("/stock/*", &settings).await;
    server.wait_for("restarts", "q", 2).await;
    folder.write("ticks.csv", "symbol,time,last\nA,1,7\n");
    assert_eq!(messages.data().await["last"], json!(7));
}

/// A server that answers each request with the next of these bodies, and then with the last one.
fn answers(bodies: &[&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let bodies = bodies.to_vec();
    std::thread::spawn(move || {
        for (number, mut tcp) in listener.incoming().map_while(Result::ok).enumerate() {
            let request = BufReader::new(tcp.try_clone().expect("cloned"));
            request.lines().map_while(Result::ok).find(String::is_empty);
            let body = bodies[number.min(bodies.len() - 1)];
            let _gone = match body {
                "drop" => Ok(()),
                "500" => write!(tcp, "HTTP/1.1 500 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
                body => {
                    write!(tcp, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
                }
            };
        }
    });
    format!("http://{address}/quotes")
}

#[tokio::test]
async fn a_url_is_polled_and_only_changed_quotes_are_published_whatever_else_it_answers() {
    let url = answers(&[
        "symbol,bid,ask\nA,1,2\nB,3,4\n",
        "drop",
        "symbol,bid,ask\nA,1,2\nB,3,5\n",
        "500",
        "<html>",
        "",
        r#"[{"symbol":"A","bid":9},{"symbol":"B","bid":3,"ask":5},{"no":"symbol"}]"#,
    ]);
    let settings = source(&format!("url = \"{url}\"\ninterval_ms = 1\nrestart_pause_max_ms = 2"));
    let (server, mut messages) = TestServer::with("/stock/*", &settings).await;
    // Only the messages of one channel have an order.
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    while of_a.last() != Some(&json!(9)) || of_b.is_empty() {
        let quote = messages.data().await;
        let of = if quote["symbol"] == "A" { &mut of_a } else { &mut of_b };
        of.push(quote["bid"].clone());
    }
    assert_eq!((&of_a[0], &of_b[0]), (&json!(1), &json!(3)));
    server.wait_for("errors", "q", 5).await;
}

/// A tree of such an answer would take more than a gigabyte.
#[tokio::test]
async fn an_answer_of_many_megabytes_takes_little_more_memory_than_itself() {
    let rows = r#"{"a":1},"#.repeat(2_000_000);
    let url = answers(&[Box::leak(format!(r#"[{rows}{{"symbol":"A","last":7}}]"#).into_boxed_str())]);
    let settings = source(&format!("url = \"{url}\"\ninterval_ms = 60000"));
    let (server, mut messages) = TestServer::with("/stock/*", &settings).await;
    assert_eq!(messages.data().await["last"], json!(7));
    assert_eq!(server.metric("errors", "q"), 1);
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kilobytes < 400_000, "{kilobytes} kB, with all other tests of this process");
}
