//! Requests that are refused before their body is read.

use bytes::Bytes;

use super::{Client, request, run, settings, whole};
use crate::common::TestServer;

/// Its client gets the response, although nobody reads the body that still comes.
#[test]
fn a_request_that_is_refused_before_its_body_has_a_whole_response() {
    let server = TestServer::start(settings());
    run(async {
        let client = Client::open(&server).await;
        for _ in 0..50 {
            let mut sender = client.0.clone().ready().await.expect("a connection");
            let foreign = request("POST", "/cometd", &[("origin", "http://evil.example")]);
            let (response, mut stream) = sender.send_request(foreign, false).expect("a stream");
            let response = response.await.expect("a response");
            assert_eq!(response.status(), 403);
            assert_eq!(whole(response.into_body()).await, b"this origin is not allowed\n");
            stream.send_data(Bytes::from_static(b"[]"), true).expect("the stream is not reset");
        }
    });
}
