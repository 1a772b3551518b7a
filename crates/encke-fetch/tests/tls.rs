//! TLS: HTTP/2 where the server offers it, and only certificates that are trusted.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use encke_fetch::rustls::ServerConfig;
use encke_fetch::rustls::pki_types::PrivateKeyDer;
use encke_fetch::{FetchError, Fetcher, Limits};
use http::{Request, Response, Version};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A TLS server for `localhost` that speaks HTTP/2 and answers `hello`: its URL, and the file of its certificate.
async fn server(name: &str) -> (String, PathBuf) {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let file = std::env::temp_dir().join(format!("encke-fetch-{}-{name}.pem", std::process::id()));
    std::fs::write(&file, pair.cert.pem()).expect("a file");
    let provider = Arc::new(encke_fetch::rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).expect("a key");
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("versions").with_no_client_auth();
    let mut config = builder.with_single_cert(vec![pair.cert.der().clone()], key).expect("a configuration");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let hello = |_: Request<hyper::body::Incoming>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
            };
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(hello)));
        }
    });
    (format!("https://localhost:{port}/"), file)
}

#[tokio::test]
async fn a_certificate_of_the_extra_file_is_trusted_and_http_2_is_spoken() {
    let (url, file) = server("trusted").await;
    let fetcher = Fetcher::new(Limits::default(), Some(&file)).expect("a client");
    let response = fetcher.get(&url).await.expect("a response");
    assert_eq!((response.version(), response.body().as_ref()), (Version::HTTP_2, b"hello".as_slice()));
    std::fs::remove_file(file).expect("the file");
}

#[tokio::test]
async fn an_unknown_certificate_is_refused() {
    let (url, file) = server("unknown").await;
    let fetcher = Fetcher::new(Limits::default(), None).expect("a client");
    let error = fetcher.get(&url).await.expect_err("not trusted");
    assert!(matches!(&error, FetchError::Connect(text) if text.contains("certificate")), "{error}");
    std::fs::remove_file(file).expect("the file");
}
