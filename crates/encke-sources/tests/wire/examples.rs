//! The program that the README shows, and the files in `examples/sources`.

use std::path::Path;

use encke_sources::Kind;

use crate::common::{Folder, TestServer, parsed};

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sources").join(name);
    std::fs::read_to_string(path).expect("an example")
}

#[test]
fn the_readme_shows_the_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../../examples/quotes.rs"));
    let program = &example[example.find("use ").expect("code")..];
    assert!(readme.contains(program), "README.md does not show examples/quotes.rs");
}

#[tokio::test]
async fn the_examples_of_quotes_and_of_a_command_publish() {
    let server = TestServer::start(None).await;
    let mut quotes = server.messages("/stock/S0001").await;
    let mut load = server.messages("/load").await;
    server.reload(&sources_of("quotes.toml"));
    assert_eq!(quotes.data().await["symbol"], "S0001");
    server.reload(&sources_of("command.toml"));
    assert!(load.data().await.as_str().is_some_and(|load| load.contains('/')), "as /proc/loadavg");
}

#[tokio::test]
async fn the_example_of_a_file_publishes_its_lines() {
    let folder = Folder::new();
    let server = TestServer::start(None).await;
    let mut messages = server.messages("/file/log").await;
    server.reload(&sources_of("file.toml").replace("events.log", &folder.path("events.log")));
    server.wait_for("errors", "log", 1).await;
    folder.append("events.log", "{\"level\":\"info\"}\n");
    assert_eq!(messages.data().await["level"], "info");
}

#[test]
fn the_example_of_mail_has_two_accounts() {
    let sources = parsed(&sources_of("mail.toml"));
    let channels: Vec<&str> = sources.iter().map(|source| source.channel.as_str()).collect();
    assert_eq!(channels, ["/mail/home", "/mail/work"]);
    assert!(sources.iter().all(|source| matches!(source.kind, Kind::Mail(_))));
}

/// The sources of an example, without the rules for channels before them.
fn sources_of(name: &str) -> String {
    let text = example(name);
    text[text.find("[[source]]").expect("a source")..].to_string()
}
