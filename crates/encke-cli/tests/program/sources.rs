//! `[[source]]` in the configuration of the program: start, reload, stop, errors.

use rustix::process::{Pid, Signal, test_kill_process};

use crate::common::{Folder, Server, run, text};

/// The data of the next message on a channel.
fn next(server: &Server, channel: &str) -> String {
    let output = run(&["subscribe", "--url", &server.url, "--count", "1", channel]).stdout;
    let message: serde_json::Value = serde_json::from_slice(&output).expect("a message");
    message["data"].to_string()
}

/// A source that prints a text and the number of its process again and again.
fn ticker(name: &str, text: &str) -> String {
    format!(
        "[[source]]\nkind = \"command\"\nname = \"{name}\"\nchannel = \"/{name}\"\ncommand = [\"sh\", \"-c\", \
         \"while :; do echo '{{\\\"text\\\":\\\"{text}\\\",\\\"process\\\":'$$'}}'; sleep 0.02; done\"]\n"
    )
}

#[test]
fn sources_start_with_the_server_change_on_a_hangup_and_stop_with_it() {
    let folder = Folder::new();
    let write = |text: &str| folder.write("encke.toml", text);
    let path = write(&(ticker("stays", "one") + &ticker("goes", "two")));
    let mut server = Server::start(&["--config", &path]);
    let first = next(&server, "/stays");
    assert!(first.contains("one"), "{first}");
    let gone = process_of(&next(&server, "/goes"));
    write(&(ticker("stays", "three") + &ticker("comes", "four")));
    server.signal(Signal::HUP);
    let log = server.log_until("settings reloaded");
    for line in ["starts source=\"comes\"", "stops source=\"goes\"", "has other settings source=\"stays\""] {
        assert!(log.contains(line), "no {line} in {log}");
    }
    // A message of the old program may still be under way.
    while !next(&server, "/stays").contains("three") {}
    let comes = process_of(&next(&server, "/comes"));
    assert!(!is_running(gone));
    // An error changes nothing.
    write("[[source]]\nkind = \"mial\"\n");
    server.signal(Signal::HUP);
    let log = server.log_until("the old settings stay in force");
    assert!(log.contains(": source[0].kind = \"mial\": one of mail, quotes, command, file"), "{log}");
    assert_eq!(process_of(&next(&server, "/comes")), comes);
    server.signal(Signal::TERM);
    server.log_until("ended");
    assert_eq!(server.end().0, Some(0));
    assert!(!is_running(comes));
}

#[test]
fn the_configuration_of_a_source_is_checked_and_its_password_is_never_shown() {
    let mail = "[[source]]\nkind = \"mail\"\nname = \"home\"\nhost = \"mail.example.org\"\nuser = \"ann\"\n";
    let folder = Folder::new();
    let write = |text: &str| folder.write("encke.toml", text);
    let path = write(&format!("{mail}password = \"hunter2\"\n"));
    let shown = text(&run(&["config", "show", "--config", &path]).stdout);
    assert!(shown.contains("[[source]] home: mail publishes to /mail/home"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    for (wrong, expected) in [
        ("password = 7", "source[0].password: a secret is a text in quotes"),
        ("pasword = \"hunter2\"", "source[0].pasword: there is no such setting; did you mean password?"),
        ("", "source[0].password: one of password, password_file and password_env"),
        ("password = \"hunter2\"\nport = 70000", "source[0].port: a smaller number"),
        ("password = \"hunter2\"\nidle_ms = 3600000", "source[0].idle_ms = 3600000: from 100 to 1740000"),
    ] {
        write(&format!("{mail}{wrong}\n"));
        let checked = run(&["config", "check", &path]);
        let complaint = text(&checked.stderr);
        assert_eq!(checked.status.code(), Some(2), "{wrong}");
        assert!(complaint.contains(expected) && !complaint.contains("hunter2"), "{complaint}");
    }
}

fn process_of(data: &str) -> i32 {
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    data["process"].as_i64().and_then(|process| process.try_into().ok()).expect("a process")
}

fn is_running(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
}

#[test]
fn clients_cannot_publish_on_the_channel_of_a_source_unless_the_file_says_so() {
    let folder = Folder::new();
    let rule = |publishers: &str| format!("[[channels]]\npattern = \"/**\"\n{publishers}");
    for (rules, is_open) in
        [(String::new(), false), (rule("history_messages = 5\n"), false), (rule("publishers = \"anyone\"\n"), true)]
    {
        let path = folder.write("encke.toml", &(ticker("mine", "one") + &rules));
        let server = Server::start(&["--config", &path, "--shards", "1"]);
        let publish = |channel: &str| run(&["publish", "--url", &server.url, channel, "\"forged\""]);
        let forged = publish("/mine");
        assert_eq!(forged.status.success(), is_open, "{rules}");
        if !is_open {
            let error = String::from_utf8_lossy(&forged.stderr).into_owned();
            assert!(error.contains("403:denied_by_security_policy:publish_denied"), "{error}");
        }
        assert!(publish("/other").status.success());
        assert!(next(&server, "/mine").contains("one"), "the source itself publishes");
    }
}
