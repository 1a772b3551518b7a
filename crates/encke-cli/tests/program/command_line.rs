//! Each command of docs/command-line.md, against a server with tokens and against one without.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Folder, Server, TIMEOUT, alone, encke, text, wait};

/// The commands of the page, each with a text that its output has.
fn commands() -> Vec<(String, Option<String>)> {
    let page = include_str!("../../../../docs/command-line.md");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let command = |line: &str| {
        let (command, comment) =
            line.split_once("#> ").map_or((line, None), |(line, text)| (line, Some(text.to_owned())));
        (command.split(" # ").next().unwrap_or(command).trim().to_owned(), comment)
    };
    blocks.flat_map(str::lines).map(command).collect()
}

const CHANNELS: &str = "demo = true\n[[channels]]\npattern = \"/prices/*\"\nhistory_messages = 100\n\
                        [[channels]]\npattern = \"/room/*\"\npresence = true\n\
                        [[api_keys]]\nname = \"me\"\nkey = \"0123456789abcdef\"\nscopes = [\"read\", \"manage\"]\n";

/// A server with tokens or without, and a folder with the files that its clients need.
fn server(has_tokens: bool) -> (Server, Folder) {
    let folder = Folder::new();
    folder.write("key", "0123456789abcdef\n");
    let make = ["token", "keys", "HS256", "--out", "mine"];
    assert!(folder.encke(&make).output().expect("runs").status.success());
    let make = ["token", "make", "alice", "--secret-file", "mine.secret"];
    let token = folder.encke(&make).output().expect("runs");
    folder.write("token", &text(&token.stdout));
    let auth = "[auth]\nsecret_file = \"mine.secret\"\n";
    folder.write("encke.toml", &format!("{CHANNELS}{}", if has_tokens { auth } else { "" }));
    let mut command = folder.encke(&["serve", "--port", "0", "--config", "encke.toml"]);
    command.current_dir(&folder.0);
    (Server::spawn(command), folder)
}

/// Runs a line of a shell in this folder, with the program first on its path and its contexts in the folder.
fn shell(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_encke")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = alone(Command::new("sh"), &["-c", line]);
    command.current_dir(folder).env("PATH", path).env("XDG_CONFIG_HOME", folder);
    command.output().expect("runs")
}

#[test]
fn each_command_of_the_page_works_with_tokens_and_without() {
    let commands = commands();
    assert!(commands.len() >= 25, "{}", commands.len());
    for has_tokens in [false, true] {
        let (server, folder) = server(has_tokens);
        for (line, expected) in &commands {
            let output = shell(&folder.0, &line.replace("http://127.0.0.1:8080", &server.url));
            let (printed, said) = (text(&output.stdout), text(&output.stderr));
            assert!(output.status.success(), "{line}: {:?}: {said}", output.status.code());
            let expected = expected.as_deref().unwrap_or_default();
            assert!(printed.contains(expected), "{line}: no {expected:?} in {printed:?}, {said:?}");
        }
        let output = shell(&folder.0, &format!("encke publish /news 1 --url {}", server.url));
        assert_eq!(output.status.success(), !has_tokens, "a named URL gets no secrets of the context");
    }
}

#[test]
fn a_subscriber_goes_on_at_its_positions_over_restarts_of_the_server_and_prints_each_message_once() {
    let folder = Folder::new();
    folder.write("encke.toml", CHANNELS);
    let start = |port: &str| {
        let args = ["serve", "--port", port, "--config", "encke.toml", "--data", "data"];
        Server::spawn(folder.encke(&args))
    };
    let mut server = start("0");
    let port = server.url.rsplit(':').next().expect("a port").to_owned();
    let publish = |server: &Server, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let channel = format!("/prices/{}", number % 3);
            let output = folder.encke(&["publish", &channel, &number.to_string(), "--url", &server.url]).output();
            assert!(output.expect("runs").status.success());
        }
    };
    let url = server.url.clone();
    let args = ["subscribe", "/prices/*", "--positions", "at", "--raw", "--url", &url];
    // The first run has nothing to print, and ends by a signal. What is stored of silent channels comes the next time.
    publish(&server, 0..3);
    let mut first = folder.encke(&args).stdout(Stdio::piped()).spawn().expect("starts");
    let at = folder.0.join("at");
    let began = Instant::now();
    while !at.exists() && began.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&first), Signal::INT).expect("is there");
    assert_eq!(wait(&mut first), Some(0));
    publish(&server, 3..9);
    let mut printed = Vec::new();
    let mut run = |count: &str| {
        let output = folder.encke(&[&args[..], &["--count", count]].concat()).output().expect("runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        printed.extend(text(&output.stdout).lines().map(str::to_owned));
    };
    run("2");
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    server = start(&port);
    publish(&server, 9..12);
    run("4");
    run("6");
    printed.sort_by_key(|line| line.parse::<u32>().unwrap_or(u32::MAX));
    assert_eq!(printed, (0..12).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn mistakes_of_a_caller_are_reported_before_a_server_is_asked() {
    for (args, expected) in [
        (&["publish", "/a"][..], "the data is missing; - takes it from the input"),
        (&["publish", "-", "1"], "the channel - takes channel and data from each line"),
        (&["publish", "/a", "hello"], "the data is not JSON: "),
        (&["publish", "/a", "1", "--context", "none"], "there is no context \"none\""),
        (&["publish", "/a", "1", "--token-file", "/nowhere/token"], "/nowhere/token: "),
        (&["publish", "/a", "1", "--ext", "[]"], "a JSON object"),
        (&["publish", "/a", "1", "--header", "x"], "a name, a colon and a value"),
        (&["disconnect"], "required"),
    ] {
        let output = encke(&[args, &["--url", "http://127.0.0.1:1"]].concat()).output().expect("runs");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn a_refused_line_is_reported_with_its_number_and_the_others_are_published() {
    let (server, folder) = server(false);
    let line = format!(
        "printf '%s\\n' '{{\"channel\":\"/prices/a\",\"data\":1}}' '{{\"channel\":\"/b//c\",\"data\":2}}' \
         '{{\"channel\":\"/prices/a\",\"data\":3}}' | encke publish - --url {}",
        server.url
    );
    let output = shell(&folder.0, &line);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("line 2: /b//c refused: 405"), "{said}");
    let args = format!("encke subscribe /prices/a --replay -2 --count 2 --raw --url {}", server.url);
    assert_eq!(text(&shell(&folder.0, &args).stdout).lines().count(), 2);
    let output = shell(&folder.0, &format!("printf '1\\nx\\n' | encke publish /prices/a - --url {}", server.url));
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("line 2: the data is not JSON"), "{said}");
}

#[test]
fn a_configuration_names_the_server_that_has_it() {
    let folder = Folder::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr()).expect("is free").port();
    folder.write("encke.toml", &format!("listen = \"0.0.0.0:{port}\"\ndev_tls = true\n"));
    let _server = Server::spawn(folder.encke(&["serve", "--config", "encke.toml"]));
    let output = shell(&folder.0, "encke publish /news 1 --config encke.toml");
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.write("broken.toml", "listen = 7\nports = 1\n");
    let output = shell(&folder.0, "encke publish /news 1 --config broken.toml");
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("broken.toml:1") && said.contains("broken.toml:2"),
        "{said}"
    );
}
