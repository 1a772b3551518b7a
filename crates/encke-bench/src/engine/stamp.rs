//! The published data: a mark, its source and room, its planned time, filler.
//!
//! ```text
//! ~ SSSSSSSS RRRRR WW 0 TTTTTTTT PPPPPPP ......    (without the spaces)
//!   sequence room  worker planned publisher filler
//! ```
//!
//! Numbers are written four bits a character, `@` to `O`, so that a handful of instructions read eight characters and
//! JSON needs no escapes. Of the planned time only the low 32 bits of microseconds are written: this is enough for
//! latencies of up to half an hour, and a stamp has 32 bytes.

/// Shortest data that holds a stamp, in bytes.
pub const DATA_BYTES_MIN: usize = 32;
/// The room of answers to service calls; rooms have numbers below it.
pub const CALL_ROOM: u32 = 0xF_FFFF;
/// Workers have numbers below this.
pub const WORKERS_MAX: u32 = 1 << 8;
/// Publishers have numbers below this.
pub const PUBLISHERS_MAX: u32 = 1 << 28;

/// The content of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the publication among those of its worker in its room.
    pub sequence: u32,
    /// The room, at most [`CALL_ROOM`].
    pub room: u32,
    /// The worker that published it, below [`WORKERS_MAX`].
    pub worker: u32,
    /// The session of that worker that published it, below [`PUBLISHERS_MAX`].
    pub publisher: u32,
    /// The planned send time, in microseconds.
    pub planned_us: u64,
}

/// Data that starts with a stamp.
#[derive(Clone, Copy, Debug)]
pub struct Stamped<'a>(&'a [u8; DATA_BYTES_MIN]);

impl Stamp {
    /// Appends data of `data_bytes` bytes with this stamp; of [`DATA_BYTES_MIN`] if that is less.
    pub fn write(&self, data_bytes: usize, out: &mut Vec<u8>) {
        let room_and_worker = self.room << 12 | self.worker << 4;
        let mut stamp = [MARK; DATA_BYTES_MIN];
        stamp[1..9].copy_from_slice(&unpack(self.sequence));
        stamp[9..17].copy_from_slice(&unpack(room_and_worker));
        stamp[17..25].copy_from_slice(&unpack(self.planned_us as u32));
        stamp[25..].copy_from_slice(&unpack(self.publisher)[1..]);
        out.extend_from_slice(&stamp);
        let mut left = data_bytes.saturating_sub(DATA_BYTES_MIN);
        while left > 0 {
            let part = &FILLER[..left.min(FILLER.len())];
            out.extend_from_slice(part);
            left -= part.len();
        }
    }
}

impl<'a> Stamped<'a> {
    /// Returns the stamp at the start of `data`, if there is one.
    #[inline]
    pub fn find(data: &'a [u8]) -> Option<Stamped<'a>> {
        let stamped = Stamped(data.first_chunk()?);
        let all = (stamped.word(1) ^ ZEROS) | (stamped.word(9) ^ ZEROS) | (stamped.word(17) ^ ZEROS);
        (stamped.0[0] == MARK && all & HIGH_NIBBLES == 0).then_some(stamped)
    }

    /// See [`Stamp::sequence`].
    #[inline]
    pub fn sequence(self) -> u32 {
        pack(self.word(1))
    }

    /// Room and worker.
    #[inline]
    pub fn room_and_worker(self) -> (u32, u32) {
        let room_and_worker = pack(self.word(9));
        (room_and_worker >> 12, room_and_worker >> 4 & 0xFF)
    }

    /// The planned time, taken as the one that is next to `now_us`.
    #[inline]
    pub fn planned_us(self, now_us: u64) -> u64 {
        let ago_us = (now_us as u32).wrapping_sub(pack(self.word(17))) as i32;
        now_us.saturating_add_signed(-i64::from(ago_us))
    }

    /// See [`Stamp::publisher`].
    #[inline]
    pub fn publisher(self) -> u32 {
        // The word begins one character early, in the planned time.
        pack(self.word(24)) & (PUBLISHERS_MAX - 1)
    }

    #[inline]
    fn word(self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at..at + 8]);
        u64::from_be_bytes(word)
    }
}

/// Squeezes the low four bits of eight bytes into 32 bits, the first byte highest.
#[inline]
fn pack(digits: u64) -> u32 {
    let digits = digits & !HIGH_NIBBLES;
    let digits = (digits | digits >> 4) & 0x00FF_00FF_00FF_00FF;
    let digits = (digits | digits >> 8) & 0x0000_FFFF_0000_FFFF;
    (digits | digits >> 16) as u32
}

/// The inverse of [`pack`].
fn unpack(value: u32) -> [u8; 8] {
    let digits = u64::from(value);
    let digits = (digits | digits << 16) & 0x0000_FFFF_0000_FFFF;
    let digits = (digits | digits << 8) & 0x00FF_00FF_00FF_00FF;
    let digits = (digits | digits << 4) & !HIGH_NIBBLES;
    (digits | ZEROS).to_be_bytes()
}

const MARK: u8 = b'~';
/// A text of names and numbers as in messages of applications: repeated letters would be compressed to nothing.
const FILLER: &[u8] =
    b"symbol: ACME, name: Acme Rocket Company, currency: EUR, bid: 1734.25, ask: 1734.75, last: 1734.5, \
    volume: 48211903, open: 1718.0, high: 1741.125, low: 1709.375, change: 0.96, exchange: XETR, status: trading, \
    orders: price 1734.25 size 120, price 1734.0 size 840, price 1733.75 size 65, price 1733.5 size 1210; \
    trades: time 09:31:07.204 price 1734.5 size 30 buyer 7f3a9c seller 51de08, time 09:31:07.198 price 1734.25 size 75 \
    buyer 2b90ee seller c4417d, time 09:31:06.871 price 1734.5 size 12 buyer 98a1f0 seller 0d62b7; \
    news: quarterly results above expectations, dividend of 2.40 proposed, new factory opens in Toulouse in spring; ";
/// Eight zeros as they are written.
const ZEROS: u64 = u64::from_be_bytes(*b"@@@@@@@@");
const HIGH_NIBBLES: u64 = 0xF0F0_F0F0_F0F0_F0F0;

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps() -> [Stamp; 3] {
        [
            Stamp { sequence: 0, room: 0, worker: 0, publisher: 0, planned_us: 0 },
            Stamp { sequence: 0xDEAD_BEEF, room: 65_537, worker: 7, publisher: 20_000, planned_us: 0x0012_3456_789A },
            Stamp {
                sequence: u32::MAX,
                room: CALL_ROOM,
                worker: WORKERS_MAX - 1,
                publisher: PUBLISHERS_MAX - 1,
                planned_us: u64::from(u32::MAX),
            },
        ]
    }

    #[test]
    fn a_stamp_is_read_back_at_any_length() {
        for stamp in stamps() {
            for bytes in [DATA_BYTES_MIN, 50, 1000] {
                let mut data = Vec::new();
                stamp.write(bytes, &mut data);
                assert_eq!(data.len(), bytes);
                let found = Stamped::find(&data).expect("a stamp");
                assert_eq!(found.sequence(), stamp.sequence);
                assert_eq!(found.room_and_worker(), (stamp.room, stamp.worker));
                assert_eq!(found.publisher(), stamp.publisher);
                assert_eq!(found.planned_us(stamp.planned_us + 1_000_000_000), stamp.planned_us);
            }
        }
    }

    #[test]
    fn a_planned_time_in_the_future_is_read_as_such() {
        let mut data = Vec::new();
        let planned_us = (5 << 32) + 10;
        Stamp { planned_us, ..stamps()[0] }.write(DATA_BYTES_MIN, &mut data);
        let found = Stamped::find(&data).expect("a stamp");
        assert_eq!(found.planned_us(planned_us - 100), planned_us);
        assert_eq!(found.planned_us(planned_us + 100), planned_us);
    }

    #[test]
    fn foreign_bytes_have_no_stamp() {
        for text in ["", "~@@@", "hello, world, hello, world, hello, world, hello", "~@@@@@@@a@@@@@@@@@@@@@@@@@@@@@@@"]
        {
            assert!(Stamped::find(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn data_needs_no_escape_in_json() {
        let mut data = Vec::new();
        stamps()[1].write(DATA_BYTES_MIN + FILLER.len(), &mut data);
        let needs_none = |byte: &u8| (byte.is_ascii_graphic() || *byte == b' ') && !b"\"\\<>&'/".contains(byte);
        assert!(data.iter().all(needs_none));
    }
}
