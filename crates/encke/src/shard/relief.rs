//! Relief: what is done where sessions hold much memory.
//!
//! When what a shard holds has doubled since it last looked, it packs ranges that keep mostly dead chunks alive ([`Sweep`]), a part in
//! each turn. When all shards together hold more than `sessions_bytes_max`, those that hold at least their share pack at once, and
//! then end the sessions that hold most.

use std::collections::HashSet;

use super::arena::Chunk;
use super::effect::{SessionKey, SocketKey};
use super::outbox::{Packed, RUN_BYTES, Sweep};
use super::replay::InRings;
use super::session::Session;
use super::{Arena, Shard};

/// What a shard knows of its need for memory.
#[derive(Debug, Default)]
pub(super) struct Relief {
    sweep: Option<Sweep>,
    /// From so many bytes on the next sweep begins; 0 before the first look.
    sweep_from: usize,
    /// From so many bytes on it is time to look, in the middle of a turn.
    pub(super) look_from: usize,
    /// What the account said at the last look.
    looked_bytes: usize,
    /// When tables are looked at next, in milliseconds.
    room_ms: u64,
    /// When sessions may be ended for memory again, in milliseconds.
    rests_until_ms: u64,
}

/// A session, or a WebSocket without one, and what it holds.
enum Holder {
    Session(SessionKey),
    Socket(SocketKey),
}

impl Shard {
    /// Looks at what its sessions hold: once a turn, and in the middle of one that adds much.
    pub(super) fn mind_memory(&mut self) {
        let max = self.settings.sessions_bytes_max;
        let slack = max / 64;
        let held = self.held_bytes();
        self.relief.look_from = self.account.bytes() + slack;
        let next = (held * 2).max(held + slack);
        let from = &mut self.relief.sweep_from;
        *from = if *from == 0 { next } else { next.min(*from) };
        if held >= *from && self.relief.sweep.is_none() {
            self.begin_sweep();
        }
        // As much as was added may have to be looked at.
        let before = std::mem::replace(&mut self.relief.looked_bytes, self.account.bytes());
        let added = self.account.bytes().saturating_sub(before) / RUN_BYTES;
        self.go_on_with_sweep(SWEEP_RUNS.max(added * 4));
        self.publish_memory();
        if self.shared.memory.sessions_bytes() > max {
            self.relieve(max);
        }
    }

    /// Gives back the memory of tables that were large once: looked at now and then, when much has left.
    pub(super) fn give_room_back(&mut self) {
        if self.now.ms < self.relief.room_ms {
            return;
        }
        self.relief.room_ms = self.now.ms + ROOM_EVERY_MS;
        self.sessions.give_room_back();
        self.hub.give_room_back();
        if self.sockets.capacity() > SOCKETS_KEPT && self.sockets.len() < self.sockets.capacity() / 4 {
            self.sockets.shrink_to_fit();
        }
    }

    /// Bytes that sessions and sockets hold: without what is kept for the next message.
    pub(super) fn held_bytes(&self) -> usize {
        self.account.bytes() - self.arenas().into_iter().map(Arena::unheld_bytes).sum::<usize>()
    }

    fn begin_sweep(&mut self) {
        self.relief.sweep = Some(Sweep::new(self.arenas().into_iter().map(|arena| -> &Chunk { arena.open() })));
    }

    /// Goes on until so many runs have been looked at. Sessions first, then sockets; first all are marked, then all are packed.
    fn go_on_with_sweep(&mut self, runs_max: usize) {
        let Some(mut sweep) = self.relief.sweep.take() else { return };
        sweep.looked_at = 0;
        while sweep.looked_at < runs_max {
            let (at, sessions) = (sweep.next, self.sessions.slots());
            sweep.next += 1;
            sweep.looked_at += 1;
            if at < sessions {
                if let Some(session) = self.sessions.in_slot(at) {
                    session.sweep(&mut sweep, &mut self.packed);
                }
            } else if at - sessions < self.sockets.capacity() {
                if let Some(socket) = self.sockets.get_mut(at - sessions) {
                    socket.out.sweep(&mut sweep, &mut self.packed);
                }
            } else if !sweep.packs {
                (sweep.packs, sweep.next) = (true, 0);
            } else {
                drop(sweep);
                let held = self.held_bytes();
                self.metrics.sweeps.add(1);
                self.relief.sweep_from = (held * 2).max(held + self.settings.sessions_bytes_max / 64);
                return;
            }
        }
        self.relief.sweep = Some(sweep);
    }

    /// All sessions hold too much together. Who holds less than its share leaves it to others.
    fn relieve(&mut self, max: usize) {
        let holds_its_share = |shard: &Shard| {
            let all = shard.shared.memory.sessions_bytes();
            all > max && shard.held_bytes() * shard.shared.shards >= all
        };
        if self.now.ms < self.relief.rests_until_ms || !holds_its_share(self) {
            return;
        }
        self.sweep_all();
        self.publish_memory();
        if !holds_its_share(self) {
            return;
        }
        let held = self.held_bytes();
        let goal = held.saturating_sub(self.shared.memory.sessions_bytes() - (max - max / 8));
        let mut ended = 0;
        // What one lets go of may lie in chunks that others hold, too: it is free when these are packed.
        for _ in 0..ROUNDS_MAX {
            let surplus = self.held_bytes().saturating_sub(goal);
            if surplus == 0 {
                break;
            }
            ended += self.end_holders_of(surplus);
            self.sweep_all();
        }
        self.relief.rests_until_ms = self.now.ms + REST_MS;
        self.relief.look_from = self.account.bytes() + max / 64;
        self.metrics.ended_for_memory.add(ended);
        let freed = held - self.held_bytes();
        tracing::warn!(
            ended,
            freed,
            max,
            "sessions hold more than sessions_bytes_max: those that hold most were ended"
        );
        self.publish_memory();
    }

    /// Ends those that hold most, until they hold so many bytes together. Returns how many sessions these were.
    fn end_holders_of(&mut self, bytes: usize) -> usize {
        let (mut ended, mut freed) = (0, 0);
        for (bytes_held, holder) in self.holders() {
            if freed >= bytes {
                break;
            }
            freed += bytes_held;
            match holder {
                Holder::Session(key) if self.falls_back(key) => {}
                Holder::Session(key) => {
                    ended += 1;
                    self.end_slow(key, "");
                }
                Holder::Socket(key) => self.cut_off(key),
            }
        }
        ended
    }

    fn sweep_all(&mut self) {
        self.begin_sweep();
        self.go_on_with_sweep(usize::MAX);
    }

    /// Who holds memory, those that hold most first. What many share counts for each with its part.
    fn holders(&self) -> Vec<(usize, Holder)> {
        let of_sessions = self.sessions.with_keys().map(|(key, session)| (session.share_bytes(), Holder::Session(key)));
        let of_sockets = self.socket_keys().into_iter().filter_map(|key| {
            let socket = self.socket(key)?;
            Some((socket.out.share_bytes(), Holder::Socket(key)))
        });
        let mut holders: Vec<_> = of_sessions.chain(of_sockets).filter(|(bytes, _)| *bytes > 0).collect();
        holders.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        holders
    }

    /// Whether a session that replays has left most of what it holds to the histories that have it, too.
    fn falls_back(&mut self, key: SessionKey) -> bool {
        let Some(session) = self.sessions.get(key) else { return true };
        let before = session.share_bytes();
        let replays = session.replay.as_ref().is_some_and(|replay| replay.in_rings == InRings::Maybe);
        let spilled = replays && self.spill(key, false);
        spilled && self.sessions.get(key).is_none_or(|session| session.share_bytes() < before / 4)
    }
}

impl Relief {
    /// The bytes of chunks that a sweep holds, but for those among the `seen`.
    pub(super) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.sweep.as_ref().map_or(0, |sweep| sweep.recount(seen))
    }
}

impl Session {
    fn sweep(&mut self, sweep: &mut Sweep, packed: &mut Packed) {
        self.outbox.sweep(sweep, packed);
        if let Some(in_flight) = &mut self.in_flight {
            self.outbox.sweep_taken(&mut in_flight.1, sweep, packed);
        }
        for messages in self.ledger.iter_mut().flat_map(|ledger| ledger.messages_mut()) {
            self.outbox.sweep_taken(messages, sweep, packed);
        }
    }

    /// Bytes that it holds: what others hold, too, counts with its part.
    fn share_bytes(&self) -> usize {
        self.outbox.share_bytes() + self.handed_out().map(|messages| messages.share_bytes()).sum::<usize>()
    }
}

/// How often tables are looked at, in milliseconds.
const ROOM_EVERY_MS: u64 = 10_000;
/// WebSockets that the table keeps room for.
const SOCKETS_KEPT: usize = 1_024;
/// Runs that a turn looks at for a sweep.
const SWEEP_RUNS: usize = 16_384;
/// How often sessions are ended before others have their turn.
const ROUNDS_MAX: usize = 4;
/// After sessions were ended for memory nobody else is for so long, in milliseconds: what they held is freed meanwhile.
const REST_MS: u64 = 10;
