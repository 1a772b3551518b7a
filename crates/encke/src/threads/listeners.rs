//! The listening sockets of a server: that of `listen`, and those of `listeners`.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use encke_core::{ListenerSettings, Settings};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::byte_stream::Speaks;
use crate::error::StartError;

/// A socket that listens, and the protocols of its connections.
pub(crate) type Bound = (OwnedFd, Speaks);

/// Binds the sockets of the settings, the one of `listen` first, unless there are to be none. A socket in `given` that has the address of a setting is used instead of
/// a new one.
///
/// # Errors
/// The kernel's error.
pub(crate) fn open(
    settings: &Settings,
    without: bool,
    first: Option<TcpListener>,
    mut given: Vec<OwnedFd>,
) -> Result<Arc<[Bound]>, StartError> {
    if without {
        return Ok(Arc::default());
    }
    let failed = |address: String| |source| StartError::Listen { address, source };
    let of_setting = || bind(&SockAddr::from(settings.listen));
    let listener = first.map_or_else(of_setting, |listener| Ok(listener.into())).and_then(listen);
    let tls = settings.has_tls().then_some(settings.tls_client);
    let speaks = Speaks { proxy_protocol: false, tls };
    let mut bound = vec![(listener.map_err(failed(settings.listen.to_string()))?, speaks)];
    for setting in &settings.listeners {
        let socket = address_of(setting).and_then(|address| {
            let is_it = |socket: &OwnedFd| SockRef::from(socket).local_addr().is_ok_and(|local| local == address);
            let inherited = given.iter().position(is_it).map(|at| given.swap_remove(at).into());
            inherited.map_or_else(|| bind(&address), Ok).and_then(listen)
        });
        let tls = setting.tls.then_some(setting.tls_client.unwrap_or(settings.tls_client));
        let speaks = Speaks { proxy_protocol: setting.proxy_protocol, tls };
        bound.push((socket.map_err(failed(setting.address.clone()))?, speaks));
    }
    Ok(bound.into())
}

/// The address of the first one.
pub(crate) fn address(bound: &[Bound]) -> Option<SocketAddr> {
    SockRef::from(&bound.first()?.0).local_addr().ok()?.as_socket()
}

fn address_of(setting: &ListenerSettings) -> io::Result<SockAddr> {
    match setting.unix_path() {
        Some(path) => SockAddr::unix(path),
        None => setting.socket_address().map(SockAddr::from).ok_or_else(|| io::ErrorKind::InvalidInput.into()),
    }
}

fn bind(address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::from(i32::from(address.family())), Type::STREAM, None)?;
    match address.as_pathname() {
        // The file of a server that has ended stays, and nobody answers there.
        Some(path)
            if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) =>
        {
            std::fs::remove_file(path)?;
        }
        Some(_) => {}
        None => socket.set_reuse_address(true)?,
    }
    socket.bind(address)?;
    Ok(socket)
}

/// Makes a bound socket listen without blocking. Any process may have bound it.
fn listen(socket: Socket) -> io::Result<OwnedFd> {
    socket.set_nonblocking(true)?;
    // `listen` is also valid on a socket that already listens: it changes the length of its backlog.
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections that wait to be accepted, where the system allows as many (`net.core.somaxconn`).
const BACKLOG: i32 = 65_535;
