//! `encke token`, and `encke serve` with the section `[auth]`.

use std::io::Write;
use std::process::{Output, Stdio};

use encke_client::{Client, Error, Extension, Outgoing};
use rustix::process::Signal;
use serde_json::json;

use crate::common::{Folder, Server, text};

impl Folder {
    /// Runs the program in this folder.
    fn run(&self, args: &[&str]) -> Output {
        self.encke(args).output().expect("runs")
    }

    /// Runs the program, which must succeed, and returns what it prints.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        text(&output.stdout)
    }

    /// Runs the program, which must fail, and returns the exit code and the complaint.
    fn refused(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?}");
        (output.status.code(), text(&output.stderr))
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
fn a_token_that_no_server_would_take_as_it_was_meant_is_not_made() {
    let folder = Folder::new();
    folder.write("short", &"a".repeat(31));
    folder.write("good", &"a".repeat(32));
    let make = ["token", "make", "alice", "--secret-file", "good"];
    folder.ok(&make);
    for (args, expected) in [
        (&["--secret-file", "short"][..], "short: the secret has 31 bytes; HS256 needs at least 32"),
        (&["--secret-file", "good", "--algorithm", "HS512"], "HS512 needs at least 64"),
        (&["--secret-file", "good", "--subscribe", "news"], "a channel such as /news/today"),
        (&["--secret-file", "good", "--publish", "/news/"], "a channel such as /news/today"),
        (&["--secret-file", "good", "--claim", "publish=[\"news\"]"], "a channel such as /news/today"),
        (&["--secret-file", "good", "--claim", "limits={\"message_per_s_max\":1}"], "message_per_s_max"),
        (&["--secret-file", "good", "--claim", "session_terms={\"timeout_ms\":0}"], "timeout_ms = 0"),
        (&["--secret-file", "good", "--expires", "90"], "such as 90s or 15m"),
    ] {
        let (_, error) = folder.refused(&[&["token", "make", "alice"], args].concat());
        assert!(error.contains(expected), "{args:?}: {error}");
    }
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
        ("timeout_ms = 5\n[auth]\nsecret = 5\n", "encke.toml:3: auth.secret: "),
        (
            "[auth]\nsecret_fil = \"a\"\n",
            "encke.toml:2: auth.secret_fil: there is no such setting; did you mean secret_file?",
        ),
        ("[auth]\nsecret = \"short\"\n", "encke.toml:2: auth.secret = ***: the secret has 5 bytes"),
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
    let mut server = Server::spawn(folder.encke(&["serve", "--port", "0", "--shards", "1"]));
    let session = connect(&server, &old).await.expect("accepted");
    let refused = connect(&server, &new).await.expect_err("an unknown key").to_string();
    assert!(refused.contains("401:token_signature_wrong:handshake_denied"), "{refused}");
    folder.write("encke.toml", "[auth]\npublic_key_files = [\"new.public.pem\"]\n");
    server.signal(Signal::HUP);
    server.log_until("settings reloaded");
    connect(&server, &new).await.expect("accepted now");
    assert!(connect(&server, &old).await.is_err());
    // Sessions that are open stay so.
    session.subscribe("/news").await.expect("the session is open");
}
