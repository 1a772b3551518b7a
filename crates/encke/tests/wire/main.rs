//! The server over real sockets: what it promises its clients, and what it does with those who send rubbish.
//!
//! One binary, so that the tests run beside each other and are linked once. Each test starts a server of its own on a free
//! port of loopback. `docs/bad-input.md` says which kind of bad input is tested where.

mod ack;
mod bayeux_messages;
mod channel_names;
mod cometd;
mod common;
mod durable;
mod files;
mod floods;
mod hosts;
mod http_requests;
mod jsonp;
mod limits;
mod long_polling;
mod origins;
mod page;
mod replay;
mod restarts;
mod sessions;
mod slow_consumers;
mod switches;
mod transports;
mod websocket_frames;
