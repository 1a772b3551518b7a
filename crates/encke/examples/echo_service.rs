//! The smallest service: `/service/echo` answers with the data of the call, as CometD's.
//!
//! To run it: `cargo run -p encke --example echo_service -- 127.0.0.1:8080`

use std::error::Error;

use encke::{Builder, Raw, Server};

/// The server with the service.
pub fn server() -> Builder {
    Server::builder().service("/service/echo", async |data: Raw| data)
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("call /service/echo on http://{}/cometd", running.address());
    running.join();
    Ok(())
}
