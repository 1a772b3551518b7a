//! One end of a WebSocket or a stream that is carried between two nodes: the connection of the client on its node, or one of a pair of sockets
//! on the node of the session.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use encke_cluster::RelayId;
use encke_core::StreamOpening;

/// The ways to a relay. Dropping it ends the connection.
pub(crate) struct ToRelay {
    /// Each lets one piece be read.
    turns: UnboundedSender<()>,
    pieces: UnboundedSender<(Bytes, String)>,
}

/// Something that a relay has done.
pub(crate) enum FromRelay {
    /// It has read these bytes.
    Read(RelayId, Vec<u8>),
    /// It has written the bytes whose answer has this subject.
    Written(String),
    /// A shard has its connection, or refuses it for this reason. The answer has this subject.
    Opened(RelayId, String, Option<StreamOpening>),
    /// Its connection has ended.
    Ended(RelayId),
}

impl ToRelay {
    /// Lets the next piece be read.
    pub(crate) fn read(&self) {
        // One that has ended says so itself.
        _ = self.turns.send(());
    }

    /// Writes a piece.
    pub(crate) fn write(&self, bytes: Bytes, reply_to: String) {
        _ = self.pieces.send((bytes, reply_to));
    }
}

/// Starts a relay, which ends if there is no connection. `first` was read already. What comes with the connection lives as long as it.
pub(crate) fn start<S: AsyncRead + AsyncWrite + Send + 'static, H: Send + 'static>(
    relay: RelayId,
    connection: impl Future<Output = Option<(S, H)>> + Send + 'static,
    first: Vec<u8>,
    done: UnboundedSender<FromRelay>,
) -> ToRelay {
    let (turns, reads) = unbounded_channel();
    let (pieces, writes) = unbounded_channel();
    tokio::spawn(async move {
        if let Some((stream, _held)) = connection.await {
            let (reader, writer) = tokio::io::split(stream);
            tokio::select! {
                () = read(relay, reader, first, reads, &done) => {}
                () = write(writer, writes, &done) => {}
            }
        }
        // The thread has ended with the server.
        _ = done.send(FromRelay::Ended(relay));
    });
    ToRelay { turns, pieces }
}

/// Reads a piece at each turn, until the connection or the turns end. While nothing comes it reports empty pieces now and then: the other end
/// answers if it is still there, which a client that only reads cannot find out.
async fn read(
    relay: RelayId,
    mut reader: impl AsyncRead + Unpin,
    mut first: Vec<u8>,
    mut turns: UnboundedReceiver<()>,
    done: &UnboundedSender<FromRelay>,
) {
    while turns.recv().await.is_some() {
        if first.is_empty() {
            first.resize(PIECE_BYTES, 0);
            match timeout(EMPTY_PIECE_EVERY, reader.read(&mut first)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(count)) => first.truncate(count),
                Err(_) => first.clear(),
            }
        }
        if done.send(FromRelay::Read(relay, std::mem::take(&mut first))).is_err() {
            return;
        }
    }
}

/// Writes pieces, until there are no more, or the connection ends.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut pieces: UnboundedReceiver<(Bytes, String)>,
    done: &UnboundedSender<FromRelay>,
) {
    while let Some((bytes, reply_to)) = pieces.recv().await {
        let written = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        if written.await.is_err() || done.send(FromRelay::Written(reply_to)).is_err() {
            return;
        }
    }
    _ = writer.shutdown().await;
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 * 1024;
/// The time between two empty pieces.
const EMPTY_PIECE_EVERY: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_idle_relay_reads_empty_pieces_and_one_without_a_connection_ends() {
        let (near, _far) = tokio::io::duplex(1024);
        let (done, mut events) = unbounded_channel();
        let relay = RelayId::new(encke_core::NodeTag::parse("abcd").expect("a tag"), 1);
        let to_relay = start(relay, ready(Some((near, ()))), Vec::new(), done.clone());
        for _ in 0..2 {
            to_relay.read();
            assert!(matches!(events.recv().await, Some(FromRelay::Read(_, bytes)) if bytes.is_empty()));
        }
        let _to_relay = start(relay, ready(None::<(tokio::io::DuplexStream, ())>), Vec::new(), done);
        assert!(matches!(events.recv().await, Some(FromRelay::Ended(_))));
    }

    #[tokio::test]
    async fn one_piece_is_read_at_each_turn_and_the_end_is_reported() {
        let (near, mut far) = tokio::io::duplex(1024);
        let (done, mut events) = unbounded_channel();
        let node = encke_core::NodeTag::parse("abcd").expect("a tag");
        let relay = RelayId::new(node, 1);
        let to_relay = start(relay, ready(Some((near, ()))), b"first".to_vec(), done);
        far.write_all(b"second").await.expect("it is open");
        for expected in ["first", "second"] {
            assert!(events.is_empty());
            to_relay.read();
            let Some(FromRelay::Read(_, bytes)) = events.recv().await else { panic!("bytes") };
            assert_eq!(bytes, expected.as_bytes());
        }
        to_relay.write(Bytes::from_static(b"back"), "subject".into());
        let mut back = [0; 4];
        far.read_exact(&mut back).await.expect("bytes");
        assert!(
            matches!(events.recv().await, Some(FromRelay::Written(subject)) if subject == "subject" && &back == b"back")
        );
        drop(to_relay);
        assert!(matches!(events.recv().await, Some(FromRelay::Ended(_))));
        assert_eq!(far.read(&mut back).await.expect("an end"), 0);
    }
}
