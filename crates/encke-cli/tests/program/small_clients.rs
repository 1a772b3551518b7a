//! Commands that speak to a server, where it has nothing for them or keeps them waiting.

use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Folder, Server, TIMEOUT, encke, run, text, wait};

/// A server with this configuration.
fn server(folder: &Folder, configuration: &str) -> Server {
    folder.write("encke.toml", configuration);
    Server::spawn(folder.encke(&["serve", "--port", "0", "--config", "encke.toml"]))
}

#[test]
fn a_publisher_gives_up_on_a_server_that_advises_it_to_try_again() {
    let folder = Folder::new();
    // The backend is away, so the server refuses each handshake for a while.
    let webhook = "[[webhooks]]\nurl = \"http://127.0.0.1:1/\"\nevents = [\"handshake\"]\n\
                   secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n";
    let server = server(&folder, webhook);
    for command in ["publish", "request"] {
        let output = run(&[command, "/service/a", "1", "--timeout", "300ms", "--url", &server.url]);
        let expected = format!("encke: {} has opened no session within 300ms\n", server.url);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected), "{command}");
    }
}

#[test]
fn an_interrupted_publisher_ends_with_130_and_one_that_is_done_with_0() {
    let folder = Folder::new();
    let server = server(&folder, "[[channels]]\npattern = \"/stored/*\"\nhistory_messages = 10\n");
    for (number, is_interrupted) in [(1, true), (2, false)] {
        let args = ["publish", "/stored/a", "-", "--url", &server.url];
        let mut publisher = encke(&args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut input = publisher.stdin.take().expect("piped");
        input.write_all(b"1\n").expect("is read");
        let began = Instant::now();
        let stored = || {
            let args =
                ["subscribe", "/stored/a", "--replay", "-2", "--count", &number.to_string(), "--url", &server.url];
            run(&args).status.success()
        };
        // With its message there, it handles signals.
        assert!(stored() && began.elapsed() < TIMEOUT);
        if is_interrupted {
            kill_process(Pid::from_child(&publisher), Signal::INT).expect("is there");
        } else {
            drop(input);
        }
        assert_eq!(wait(&mut publisher), Some(if is_interrupted { 130 } else { 0 }));
        let said = publisher.wait_with_output().expect("has ended").stderr;
        let expected = if is_interrupted { "encke: interrupted: not all messages are confirmed\n" } else { "" };
        assert_eq!(text(&said), expected);
    }
}

#[test]
fn a_channel_without_presence_is_an_error_and_an_empty_one_is_not() {
    let folder = Folder::new();
    let configuration = "api_loopback = true\n[[channels]]\npattern = \"/room/*\"\npresence = true\n";
    let server = server(&folder, configuration);
    let asked = |channel: &str| {
        let output = run(&["presence", channel, "--url", &server.url]);
        assert!(output.stdout.is_empty());
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(asked("/room/1"), (Some(0), "encke: nobody is on /room/1\n".into()));
    let (code, said) = asked("/other");
    assert_eq!(
        (code, &*said),
        (Some(1), "encke: 404 Not Found: the channel has no presence: no rule has presence for it\n")
    );
}

#[test]
fn a_subscriber_to_stored_messages_names_the_channels_that_have_none() {
    let folder = Folder::new();
    let server = server(&folder, "[[channels]]\npattern = \"/stored/*\"\nhistory_messages = 10\n");
    assert!(run(&["publish", "/stored/a", "1", "--url", &server.url]).status.success());
    for from in [&["--since", "10m"][..], &["--last", "5"], &["--replay", "-2"]] {
        let channels =
            ["subscribe", "/stored/a", "/stored/new", "/plain", "/other/**", "--count", "1", "--url", &server.url];
        let output = run(&[&channels[..], from].concat());
        let expected = "encke: /plain has no history: no stored messages come first\n";
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), expected), "{from:?}");
    }
    let output = run(&["subscribe", "/stored/a", "--last", "1", "--count", "1", "--url", &server.url]);
    assert_eq!(text(&output.stderr), "");
}
