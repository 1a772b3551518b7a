//! Tests of the codec's public interface. They are one binary, so that it links once.

mod common;
mod frames;
mod handshake;
mod properties;
mod rfc6455;
