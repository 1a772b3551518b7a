//! `encke token`, and `encke serve` with the section `[auth]`.

mod log;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use encke_client::{Client, Error, Extension, Outgoing};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use log::Log;

/// A folder for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("encke-token-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }

    /// Runs the program in this folder.
    fn run(&self, args: &[&str]) -> Output {
        self.encke(args).output().expect("runs")
    }

    /// Runs the program, which must succeed, and returns what it prints.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs the program, which must fail, and returns the exit code and the complaint.
    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?}");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    }

    fn encke(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_encke"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENCKE_")) {
            command.env_remove(name);
        }
        command.args(args).current_dir(&self.0);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn keys_are_made_tokens_are_made_and_checked() {
    for algorithm in ["EdDSA", "ES256", "RS256"] {
        let folder = Folder::new();
        let files = folder.ok(&["token", "keys", algorithm]);
        assert_eq!(files, "token.private.pem\ntoken.public.pem\ntoken.jwks.json\n");
        let make = ["token", "make", "alice", "--key", "token.private.pem", "--subscribe", "/news/**"];
        let token = folder.ok(&make);
        for key in [["--public-key", "token.public.pem"], ["--jwks", "token.jwks.json"]] {
            let checked = folder.ok(&[&["token", "check", token.trim()], key.as_slice()].concat());
            assert!(checked.contains("\"sub\":\"alice\"") && checked.contains("/news/**"), "{checked}");
            assert!(checked.contains(&format!("\"alg\":\"{algorithm}\"")), "{checked}");
            assert!(checked.contains("accepted: user alice, for 36"), "{checked}");
        }
        let (code, error) = folder.refused(&["token", "keys", algorithm]);
        assert!(code == Some(1) && error.contains("token.private.pem") && error.contains("exists"), "{error}");
    }
    let folder = Folder::new();
    assert_eq!(folder.ok(&["token", "keys", "HS256", "--out", "mine"]), "mine.secret\n");
    let token = folder.ok(&["token", "make", "bob", "--secret-file", "mine.secret", "--expires", "2d"]);
    assert!(folder.ok(&["token", "check", token.trim(), "--secret-file", "mine.secret"]).contains("user bob"));
}

#[test]
fn private_keys_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    folder.ok(&["token", "keys"]);
    let mode = std::fs::metadata(folder.0.join("token.private.pem")).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn check_says_exactly_why_a_token_is_refused() {
    let folder = Folder::new();
    folder.write("a", &"a".repeat(32));
    folder.write("b", &"b".repeat(32));
    let make = |args: &[&str]| {
        folder.ok(&[&["token", "make", "alice", "--secret-file", "a"], args].concat()).trim().to_string()
    };
    let check = |token: &str, args: &[&str]| folder.refused(&[&["token", "check", token], args].concat());
    for (token, args, expected) in [
        (make(&["--claim", "exp=5"]), ["--secret-file", "a"], "expired"),
        (make(&["--claim", "nbf=9999999999"]), ["--secret-file", "a"], "not valid before"),
        (make(&["--audience", "shop"]), ["--secret-file", "a"], "the audience (aud) is [\"shop\"]"),
        (make(&[]), ["--secret-file", "b"], "the signature does not fit"),
        (make(&["--claim", "exp=\"soon\""]), ["--secret-file", "a"], "the claim exp"),
        ("garbage".into(), ["--secret-file", "a"], "not a signed token"),
    ] {
        let (code, error) = check(&token, &args);
        assert!(code == Some(1) && error.contains(expected) && error.contains("a client gets token_"), "{error}");
    }
    let (code, error) = check(&make(&[]), &[]);
    assert!(code == Some(2) && error.contains("no section [auth]"), "{error}");
    let (code, error) = folder.refused(&["token", "make", "alice", "--secret-file", "missing"]);
    assert!(code == Some(1) && error.contains("missing: No such file"), "{error}");
    let (code, error) = folder.refused(&["token", "make", "alice"]);
    assert!(code == Some(2) && error.contains("--key"), "{error}");
    assert_eq!(folder.refused(&["token", "keys", "none"]).0, Some(1));
    assert!(folder.ok(&["token", "--help"]).contains("check"));
}

#[test]
fn a_token_is_read_from_standard_input_and_the_file_decides() {
    let folder = Folder::new();
    folder.write("a", &"a".repeat(32));
    folder.write("encke.toml", "[auth]\nsecret_file = \"a\"\nissuer = [\"login\"]\n");
    let check = |token: &str| {
        let mut command = folder.encke(&["token", "check"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("runs");
        child.stdin.take().expect("piped").write_all(token.as_bytes()).expect("written");
        child.wait_with_output().expect("ends")
    };
    let make = ["token", "make", "alice", "--secret-file", "a", "--issuer"];
    assert!(check(&folder.ok(&[make.as_slice(), &["login"]].concat())).status.success());
    let refused = check(&folder.ok(&[make.as_slice(), &["other"]].concat()));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the issuer (iss) is \"other\""));
}

#[test]
fn errors_in_the_section_name_line_key_and_the_right_value() {
    let folder = Folder::new();
    for (text, expected) in [
        ("timeout_ms = 5\n[auth]\nsecret = 5\n", "encke.toml:2: auth.secret: "),
        ("[auth]\nsecret_fil = \"a\"\n", "encke.toml:1: auth.secret_fil: unknown field"),
        ("[auth]\nsecret = \"short\"\n", "encke.toml:1: auth.secret = …: the secret has 5 bytes"),
        ("[auth]\npublic_key_files = [\"none.pem\"]\n", "auth.public_key_files = \"none.pem\": No such file"),
        ("[auth]\njwks_url = \"ldap://a\"\n", "auth.jwks_url = \"ldap://a\": a URL that begins with https://"),
        ("auth = 5\n", "encke.toml:1: auth: a table, [auth]"),
    ] {
        folder.write("encke.toml", text);
        let (code, error) = folder.refused(&["config", "check"]);
        assert!(code == Some(2) && error.contains(expected), "{error}");
    }
    folder.write("encke.toml", &format!("[auth]\nsecret = \"{}\"\n", "s".repeat(40)));
    folder.ok(&["config", "check"]);
    let shown = folder.ok(&["config", "show"]);
    assert!(shown.contains("[auth]") && !shown.contains("ssss"), "{shown}");
}

/// A running server that ends with the test.
struct Server {
    child: Child,
    log: Log,
    url: String,
}

impl Server {
    fn start(folder: &Folder) -> Server {
        let mut command = folder.encke(&["serve", "--port", "0", "--shards", "1"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let log = Log::of(child.stderr.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("encke listening on ").expect("the address").to_string();
        Server { child, log, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts a token into the `ext` of handshakes.
struct InExt(String);

impl Extension for InExt {
    fn outgoing(&mut self, message: &mut Outgoing<'_>) {
        if message.channel == "/meta/handshake" {
            message.ext.insert("auth".into(), json!({"token": self.0}));
        }
    }
}

async fn connect(server: &Server, token: &str) -> Result<Client, Error> {
    Client::builder().reconnect(false).extension(InExt(token.trim().into())).connect(&server.url).await
}

#[tokio::test]
async fn a_server_with_the_section_wants_tokens_and_reads_new_keys_on_sighup() {
    let folder = Folder::new();
    folder.ok(&["token", "keys", "EdDSA", "--out", "old"]);
    folder.ok(&["token", "keys", "EdDSA", "--out", "new"]);
    folder.write("encke.toml", "[auth]\npublic_key_files = [\"old.public.pem\"]\n");
    let old = folder.ok(&["token", "make", "alice", "--key", "old.private.pem"]);
    let new = folder.ok(&["token", "make", "alice", "--key", "new.private.pem"]);
    let mut server = Server::start(&folder);
    let session = connect(&server, &old).await.expect("accepted");
    let refused = connect(&server, &new).await.expect_err("an unknown key").to_string();
    assert!(refused.contains("401:token_signature_wrong:handshake_denied"), "{refused}");
    folder.write("encke.toml", "[auth]\npublic_key_files = [\"new.public.pem\"]\n");
    kill_process(Pid::from_child(&server.child), Signal::HUP).expect("is there");
    server.log.until("settings reloaded");
    connect(&server, &new).await.expect("accepted now");
    assert!(connect(&server, &old).await.is_err());
    // Sessions that are open stay so.
    session.subscribe("/news").await.expect("the session is open");
}
