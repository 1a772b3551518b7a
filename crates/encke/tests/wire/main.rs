//! The server over real sockets: its guarantees to clients, and its reactions to invalid input.
//!
//! All tests are in one binary, so that they run in parallel and are linked once. Each test starts its own server on
//! a free port of loopback. `docs/contributing/bad-input.md` lists the test of each kind of bad input.

mod ack;
mod api;
mod bayeux_messages;
mod beside;
mod channel_names;
mod cometd;
mod common;
mod compression;
mod decisions;
mod delivery;
mod durable;
mod examples;
mod files;
mod floods;
mod guard;
mod handle;
mod held;
mod history;
mod hold;
mod hold_rust;
mod hooks;
mod hosts;
mod http2;
mod http_requests;
mod in_process;
mod jsonp;
mod limits;
mod listeners;
mod long_polling;
mod metrics;
mod origins;
mod page;
mod plain_requests;
mod presence;
mod proxies;
mod replay;
mod replay_patterns;
mod replies;
mod restarts;
mod retained;
mod rights;
mod session_attributes;
mod session_terms;
mod sessions;
mod slow_consumers;
mod streams;
mod switches;
mod tls;
mod tls_clients;
mod tls_floods;
mod transports;
mod unread;
mod websocket_frames;
