//! Waiting for many sockets at once: epoll.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;

use crate::problem::Problem;

/// An epoll instance. A closed file leaves it by itself.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// The events to wait for on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// Readable or writable.
    ReadAndWrite,
}

/// A file that something can be done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that the file was added with.
    pub token: u64,
    /// Readable, closed or failed.
    pub readable: bool,
    /// Writable, or a connect has ended.
    pub writable: bool,
}

impl Poll {
    /// One without files.
    ///
    /// # Errors
    /// The system has no more.
    pub fn new() -> Result<Poll, Problem> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poll { epoll, events: Vec::with_capacity(EVENTS_PER_TURN) })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// It is there already, or the system has no memory.
    pub fn add(&self, file: impl AsFd, token: u64, interest: Interest) -> Result<(), Problem> {
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(token), interest.flags())?)
    }

    /// Changes the events to wait for.
    ///
    /// # Errors
    /// The file was not added.
    pub fn change(&self, file: impl AsFd, token: u64, interest: Interest) -> Result<(), Problem> {
        Ok(epoll::modify(&self.epoll, file, EventData::new_u64(token), interest.flags())?)
    }

    /// Waits for a file no more.
    ///
    /// # Errors
    /// It was not added.
    pub fn remove(&self, file: impl AsFd) -> Result<(), Problem> {
        Ok(epoll::delete(&self.epoll, file)?)
    }

    /// Waits for files for at most `timeout`, to the microsecond, and puts those that are ready into `ready`, at most
    /// [`EVENTS_PER_TURN`] of them.
    ///
    /// # Errors
    /// The system's; an interruption by a signal is none.
    pub fn wait(&mut self, timeout: Duration, ready: &mut Vec<Ready>) -> Result<(), Problem> {
        ready.clear();
        self.poll_now()?;
        if self.events.is_empty() && !timeout.is_zero() {
            self.sleep(timeout)?;
            self.poll_now()?;
        }
        ready.extend(self.events.iter().map(|&Event { flags, data }| Ready {
            token: data.u64(),
            readable: flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR),
            writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
        }));
        Ok(())
    }

    fn poll_now(&mut self) -> Result<(), Problem> {
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&NO_TIME)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// epoll's own timeout has whole milliseconds; a publication planned in between would be late by its rest.
    fn sleep(&self, timeout: Duration) -> Result<(), Problem> {
        let timeout = timeout.min(TIMEOUT_MAX);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Interest::Read => EventFlags::IN,
            Interest::ReadAndWrite => EventFlags::IN | EventFlags::OUT,
        }
    }
}

/// The number of files served before timers are checked again.
pub const EVENTS_PER_TURN: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn readable_files_are_reported_with_their_token() {
        let (mut near, far) = UnixStream::pair().expect("sockets");
        let mut poll = Poll::new().expect("epoll");
        let mut ready = Vec::new();
        poll.add(&far, 7, Interest::Read).expect("added");
        poll.wait(Duration::from_micros(300), &mut ready).expect("waited");
        assert!(ready.is_empty());
        near.write_all(b"x").expect("written");
        poll.wait(Duration::from_secs(60), &mut ready).expect("waited");
        assert_eq!(ready, [Ready { token: 7, readable: true, writable: false }]);
        poll.change(&far, 8, Interest::ReadAndWrite).expect("changed");
        poll.wait(Duration::ZERO, &mut ready).expect("waited");
        assert_eq!(ready, [Ready { token: 8, readable: true, writable: true }]);
    }
}
