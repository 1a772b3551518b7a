//! The connection of a request that another HTTP server has upgraded.

use std::error::Error;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

use super::{ByteStream, Detached};

/// The connection, and the bytes that were read from it. One that is no plain socket is copied to one.
///
/// # Errors
/// The system's error.
pub(crate) async fn detach_upgraded(upgraded: Upgraded) -> Result<(Detached, Vec<u8>), Box<dyn Error + Send + Sync>> {
    let upgraded = match ByteStream::of_upgraded(upgraded) {
        Ok((stream, rest)) => {
            stream.prepare(0)?;
            return Ok((stream.detach()?, rest));
        }
        Err(upgraded) => upgraded,
    };
    // The connection speaks TLS, or another hyper server has it.
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let mut near = tokio::net::UnixStream::from_std(near)?;
    tokio::spawn(async move {
        let ended = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut near).await;
        tracing::trace!(?ended, "a copied connection ended");
    });
    Ok((Detached::of_socket(far.into()), Vec::new()))
}
