//! Clients that break the rules of TLS, or let it work for nothing. The witnesses speak TLS.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, done, elsewhere, server_name, tls_config};

/// Handshakes that stop, that come byte by byte, and that are completed for nothing.
///
/// Memory: some 10 KiB for each handshake that is open.
pub const HANDSHAKES: Scenario = Scenario {
    name: "tls-handshakes",
    title: "300 handshakes of TLS that stop or come byte by byte, beside others that are completed and left, again and again",
    is_over_tls: true,
    lasts_ms: 2_500,
    grows_mib_max: 24,
    attack: |arena| Box::pin(handshakes(arena)),
    ..PLAIN
};

/// Records that let the server work, or that are none.
///
/// Memory: a connection at a time for each attacker.
pub const RECORDS: Scenario = Scenario {
    name: "tls-records",
    title: "floods of key updates, of alerts, of junk in place of records and of handshakes, each until the server ends it",
    is_over_tls: true,
    lasts_ms: 2_000,
    grows_mib_max: 16,
    attack: |arena| Box::pin(records(arena)),
    ..PLAIN
};

async fn handshakes(arena: Arena) -> io::Result<Outcome> {
    let halves = elsewhere(arena, move || half_open(arena));
    let completed = elsewhere(arena, move || async move {
        let config = config()?;
        Ok(arena.again(1, async || tls(arena, &config).await.map(drop)).await)
    });
    let (halves, completed) = (done(halves).await?, done(completed).await?);
    Ok(Outcome::did(completed, format!("{halves} handshakes that stop, {completed} completed")))
}

/// Opens connections that send the beginning of a handshake. Half of them go on by a byte at a time.
async fn half_open(arena: Arena) -> io::Result<usize> {
    let hello = hello()?;
    let mut connections = Vec::new();
    for nth in 0..HALF_OPEN {
        let mut tcp = connect(arena).await?;
        // After a whole hello the server has answered, and waits.
        let sent = if nth % 4 == 0 { hello.len() } else { hello.len() / 2 };
        tcp.write_all(&hello[..sent]).await?;
        connections.push((tcp, sent));
    }
    while !arena.is_over() {
        for (tcp, sent) in connections.iter_mut().step_by(2) {
            if *sent + 1 < hello.len() {
                // The server may have ended it.
                let _ = tcp.write_all(&hello[*sent..=*sent]).await;
                *sent += 1;
            }
        }
        tokio::time::sleep(BYTE_EVERY).await;
    }
    Ok(connections.len())
}

async fn records(arena: Arena) -> io::Result<Outcome> {
    let updates = elsewhere(arena, move || async move {
        let config = config()?;
        Ok(arena.again(1, async || key_updates(tls(arena, &config).await?).await).await)
    });
    let alerts = elsewhere(arena, move || async move {
        Ok(arena.again(1, async || flood(connect(arena).await?, &ALERT).await).await)
    });
    let junk = elsewhere(arena, move || async move {
        let config = config()?;
        let after_and_before = async || {
            flood(tls(arena, &config).await?.into_inner().0, &JUNK).await?;
            flood(connect(arena).await?, &JUNK).await
        };
        Ok(arena.again(2, after_and_before).await)
    });
    let (updates, alerts, junk) = (done(updates).await?, done(alerts).await?, done(junk).await?);
    let did = format!("{updates} floods of key updates, {alerts} of alerts, {junk} of junk");
    Ok(Outcome::did(updates.min(alerts).min(junk), did))
}

/// Sends key updates, each of which asks for one of the server, until the server ends the connection.
async fn key_updates(mut tls: TlsStream<TcpStream>) -> io::Result<()> {
    for _ in 0..FLOOD {
        tls.get_mut().1.refresh_traffic_keys().map_err(io::Error::other)?;
        if tls.flush().await.is_err() {
            return Ok(());
        }
    }
    ends(tls.into_inner().0).await
}

/// Sends the same bytes in place of records until the server ends the connection.
async fn flood(mut tcp: TcpStream, bytes: &[u8]) -> io::Result<()> {
    // The server may end it early.
    let _ = tcp.write_all(&bytes.repeat(FLOOD)).await;
    ends(tcp).await
}

/// Waits until the server has ended a connection.
async fn ends(mut tcp: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 4096];
    while tcp.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    Ok(())
}

/// A connection whose handshake is complete.
async fn tls(arena: Arena, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(config.clone()).connect(server_name(), connect(arena).await?).await
}

/// A client whose handshakes are full ones.
fn config() -> io::Result<Arc<ClientConfig>> {
    let mut config = tls_config()?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The first bytes of a client.
fn hello() -> io::Result<Vec<u8>> {
    let mut tls = ClientConnection::new(config()?, server_name()).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes)?;
    Ok(bytes)
}

/// A connection from another address than that of the witnesses.
async fn connect(arena: Arena) -> io::Result<TcpStream> {
    arena.connect_as(Peer { address: Some(IpAddr::from([127, 0, 0, 9])), receive_bytes: None }).await
}

const HALF_OPEN: usize = 300;
const BYTE_EVERY: Duration = Duration::from_millis(20);
/// A warning (RFC 5246 §7.2), as a record without encryption.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 1, 90];
/// A record of data that nobody has encrypted.
const JUNK: [u8; 37] = {
    let mut record = [0xA5; 37];
    (record[0], record[1], record[2], record[3], record[4]) = (23, 3, 3, 0, 32);
    record
};
const FLOOD: usize = 1_000;
