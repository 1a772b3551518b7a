//! Encke and axum in one program, both ways:
//!
//! - `behind`: Encke has the sockets. It serves Bayeux clients itself, and passes all other requests to an axum router.
//! - `inside`: axum has the sockets. Its router passes the requests for other paths than its routes to Encke: `/cometd`, `/metrics`, …
//!
//! To run it: `cargo run -p encke --example axum_beside -- behind 127.0.0.1:8080` (or `inside`)

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use encke::{Builder, Handle, Running, Server};

/// The hooks, the same both ways.
fn hooks() -> Builder {
    Server::builder().service("/service/hello", async || encke::Data("hello"))
}

/// An ordinary page.
fn pages() -> Router {
    Router::new().route("/", get(async || "an ordinary page"))
}

/// Publishes the body of a request.
async fn publish(State(handle): State<Handle>, Path(channel): Path<String>, body: String) -> StatusCode {
    match handle.publish(&format!("/{channel}"), &body) {
        Ok(()) => StatusCode::ACCEPTED,
        Err(_) => StatusCode::BAD_REQUEST,
    }
}

/// Encke in front of a router.
pub fn behind(listen: SocketAddr) -> Result<Running, encke::StartError> {
    hooks().listen(listen).fallback(pages()).start()
}

/// Encke inside a router. `listen` is the address of the server around it.
pub fn inside(listen: SocketAddr) -> Result<(Running, Router), encke::StartError> {
    let running = hooks().listen(listen).without_listener().start()?;
    let handle = running.handle();
    let encke = encke::all_paths(&handle).with_peer(|parts| {
        let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
        Some(peer.ip())
    });
    let router = Router::new().route("/publish/{*channel}", post(publish)).with_state(handle);
    Ok((running, router.merge(pages()).fallback_service(encke)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let is_inside = arguments.next().as_deref() == Some("inside");
    let listen = arguments.next().unwrap_or("127.0.0.1:8080".into()).parse()?;
    if !is_inside {
        behind(listen)?.join();
        return Ok(());
    }
    let (running, router) = inside(listen)?;
    let handle = running.handle();
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await
    })?;
    handle.drain();
    running.join();
    Ok(())
}
