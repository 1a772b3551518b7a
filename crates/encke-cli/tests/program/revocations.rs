//! Revoked tokens outlive the process: a kill, a restart, and a new process that takes over.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Folder, Server, TIMEOUT, text};

const KEY: &str = "managing-key-0123456789";

/// A folder with a configuration that checks tokens, and two tokens: one to revoke, and a valid one.
fn prepare() -> (Folder, [String; 2]) {
    let folder = Folder::new();
    folder.write("secret", &"s".repeat(32));
    folder.write(
        "encke.toml",
        &format!(
            "[auth]\nsecret_file = \"secret\"\n[[api_keys]]\nname = \"m\"\nkey = \"{KEY}\"\nscopes = [\"manage\"]\n"
        ),
    );
    let token = |id: &str| {
        let output = folder.encke(&["token", "make", "ann", "--secret-file", "secret", "--id", id]).output();
        text(&output.expect("runs").stdout).trim().to_string()
    };
    let tokens = [token("stolen"), token("valid")];
    (folder, tokens)
}

fn serve(folder: &Folder, args: &[&str]) -> Server {
    Server::spawn(folder.encke(&[&["serve", "--port", "0", "--shards", "2"], args].concat()))
}

/// Posts JSON on a new connection. Returns the status and the body, or None if nobody answers.
fn post(url: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let address = url.trim_start_matches("http://");
    let body = body.to_string();
    let mut tcp = TcpStream::connect(address).ok()?;
    tcp.set_read_timeout(Some(TIMEOUT)).expect("it can be set");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    tcp.write_all((head + &body).as_bytes()).ok()?;
    let mut response = String::new();
    tcp.read_to_string(&mut response).ok()?;
    let status = response.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(response.split_once("\r\n\r\n")?.1).ok()?))
}

fn revoke(server: &Server, id: &str) -> Value {
    let (status, answer) = post(&server.url, "/api/v1/revoke", &json!({ "token_id": id })).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The reply to a handshake with a token.
fn handshake(url: &str, token: &str) -> Option<Value> {
    let message = json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0", "ext": {"token": token},
        "supportedConnectionTypes": ["long-polling"]}]);
    Some(post(url, "/cometd", &message)?.1[0].clone())
}

fn assert_revoked(url: &str, [stolen, valid]: &[String; 2]) {
    assert_eq!(handshake(url, stolen).expect("a reply")["error"], "401:token_revoked:handshake_denied");
    assert_eq!(handshake(url, valid).expect("a reply")["successful"], true);
}

#[test]
fn a_revocation_that_was_confirmed_holds_after_a_kill_and_a_clean_restart() {
    let (folder, tokens) = prepare();
    let server = serve(&folder, &["--data", "data"]);
    assert_eq!(handshake(&server.url, &tokens[0]).expect("a reply")["successful"], true);
    assert_eq!(revoke(&server, "stolen"), json!({"sessions": 1, "durable": true}));
    server.signal(Signal::KILL);
    assert_eq!(server.end().0, None);
    let server = serve(&folder, &["--data", "data"]);
    assert_revoked(&server.url, &tokens);
    server.signal(Signal::TERM);
    assert_eq!(server.end().0, Some(0));
    assert_revoked(&serve(&folder, &["--data", "data"]).url, &tokens);
}

#[test]
fn a_new_process_that_takes_over_knows_the_revoked_tokens_also_without_a_data_directory() {
    for args in [&[][..], &["--data", "data"]] {
        let (folder, tokens) = prepare();
        let mut server = serve(&folder, args);
        assert_eq!(revoke(&server, "stolen")["durable"], !args.is_empty());
        server.signal(Signal::USR2);
        let log = server.log_until("another server takes over");
        let successor = log.rsplit_once("process=").and_then(|(_, number)| number.split_whitespace().next());
        let successor = successor.and_then(|number| number.parse().ok()).and_then(rustix::process::Pid::from_raw);
        let url = server.url.clone();
        server.log_until(": ended");
        assert_revoked(&url, &tokens);
        // It has the output of the first process, too.
        rustix::process::kill_process(successor.expect("its number"), Signal::KILL).expect("is there");
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn a_damaged_journal_of_revocations_refuses_the_start() {
    let (folder, _) = prepare();
    let server = serve(&folder, &["--data", "data"]);
    revoke(&server, "stolen");
    revoke(&server, "other");
    server.signal(Signal::KILL);
    server.end();
    let segment = folder.0.join("data/revoked/00000000000000000001.journal");
    let mut bytes = std::fs::read(&segment).expect("the journal");
    let at = bytes.windows(6).position(|bytes| bytes == b"stolen").expect("its id");
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let output = folder.encke(&["serve", "--port", "0", "--data", "data"]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("cannot read the revoked tokens"), "{error}");
}

#[test]
fn a_hangup_reads_the_file_of_keys_again_also_an_empty_one() {
    let folder = Folder::new();
    let run = |args: &[&str]| text(&folder.encke(args).output().expect("runs").stdout).trim().to_string();
    run(&["token", "keys", "EdDSA", "--out", "old"]);
    run(&["token", "keys", "EdDSA", "--out", "new"]);
    let [old, new] = ["old", "new"].map(|name| run(&["token", "make", "ann", "--key", &format!("{name}.private.pem")]));
    let copy = |name: &str| {
        let set = std::fs::read_to_string(folder.0.join(format!("{name}.jwks.json"))).expect("a set");
        folder.write("keys.json", &set);
    };
    copy("old");
    folder.write("encke.toml", "[auth]\njwks_file = \"keys.json\"\n");
    let mut server = serve(&folder, &[]);
    let opens = |server: &Server, token: &str| handshake(&server.url, token).expect("a reply")["successful"] == true;
    assert_eq!((opens(&server, &old), opens(&server, &new)), (true, false));
    copy("new");
    server.signal(Signal::HUP);
    server.log_until("settings reloaded");
    assert_eq!((opens(&server, &old), opens(&server, &new)), (false, true));
    folder.write("keys.json", "{\"keys\":[]}");
    server.signal(Signal::HUP);
    server.log_until("settings reloaded");
    assert_eq!((opens(&server, &old), opens(&server, &new)), (false, false));
}
