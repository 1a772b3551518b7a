//! The codec's public face, tested from outside: one program, so that it links once.

mod common;
mod frames;
mod handshake;
mod properties;
mod rfc6455;
