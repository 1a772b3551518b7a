//! An echo server over std's sockets, one thread per connection: only the codec.
//!
//! `cargo run --release -p encke-websocket --example echo_std -- --port 0` prints `listening on ws://127.0.0.1:PORT`.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use websocket::{Decoder, Event, Flow, Opcode, Role, frame, handshake};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 0,
        ["--port", port] => port.parse().map_err(|_| bad("the port is a number"))?,
        _ => return Err(bad("usage: echo_std [--port PORT]")),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    println!("listening on ws://{}", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || serve(socket).inspect_err(|error| eprintln!("{error}")));
    }
    Ok(())
}

/// Serves one connection, from the handshake to the end of the stream.
fn serve(mut socket: TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    let mut input = vec![0; READ_BYTES_MAX];
    let (head_bytes, have_bytes) = read_head(&mut socket, &mut input)?;
    let answer = answer(&input[..head_bytes])?;
    socket.write_all(answer.as_bytes())?;

    let mut decoder = Decoder::new(Role::Server, MESSAGE_BYTES_MAX);
    let mut replies = Vec::new();
    let mut read = head_bytes..have_bytes;
    loop {
        let mut closing = false;
        let fed = decoder.feed(&mut input[read], &mut |event| {
            match event {
                Event::Text(text) => frame::message(Opcode::Text, text.as_bytes(), &mut replies),
                Event::Binary(bytes) => frame::message(Opcode::Binary, bytes, &mut replies),
                Event::Ping(bytes) => frame::message(Opcode::Pong, bytes, &mut replies),
                Event::Pong(_) => {}
                Event::Close(None) => frame::message(Opcode::Close, &[], &mut replies),
                Event::Close(Some((code, _))) => frame::close(code, "", &mut replies),
            }
            closing |= matches!(event, Event::Close(_));
            Flow::Continue
        });
        if let Err(error) = &fed {
            frame::close(error.close_code(), error.reason(), &mut replies);
        }
        socket.write_all(&replies)?;
        replies.clear();
        if closing || fed.is_err() {
            return end(&mut socket, &mut input);
        }
        read = 0..socket.read(&mut input)?;
        if read.is_empty() {
            return Ok(());
        }
    }
}

/// Closes after sending a close frame. It first reads the remaining bytes of the peer: otherwise the kernel would reset the
/// connection, and the peer might lose the close frame.
fn end(socket: &mut TcpStream, input: &mut [u8]) -> Result<()> {
    socket.shutdown(Shutdown::Write)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    for _ in 0..DRAIN_READS_MAX {
        match socket.read(input) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Reads until the head of the request is complete. Returns its length and the number of bytes read.
fn read_head(socket: &mut TcpStream, input: &mut [u8]) -> Result<(usize, usize)> {
    let mut have_bytes = 0;
    loop {
        let read = socket.read(&mut input[have_bytes..])?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        have_bytes += read;
        if let Some(at) = input[..have_bytes].windows(4).position(|window| window == b"\r\n\r\n") {
            return Ok((at + 4, have_bytes));
        }
    }
}

/// The response to the handshake.
fn answer(head: &[u8]) -> Result<String> {
    let head = std::str::from_utf8(head).map_err(|_| bad("the head is not text"))?;
    let mut headers = HeaderMap::new();
    for line in head.lines().skip(1).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(bad("a header without a colon"))?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("a header's name"))?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| bad("a header's value"))?);
    }
    match handshake::check(&Method::GET, Version::HTTP_11, &headers) {
        Ok(accept) => Ok(format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        )),
        Err(error) => Err(bad(&error.to_string())),
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

const READ_BYTES_MAX: usize = 64 * 1024;
/// Autobahn's longest messages are 16 MiB.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const DRAIN_READS_MAX: usize = 1024;
