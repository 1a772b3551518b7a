//! The keys of the HTTP API in the program: from the file, and revoked with a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

struct Server(Child, String);

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// The status of a request for the server's information with this key.
fn status(address: &str, key: &str) -> u16 {
    let mut tcp = TcpStream::connect(address).expect("connects");
    let head = format!("GET /api/v1/info HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes()).expect("writes");
    let mut response = String::new();
    tcp.read_to_string(&mut response).expect("an answer");
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn a_key_that_leaves_the_file_is_revoked_with_a_hangup() {
    let path = std::env::temp_dir().join(format!("encke-api-keys-{}.toml", std::process::id()));
    let file = |keys: &[&str]| {
        let key =
            |key: &&str| format!("[[api_keys]]\nname = \"{key}\"\nkey = \"{key}-0123456789\"\nscopes = [\"read\"]\n");
        let keys: String = keys.iter().map(key).collect();
        std::fs::write(&path, format!("listen = \"127.0.0.1:0\"\nshards = 1\n{keys}")).expect("written");
    };
    file(&["first-key", "second-key"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
    command.args(["serve", "--config"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let server = Server(child, line.trim().rsplit('/').next().expect("an address").to_owned());
    let statuses = || ["first-key-0123456789", "second-key-0123456789"].map(|key| status(&server.1, key));
    assert_eq!(statuses(), [200, 200]);
    file(&["second-key"]);
    kill_process(Pid::from_child(&server.0), Signal::HUP).expect("a signal");
    let started = Instant::now();
    while statuses()[0] != 401 {
        assert!(started.elapsed() < Duration::from_secs(20), "the key is still valid");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(statuses(), [401, 200]);
    let _gone = std::fs::remove_file(&path);
}
