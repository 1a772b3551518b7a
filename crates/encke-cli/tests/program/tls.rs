//! TLS of the program: its certificate, its clients, and what a reload finds.

use std::fs;

use rustix::process::Signal;

use crate::common::{Folder, Server, run, text};

#[test]
fn dev_tls_logs_the_fingerprint_of_its_certificate_and_insecure_clients_accept_it() {
    let mut server = Server::start(&["--dev-tls"]);
    let log = server.log_until("SHA-256 fingerprint");
    let fingerprint = log.split("fingerprint=").nth(1).expect("a fingerprint").trim_matches(['"', '\n']);
    assert_eq!(fingerprint.matches(':').count(), 31, "{log}");
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    for transport in ["websocket", "long-polling"] {
        let publish = ["publish", "/a", "1", "--url", &server.url, "--transport", transport];
        let refused = run(&publish);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("no TLS with 127.0.0.1"), "{}", text(&refused.stderr));
        assert_eq!(run(&[&publish[..], &["--insecure"]].concat()).status.code(), Some(0));
    }
}

#[test]
fn a_client_with_the_ca_accepts_a_certificate_and_a_reload_finds_the_next_one() {
    let folder = Folder::new();
    let (cert, key) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    let make = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        fs::write(&cert, made.cert.pem()).expect("a file");
        fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    };
    make();
    let path = |file: &std::path::Path| file.display().to_string();
    let (cert, key) = (path(&cert), path(&key));
    let mut server = Server::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let publish = || run(&["publish", "/a", "1", "--url", &url, "--ca", &cert]).status.code();
    assert_eq!(publish(), Some(0));
    make();
    server.signal(Signal::HUP);
    server.log_until("settings reloaded");
    assert_eq!(publish(), Some(0), "the client trusts only the new certificate");
    let missing = run(&["publish", "/a", "1", "--url", &url, "--ca", "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
}

#[test]
fn a_client_shows_the_certificate_of_its_options() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let write = |name, text: String| {
        let file = folder.0.join(name);
        fs::write(&file, text).expect("a file");
        file.display().to_string()
    };
    let (cert, key) = (write("cert.pem", made.cert.pem()), write("key.pem", made.signing_key.serialize_pem()));
    let server = Server::start(&["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &cert]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let publish = |options: &[&str]| run(&[&["publish", "/a", "1", "--url", &url, "--ca", &cert], options].concat());
    let refused = publish(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("CertificateRequired"), "{}", text(&refused.stderr));
    assert_eq!(publish(&["--cert", &cert, "--key", &key]).status.code(), Some(0));
    let without_key = publish(&["--cert", &cert]);
    assert_eq!(without_key.status.code(), Some(2), "{}", text(&without_key.stderr));
}
