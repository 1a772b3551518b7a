//! Connections with TLS to a real server.

use std::fs;
use std::path::{Path, PathBuf};

use encke::{Running, Server, Settings};
use encke_client::{Client, ClientBuilder, Error, Transport};

/// A server that ends with the test, and the file of its certificate.
struct TlsServer {
    running: Option<Running>,
    folder: PathBuf,
}

impl TlsServer {
    fn start(name: &str) -> TlsServer {
        TlsServer::start_with(name, |_, _| ())
    }

    /// Its settings may change, with the file of its certificate.
    fn start_with(name: &str, change: impl FnOnce(&mut Settings, String)) -> TlsServer {
        let folder = std::env::temp_dir().join(format!("encke-client-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        fs::write(folder.join("cert"), made.cert.pem()).expect("a file");
        fs::write(folder.join("key"), made.signing_key.serialize_pem()).expect("a file");
        let path = |name| folder.join(name).display().to_string();
        let mut settings = Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            tls_cert: path("cert"),
            tls_key: path("key"),
            ..Settings::default()
        };
        change(&mut settings, path("cert"));
        TlsServer { running: Some(Server::builder().settings(settings).start().expect("starts")), folder }
    }

    fn cert(&self) -> PathBuf {
        self.folder.join("cert")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    fn url(&self, scheme: &str, host: &str) -> String {
        let port = self.running.as_ref().expect("runs").address().port();
        format!("{scheme}://{host}:{port}")
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle().drain();
            running.join();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn builder(transport: Transport) -> ClientBuilder {
    Client::builder().reconnect(false).transport(transport)
}

fn trusting(transport: Transport, file: &Path) -> ClientBuilder {
    builder(transport).ca_file(file)
}

#[tokio::test]
async fn large_and_many_messages_go_both_ways_over_tls() {
    let server = TlsServer::start("messages");
    for (transport, scheme) in [(Transport::WebSocket, "wss"), (Transport::LongPolling, "https")] {
        let client =
            trusting(transport, &server.cert()).connect(&server.url(scheme, "localhost")).await.expect("opens");
        let mut subscription = client.subscribe("/tls").await.expect("subscribes");
        let large = "x".repeat(700_000);
        client.publish("/tls", &large).await.expect("published");
        let message = subscription.next().await.expect("a message").expect("no gap");
        assert_eq!(message.data().as_str().len(), large.len() + 2);
        for number in 0..200 {
            client.publish("/tls", &number).await.expect("published");
        }
        for number in 0..200 {
            let message = subscription.next().await.expect("a message").expect("no gap");
            assert_eq!(message.data().as_str(), number.to_string());
        }
        client.disconnect().await.expect("ends");
    }
}

#[tokio::test]
async fn a_certificate_is_accepted_only_with_its_root_and_for_its_name() {
    let server = TlsServer::start("trust");
    let refused = |client: ClientBuilder, host: &'static str| {
        let url = server.url("wss", host);
        async move { client.connect(&url).await.expect_err("no trust").to_string() }
    };
    let plain = builder(Transport::WebSocket);
    let text = refused(plain, "localhost").await;
    assert!(text.starts_with("no TLS with localhost:") && text.contains("UnknownIssuer"), "{text}");
    let text = refused(trusting(Transport::WebSocket, &server.cert()), "127.0.0.1").await;
    assert!(text.contains("certificate not valid for name"), "{text}");
    let any = builder(Transport::Auto).accept_any_certificate(true);
    any.connect(&server.url("https", "127.0.0.1")).await.expect("accepted");
    let missing =
        trusting(Transport::Auto, Path::new("/no/such/file")).connect(&server.url("https", "localhost")).await;
    assert!(matches!(missing, Err(Error::TlsFile { .. })), "{missing:?}");
    let plain_http = builder(Transport::Auto).connect(&server.url("http", "127.0.0.1")).await.expect_err("TLS there");
    assert!(plain_http.to_string().contains("HTTP status 400"), "{plain_http}");
}

#[tokio::test]
async fn a_client_shows_its_certificate_to_a_server_that_requires_one() {
    let server = TlsServer::start_with("identity", |settings, cert| settings.tls_client_ca = cert);
    let url = server.url("https", "localhost");
    for transport in [Transport::WebSocket, Transport::LongPolling] {
        let nobody = trusting(transport, &server.cert()).connect(&url).await.expect_err("no certificate");
        assert!(nobody.to_string().contains("CertificateRequired"), "{nobody}");
        let client = trusting(transport, &server.cert()).tls_identity(server.cert(), server.key());
        let client = client.connect(&url).await.expect("opens");
        client.publish("/tls", &1).await.expect("published");
        client.disconnect().await.expect("ends");
    }
}

#[tokio::test]
async fn an_identity_whose_files_do_not_fit_is_refused_by_the_name_of_the_file() {
    let (server, other) = (TlsServer::start("files"), TlsServer::start("other-files"));
    let missing = PathBuf::from("/no/such/file");
    for (cert, key, wrong) in [
        (missing.clone(), server.key(), missing.clone()),
        (server.cert(), missing.clone(), missing),
        (server.cert(), other.key(), other.key()),
    ] {
        let client = trusting(Transport::Auto, &server.cert()).tls_identity(cert, key);
        let refused = client.connect(&server.url("https", "localhost")).await;
        assert!(matches!(&refused, Err(Error::TlsFile { path, .. }) if *path == wrong), "{refused:?}");
    }
}
