//! The program shows no secret, nothing from outside forges its logs, and strangers find no demos.

use std::io::{Read, Write};
use std::net::TcpStream;

use encke_client::Client;
use serde_json::{Value, json};

use crate::common::{Folder, Server, TIMEOUT, text};

/// Posts messages. Returns the replies.
fn post(server: &Server, messages: &Value) -> Value {
    let (address, body) = (server.url.trim_start_matches("http://"), messages.to_string());
    let mut tcp = TcpStream::connect(address).expect("connects");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("it can be set");
    let length = body.len();
    let head =
        format!("POST /cometd HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    tcp.write_all((head + &body).as_bytes()).expect("writes");
    let mut response = String::new();
    tcp.read_to_string(&mut response).expect("an answer");
    serde_json::from_str(response.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
}

#[test]
fn a_listing_of_the_configuration_and_its_errors_show_no_secret() {
    let folder = Folder::new();
    let secret = "hunter2hunter2";
    let file = format!(
        "[auth]\nsecret = \"{secret}-{secret}-{secret}\"\njwks_url = \"https://u:{secret}@keys.example/set?key={secret}\"\n\
         [proxy]\nbackend = \"http://127.0.0.1:1\"\n\
         [[api_keys]]\nname = \"k\"\nkey = \"{secret}{secret}\"\nscopes = [\"read\"]\n\
         [[webhooks]]\nurl = \"http://127.0.0.1:1/?token={secret}\"\nevents = [\"opened\"]\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
         [[source]]\nkind = \"command\"\ncommand = [\"true\"]\nenvironment = {{ PASSWORD = \"{secret}\" }}\n\
         [[source]]\nkind = \"quotes\"\nurl = \"http://127.0.0.1:1/?key={secret}\"\n"
    );
    folder.write("encke.toml", &file);
    let shown = folder.encke(&["config", "show"]).output().expect("runs");
    let shown = text(&shown.stdout) + &text(&shown.stderr);
    assert!(shown.contains("http://127.0.0.1:1/?***"), "{shown}");
    assert!(!shown.contains(secret) && !shown.contains("whsec_M"), "{shown}");
    // Each is wrong in another way, and the complaint about it names the setting.
    for (wrong, name) in [
        (file.replace("https://u:", "ldap://u:"), "jwks_url"),
        (file.replace("url = \"http://127.0.0.1:1/?token", "url = \"ftp://127.0.0.1:1/?token"), "webhooks[0].url"),
        (file.replace("url = \"http://127.0.0.1:1/?key", "url = \"ftp://127.0.0.1:1/?key"), "url"),
        (file.replace("http://127.0.0.1:1\"", &format!("http://u:{secret}@127.0.0.1:1\"")), "proxy.backend"),
        (file.replace(&format!("key = \"{secret}{secret}\""), "key = 12345678901234567"), "api_keys"),
        (file.replace(&format!("PASSWORD = \"{secret}\""), "PASSWORD = 12345678901234567"), "secret is a text"),
    ] {
        folder.write("encke.toml", &wrong);
        let output = folder.encke(&["config", "check"]).output().expect("runs");
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(name), "{name}: {error}");
        assert!(!error.contains(secret) && !error.contains("1234567"), "{error}");
    }
}

#[test]
fn a_name_in_a_token_cannot_forge_a_line_of_the_log() {
    let folder = Folder::new();
    folder.write("secret", &"s".repeat(32));
    folder.write("encke.toml", "log = \"debug\"\n[auth]\nsecret_file = \"secret\"\n");
    let mut server = Server::spawn(folder.encke(&["serve", "--port", "0", "--shards", "1"]));
    // {"alg":"X\nINFO encke: forged\u001b[2J"}, claims, and a signature.
    let token = "eyJhbGciOiJYXG5JTkZPIGVuY2tlOiBmb3JnZWRcdTAwMWJbMkoifQ.e30.AAAA";
    let handshake = json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0", "ext": {"token": token},
        "supportedConnectionTypes": ["long-polling"]}]);
    assert_eq!(post(&server, &handshake)[0]["error"], "401:token_algorithm_refused:handshake_denied");
    let log = server.log_until("forged");
    let line = log.lines().last().expect("a line");
    assert!(line.contains(r"token refused: no key for the algorithm X\nINFO encke: forged\u{1b}[2J"), "{line:?}");
    assert!(!log.contains('\x1b'), "{line:?}");
}

/// True if the service of a demo answers.
async fn has_demo(server: &Server) -> bool {
    let client = Client::connect(&server.url).await.expect("a session");
    match client.request("/service/demo/limits", &json!({})).await {
        Ok(answer) => answer.json::<Value>().expect("JSON")["message_bytes_max"].is_number(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn the_demos_are_off_where_strangers_would_find_them_unless_asked_for() {
    let folder = Folder::new();
    folder.write("secret", &"s".repeat(32));
    folder.write("nobody.toml", "[auth]\nsecret_file = \"secret\"\nanonymous = true\n");
    folder.write("local.toml", "[[listeners]]\naddress = \"unix:encke.sock\"\n");
    folder.write("further.toml", "[[listeners]]\naddress = \"0.0.0.0:0\"\n");
    for (args, is_on) in [
        (&["serve", "--port", "0"][..], true),
        (&["serve", "--port", "0", "--config", "local.toml"], true),
        (&["serve", "--port", "0", "--config", "further.toml"], false),
        (&["serve", "--port", "0", "--config", "further.toml", "--demo"], true),
        (&["serve", "--listen", "0.0.0.0:0"], false),
        (&["serve", "--listen", "0.0.0.0:0", "--demo"], true),
        (&["serve", "--port", "0", "--config", "nobody.toml"], false),
        (&["serve", "--port", "0", "--config", "nobody.toml", "--demo"], true),
        (&["demo", "--listen", "0.0.0.0:0"], true),
    ] {
        let mut server = Server::spawn(folder.encke(&[args, &["--shards", "1"]].concat()));
        server.url = server.url.replace("0.0.0.0", "127.0.0.1");
        assert_eq!(has_demo(&server).await, is_on, "{args:?}");
        if !is_on {
            server.log_until("the services, rules and histories of the demo pages are off");
        }
    }
    let shown = text(&folder.encke(&["config", "show", "--config", "nobody.toml"]).output().expect("runs").stdout);
    assert!(shown.contains("demo = false  # off with [auth], unless demo = true"), "{shown}");
}
