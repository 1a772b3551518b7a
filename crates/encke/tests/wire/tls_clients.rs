//! Certificates of clients: which are accepted, and the user that one names.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use encke::{
    CertificateName, Handshake, Identity, ListenerSettings, Refusal, Server, SessionView, Settings, TlsClient,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::common::tls::{connect, insecure};
use crate::common::{Folder, Http, Tcp, TestServer, Ws};
use crate::tls::settings;

/// An authority that signs certificates of clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    fn write(&self, folder: &Path, name: &str) -> String {
        let file = folder.join(name).display().to_string();
        fs::write(&file, self.0.pem()).expect("a file");
        file
    }

    /// A client whose certificate has this name, number and further changes.
    fn client(&self, user: &str, number: u64, change: impl FnOnce(&mut CertificateParams)) -> ClientConfig {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.serial_number = Some(SerialNumber::from(number));
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &*self.0).expect("a certificate");
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS12, &TLS13]);
        let builder = builder.expect("versions").dangerous();
        let verifier = encke_fetch::AnyCertificate::verifier(&provider);
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let builder = builder.with_custom_certificate_verifier(verifier);
        builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a key")
    }

    /// The list of revoked certificates.
    fn write_list(&self, file: &str, numbers: &[u64]) {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            next_update: rcgen::date_time_ymd(2124, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        fs::write(file, list.signed_by(&*self.0).expect("a list").pem().expect("text")).expect("a file");
    }
}

/// Settings with TLS, and with this authority of clients.
fn with_ca(ca: String) -> Settings {
    Settings { dev_tls: true, tls_client_ca: ca, ..settings() }
}

/// The status of a request of a client with this configuration, or the reason why there is none. TLS 1.3 gives it after the handshake.
fn status(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<u16, String> {
    let mut socket = connect(address, config.clone(), "localhost").map_err(|error| error.to_string())?;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    // The server may have ended it.
    let _end = socket.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let read = socket.read_to_end(&mut answer).map_err(|error| error.to_string());
    let status = String::from_utf8_lossy(&answer).get(9..12).and_then(|status| status.parse().ok());
    status.ok_or_else(|| read.err().unwrap_or_else(|| "no answer".into()))
}

fn tcp(server: &TestServer, config: &Arc<ClientConfig>) -> Tcp {
    Tcp::of(connect(server.address(), config.clone(), "localhost").expect("a handshake"))
}

/// The user of the session with this id.
fn user_of(server: &TestServer, id: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let list = runtime.block_on(server.handle.list_sessions(None, 100)).expect("the server runs");
    let session = list.items.iter().find(|session: &&SessionView| session.id.to_string() == id);
    session.expect("the session").user.to_string()
}

/// The users of sessions over a WebSocket and over long-polling.
fn users(server: &TestServer, config: &Arc<ClientConfig>) -> [String; 2] {
    let mut ws = Ws::upgrade(tcp(server, config), server.address(), &[]);
    ws.handshake();
    let mut http = Http::on(tcp(server, config), server.address());
    let id = http.handshake();
    [user_of(server, &ws.id), user_of(server, &id)]
}

#[test]
fn the_certificate_of_a_client_names_the_user_of_its_sessions() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let settings = with_ca(authority.write(folder.path(), "ca.pem"));
    let alice = Arc::new(authority.client("alice", 1, |params| {
        params.subject_alt_names = vec![SanType::URI("spiffe://example.org/a".try_into().expect("a URI"))];
    }));
    let server = TestServer::start(settings.clone());
    assert_eq!(users(&server, &alice), ["alice", "alice"]);
    // A certificate whose name cannot be that of a user is nobody's.
    let strange = Arc::new(authority.client("a\nb", 2, |_| {}));
    assert_eq!(users(&server, &strange), ["", ""]);
    let by_uri = Settings { tls_client_user: CertificateName::Uri, ..settings };
    assert_eq!(users(&TestServer::start(by_uri), &alice), ["spiffe://example.org/a", "spiffe://example.org/a"]);
}

#[test]
fn a_client_without_a_good_certificate_is_refused_with_the_alert_that_says_why() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let server = TestServer::start(with_ca(authority.write(folder.path(), "ca.pem")));
    let good = Arc::new(authority.client("alice", 1, |_| {}));
    assert_eq!(status(server.address(), &good), Ok(200));
    let expired = authority.client("alice", 2, |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    let strange = Authority::new("theirs").client("alice", 3, |_| {});
    // Names of the same authority, signed with another key.
    let forged = Authority::new("ours").client("alice", 4, |_| {});
    for (config, words) in [
        ((*insecure()).clone(), "CertificateRequired"),
        (expired, "CertificateExpired"),
        (strange, "UnknownCA"),
        (forged, "DecryptError"),
    ] {
        let error = status(server.address(), &Arc::new(config)).expect_err("refused");
        assert!(error.contains(words), "{error} for {words}");
    }
    assert_eq!(status(server.address(), &good), Ok(200));
}

#[test]
fn a_certificate_may_be_optional_and_one_that_is_there_must_be_good() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let ca = authority.write(folder.path(), "ca.pem");
    let server = TestServer::start(Settings { tls_client: TlsClient::Optional, ..with_ca(ca) });
    assert_eq!(users(&server, &insecure()), ["", ""]);
    assert_eq!(users(&server, &Arc::new(authority.client("bob", 1, |_| {}))), ["bob", "bob"]);
    let strange = Arc::new(Authority::new("theirs").client("bob", 1, |_| {}));
    assert!(status(server.address(), &strange).is_err());
}

#[test]
fn a_revoked_certificate_is_refused_after_the_list_has_changed() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let list = folder.path().join("list.pem").display().to_string();
    authority.write_list(&list, &[7]);
    let settings = Settings { tls_client_crl: list.clone(), ..with_ca(authority.write(folder.path(), "ca.pem")) };
    let server = TestServer::start(settings.clone());
    let [alice, bob] =
        [("alice", 7), ("bob", 8)].map(|(user, number)| Arc::new(authority.client(user, number, |_| {})));
    assert!(status(server.address(), &alice).expect_err("revoked").contains("CertificateRevoked"));
    assert_eq!(status(server.address(), &bob), Ok(200));
    authority.write_list(&list, &[7, 8]);
    assert_eq!(server.handle.reload(settings.clone()).expect("good settings"), [""; 0]);
    assert!(status(server.address(), &bob).is_err(), "no ticket lets it by");
    // A list that cannot be read changes nothing.
    fs::write(&list, "junk").expect("a file");
    assert!(server.handle.reload(settings).is_err());
    assert!(status(server.address(), &bob).is_err());
}

#[test]
fn a_ticket_of_an_address_without_certificates_is_none_where_they_are_required() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let open = ListenerSettings {
        address: "127.0.0.1:0".into(),
        tls: true,
        tls_client: Some(TlsClient::None),
        ..ListenerSettings::default()
    };
    let settings = Settings { listeners: vec![open], ..with_ca(authority.write(folder.path(), "ca.pem")) };
    let running = Server::builder().settings(settings).start().expect("starts");
    let socket = running.further_listeners().expect("sockets").remove(0);
    let open = std::net::TcpListener::from(socket).local_addr().expect("an address");
    for version in [&TLS12, &TLS13] {
        let mut config = crate::common::tls::insecure_config(&[version]);
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(config);
        for _ in 0..2 {
            let mut http = Http::on(Tcp::of(connect(open, config.clone(), "localhost").expect("open")), open);
            assert_eq!(http.get("/healthz").status, 200);
        }
        let error = status(running.address(), &config).expect_err("a ticket in place of a certificate");
        assert!(error.contains("CertificateRequired"), "{error}");
    }
    running.handle().drain();
    running.join();
}

#[test]
fn an_authenticator_gets_the_user_of_the_certificate_and_decides() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let settings = with_ca(authority.write(folder.path(), "ca.pem"));
    let authenticate = async |handshake: Handshake| match handshake.certificate() {
        Some("mallory") => Err(Refusal::new(403, "unwanted")),
        user => Ok(Identity::of_user(&format!("cert-{}", user.unwrap_or_default()))),
    };
    let server = TestServer::of(Server::builder().settings(settings).authenticate(authenticate));
    let alice = Arc::new(authority.client("alice", 1, |_| {}));
    assert_eq!(users(&server, &alice), ["cert-alice", "cert-alice"]);
    let mallory = Arc::new(authority.client("mallory", 2, |_| {}));
    let mut http = Http::on(tcp(&server, &mallory), server.address());
    let reply = http.post(&json!([{"channel": "/meta/handshake", "version": "1.0"}]));
    assert_eq!(reply.error(), "403:unwanted:handshake_denied");
}

#[test]
fn settings_of_client_certificates_that_do_not_fit_are_refused_by_name() {
    let (folder, authority) = (Folder::new(), Authority::new("ours"));
    let ca = authority.write(folder.path(), "ca.pem");
    let junk = folder.path().join("junk").display().to_string();
    fs::write(&junk, "junk").expect("a file");
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = with_ca(ca.clone());
        change(&mut settings);
        let error = Server::builder().settings(settings).start().expect_err("refused").to_string();
        error.split(" = ").next().expect("a name").to_owned()
    };
    assert_eq!(refused(&|settings| settings.tls_client_ca = junk.clone()), "tls_client_ca");
    assert_eq!(refused(&|settings| settings.tls_client_ca = "/no/file".into()), "tls_client_ca");
    assert_eq!(refused(&|settings| settings.dev_tls = false), "tls_client_ca");
    assert_eq!(refused(&|settings| settings.tls_client_crl = junk.clone()), "tls_client_crl");
    assert_eq!(refused(&|settings| settings.tls_client_crl = ca.clone()), "tls_client_crl");
    let alone = Settings { tls_client_crl: junk.clone(), tls_client_ca: String::new(), ..with_ca(ca.clone()) };
    assert_eq!(refused(&|settings| *settings = alone.clone()), "tls_client_crl");
    let plain = ListenerSettings {
        address: "127.0.0.1:0".into(),
        tls_client: Some(TlsClient::Required),
        ..ListenerSettings::default()
    };
    assert_eq!(refused(&|settings| settings.listeners = vec![plain.clone()]), "listeners[0].tls_client");
}
