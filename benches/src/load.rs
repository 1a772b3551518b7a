//! All sockets of the load, driven by one thread over epoll.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::dialect::Dialect;
use crate::machine::allow_files;
use crate::problem::Problem;
use crate::reader::Reader;

/// What one socket of the load does.
pub trait Client: Sized {
    /// What all clients of a run have in common.
    type Plan;

    /// Begins client `index` on a socket whose connect is under way.
    fn start(plan: &Self::Plan, index: u32, stream: TcpStream) -> Self;

    /// The client's socket.
    fn stream(&self) -> &TcpStream;

    /// Reads, answers and writes what can be done without waiting.
    ///
    /// # Errors
    /// The server closed the socket or answered what cannot be gone on from; the client is over.
    fn ready(&mut self, flags: EventFlags, scratch: &mut [u8], reader: &mut Reader) -> Result<(), Problem>;

    /// Whether the client has arrived where its plan wanted it.
    fn is_open(&self) -> bool;

    /// Whether it waits for its socket to take more bytes.
    fn wants_write(&self) -> bool;

    /// Says goodbye, as far as the client has a way to, before its socket is closed.
    fn leave(&mut self) {}
}

/// The sockets, what they read into and what counts their deliveries.
pub struct Load<C> {
    epoll: OwnedFd,
    slots: Vec<Slot<C>>,
    opened: usize,
    gone: usize,
    first_gone: Option<String>,
    events: Vec<epoll::Event>,
    scratch: Vec<u8>,
    /// Counts what arrives.
    pub reader: Reader,
}

struct Slot<C> {
    client: C,
    writing: bool,
    open: bool,
    over: bool,
}

impl<C: Client> Load<C> {
    /// A load without sockets.
    pub fn new(dialect: Dialect) -> Result<Self, Problem> {
        Ok(Load {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: Vec::new(),
            opened: 0,
            gone: 0,
            first_gone: None,
            events: Vec::with_capacity(EVENTS_PER_TURN),
            scratch: vec![0; SCRATCH_BYTES],
            reader: Reader::new(dialect),
        })
    }

    /// Opens `count` more clients, at most `in_flight` of them at a time, and waits until all are open.
    pub fn open(
        &mut self,
        server: SocketAddr,
        plan: &C::Plan,
        count: usize,
        in_flight: usize,
    ) -> Result<Duration, Problem> {
        let (begin, wanted) = (Instant::now(), self.slots.len() + count);
        allow_files(wanted as u64 + SPARE_FILES)?;
        let mut progress = (self.opened, begin);
        while self.opened < wanted {
            while self.slots.len() < wanted && self.slots.len() - self.opened < in_flight {
                self.start(server, plan)?;
            }
            self.turn(Duration::from_millis(100))?;
            if let Some(reason) = &self.first_gone {
                return Err(Problem::Server(format!("after {} of {wanted} sessions: {reason}", self.opened)));
            }
            if self.opened > progress.0 {
                progress = (self.opened, Instant::now());
            } else if progress.1.elapsed() > OPEN_PATIENCE {
                let text = format!("{} of {wanted} sessions are open and nothing moves", self.opened);
                return Err(Problem::Server(text));
            }
        }
        Ok(begin.elapsed())
    }

    /// Waits for sockets for at most `patience` (in whole milliseconds, rounded down) and serves those that are ready.
    pub fn turn(&mut self, patience: Duration) -> Result<(), Problem> {
        let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_millis()) * 1_000_000 };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&patience)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for index in 0..self.events.len() {
            let epoll::Event { flags, data } = self.events[index];
            self.serve(data.u64() as usize, flags)?;
        }
        Ok(())
    }

    /// Keeps running until `until`, so that heartbeats are answered.
    pub fn idle_until(&mut self, until: Instant) -> Result<(), Problem> {
        while Instant::now() < until {
            self.turn(Duration::from_millis(20))?;
        }
        Ok(())
    }

    /// All clients, in the order they were started.
    pub fn clients(&mut self) -> impl ExactSizeIterator<Item = &mut C> {
        self.slots.iter_mut().map(|slot| &mut slot.client)
    }

    /// Client `index`, and a look at whether it has to wait for its socket afterwards.
    pub fn with<T>(&mut self, index: usize, act: impl FnOnce(&mut C) -> Result<T, Problem>) -> Result<T, Problem> {
        let result = act(&mut self.slots[index].client)?;
        self.watch(index)?;
        Ok(result)
    }

    /// How many clients the server has dropped, and why the first was.
    pub fn gone(&self) -> (usize, Option<&str>) {
        (self.gone, self.first_gone.as_deref())
    }

    fn start(&mut self, server: SocketAddr, plan: &C::Plan) -> Result<(), Problem> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &server) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(Problem::Server(format!("connect to {server}: {error}"))),
        }
        let index = self.slots.len();
        let client = C::start(plan, index as u32, TcpStream::from(socket));
        let data = EventData::new_u64(index as u64);
        epoll::add(&self.epoll, client.stream(), data, EventFlags::IN | EventFlags::OUT)?;
        self.slots.push(Slot { client, writing: true, open: false, over: false });
        Ok(())
    }

    fn serve(&mut self, index: usize, flags: EventFlags) -> Result<(), Problem> {
        let slot = &mut self.slots[index];
        if slot.over {
            return Ok(());
        }
        if let Err(problem) = slot.client.ready(flags, &mut self.scratch, &mut self.reader) {
            slot.over = true;
            self.gone += 1;
            self.first_gone.get_or_insert_with(|| problem.to_string());
            epoll::delete(&self.epoll, slot.client.stream())?;
            return Ok(());
        }
        if !slot.open && slot.client.is_open() {
            slot.open = true;
            self.opened += 1;
        }
        self.watch(index)
    }

    fn watch(&mut self, index: usize) -> Result<(), Problem> {
        let slot = &mut self.slots[index];
        let wants = slot.client.wants_write();
        if slot.writing != wants && !slot.over {
            slot.writing = wants;
            let flags = if wants { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(&self.epoll, slot.client.stream(), EventData::new_u64(index as u64), flags)?;
        }
        Ok(())
    }
}

/// How much is read from one socket at once, in bytes: large enough that system calls do not count, small enough for the
/// core's cache.
pub const READ_BYTES: usize = 128 * 1024;
/// The longest frame or HTTP answer the load accepts, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const SCRATCH_BYTES: usize = MESSAGE_BYTES_MAX + READ_BYTES;
/// Between two looks at whether a publication is due.
const EVENTS_PER_TURN: usize = 64;
/// Files beside the sockets: standard streams, epoll, `/proc`.
const SPARE_FILES: u64 = 32;
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
