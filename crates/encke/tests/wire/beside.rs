//! Encke beside other HTTP libraries: requests that are not its own, and requests that another server has read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use encke::Server;

use crate::common::{TestServer, settings, wait_until};

/// Counts itself down when it is dropped.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn behind(router: Router) -> TestServer {
    TestServer::of(Server::builder().settings(settings()).fallback(router))
}

#[test]
fn a_request_is_cancelled_when_its_client_leaves() {
    let running = Arc::new(AtomicUsize::new(0));
    let count = running.clone();
    let server = behind(Router::new().route(
        "/never",
        get(move || {
            count.fetch_add(1, Ordering::Relaxed);
            let running = Running(count.clone());
            async move {
                std::future::pending::<()>().await;
                drop(running);
            }
        }),
    ));
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    http.send("GET", "/never", &[], b"");
    wait_until("the handler runs", || running.load(Ordering::Relaxed) == 1);
    drop(http);
    wait_until("it is dropped", || running.load(Ordering::Relaxed) == 0);
    neighbour.lives(&server);
}

#[test]
fn bodies_of_any_size_pass_in_both_directions() {
    let server = behind(
        Router::new()
            .route("/echo", post(async |body: Bytes| body))
            .route("/panic", get(async || -> &'static str { panic!("as planned") })),
    );
    let mut http = server.http();
    for bytes in [0, 1, 70_000, 1_000_000] {
        let body = vec![b'x'; bytes];
        let echoed = http.request("POST", "/echo", &[], &body);
        assert_eq!((echoed.status, echoed.body.len()), (200, bytes));
    }
    assert_eq!(server.http().get("/panic").status, 500);
    assert_eq!(server.http().get("/echo").status, 405, "the router's own answer");
}
