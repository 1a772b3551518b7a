//! A disk in memory that loses, tears and refuses writes and flips bits, controlled by a seed. Only tests use it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use journal::Disk;

/// The faults from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The greatest total size of all files, in bytes. A write beyond it is done in part, then refused.
    pub space_bytes: Option<u64>,
    /// True if nothing can be created, written, cut, removed or synced.
    pub read_only: bool,
    /// The number of file syncs that fail. Their data may never become durable, even if a later sync succeeds.
    pub failing_syncs: u32,
    /// The number of directory syncs that fail.
    pub failing_directory_syncs: u32,
    /// The number of writes that fail after some of their bytes.
    pub failing_writes: u32,
    /// The number of changing calls after which no more take effect: the process is dead and does not know.
    pub calls_left: Option<u32>,
    /// True to ignore a write of bytes that the file already shows, as if the caller had not made it.
    pub skips_rewrites: bool,
    /// True if writes and reads do less than requested, or are interrupted.
    pub stutter: bool,
    /// True if a write panics, as a defect of the program would.
    pub panics: bool,
}

/// A simulated disk. Clones are the same disk.
///
/// A [`SimDisk::crash`] loses unsynced data: each sector of 512 bytes by itself, in any order, or half of it. The
/// list of files must be synced separately.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

/// An open file of a [`SimDisk`]. It is unusable after a crash.
#[derive(Debug)]
pub struct SimFile {
    inode: usize,
    generation: u64,
}

struct State {
    random: u64,
    /// The number of the current process: earlier ones are dead.
    generation: u64,
    lock: Weak<()>,
    faults: Faults,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
}

#[derive(Default)]
struct Inode {
    bytes: Vec<u8>,
    synced_bytes: usize,
    /// The disk's contents of sectors where `bytes` is newer.
    old: BTreeMap<usize, Vec<u8>>,
    /// The same, for sectors that the system believes to be synced.
    lost: BTreeMap<usize, Vec<u8>>,
}

impl SimDisk {
    /// An empty disk; the seed decides the details of its faults.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk(Arc::new(Mutex::new(State {
            random: seed,
            generation: 0,
            lock: Weak::new(),
            faults: Faults::default(),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
        })))
    }

    /// Changes the faults.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Stops and restarts the machine: unsynced data survives, tears or gets lost at random. The faults end.
    pub fn crash(&self) {
        self.kill();
        let state = &mut *self.state();
        let all: Vec<String> = state.names.keys().chain(state.synced_names.keys()).cloned().collect();
        for name in all {
            if chance(&mut state.random, 2) {
                match state.synced_names.get(&name) {
                    Some(&inode) => state.names.insert(name, inode),
                    None => state.names.remove(&name),
                };
            }
        }
        state.synced_names = state.names.clone();
        for inode in &mut state.inodes {
            inode.crash(&mut state.random);
        }
    }

    /// Stops the process, not the machine: written data remains. The faults end.
    pub fn kill(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.lock = Weak::new();
        state.faults = Faults::default();
    }

    /// True if a failed sync lost data that the system still shows.
    pub fn has_lost_writes(&self) -> bool {
        let state = self.state();
        state.names.values().any(|&inode| !state.inodes[inode].lost.is_empty())
    }

    /// Flips a bit of a file permanently.
    pub fn flip(&self, name: &str, offset: usize, bit: u8) {
        if let Some(inode) = self.state().inode(name) {
            inode.bytes[offset] ^= 1 << bit;
        }
    }

    /// Replaces or creates a file, permanently.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let inode = Inode { bytes: bytes.to_vec(), synced_bytes: bytes.len(), ..Inode::default() };
        let number = state.inodes.len();
        state.inodes.push(inode);
        state.names.insert(name.into(), number);
        state.synced_names.insert(name.into(), number);
    }

    /// The contents of a file, as a process sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.state().inode(name).map(|inode| inode.bytes.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Lock = Arc<()>;

    fn lock(&self) -> io::Result<Option<Arc<()>>> {
        let mut state = self.state();
        state.writable()?;
        if state.lock.strong_count() > 0 {
            return Ok(None);
        }
        let lock = Arc::new(());
        state.lock = Arc::downgrade(&lock);
        Ok(Some(lock))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        state.writable()?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(name.into(), number);
        state.open(name)
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        self.state().open(name)
    }

    fn read_at(&self, file: &SimFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state();
        let wanted = state.stuttered(buffer.len())?;
        let bytes = &state.of(file)?.bytes;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + wanted);
        buffer[..end - start].copy_from_slice(&bytes[start..end]);
        Ok(end - start)
    }

    fn write_at(&self, file: &SimFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state();
        state.writable()?;
        assert!(!state.faults.panics, "a write was to panic");
        let mut taken = state.stuttered(bytes.len())?;
        let fails = state.faults.failing_writes > 0;
        if fails {
            state.faults.failing_writes -= 1;
            taken = below(&mut state.random, bytes.len() + 1);
        }
        let room = state.room(file, offset as usize)?;
        if room == 0 && taken > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        taken = taken.min(room);
        let offset = offset as usize;
        let skips = state.faults.skips_rewrites;
        let inode = state.of(file)?;
        if !skips || inode.bytes.get(offset..offset + taken) != Some(&bytes[..taken]) {
            inode.write(offset, &bytes[..taken]);
        }
        if fails { Err(io::Error::other("the device broke off")) } else { Ok(taken) }
    }

    fn sync(&self, file: &SimFile) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        state.sync(file)
    }

    fn truncate(&self, file: &SimFile, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        state.of(file)?.cut(bytes as usize);
        state.sync(file)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.into(), inode);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        state.names.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.state();
        state.writable()?;
        if state.faults.failing_directory_syncs > 0 {
            state.faults.failing_directory_syncs -= 1;
            return Err(io::Error::other("the device lost the list of files"));
        }
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }
}

impl State {
    fn inode(&mut self, name: &str) -> Option<&mut Inode> {
        self.names.get(name).map(|&inode| &mut self.inodes[inode])
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let inode = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(SimFile { inode, generation: self.generation })
    }

    fn of(&mut self, file: &SimFile) -> io::Result<&mut Inode> {
        if file.generation != self.generation {
            return Err(io::Error::other("the process that opened this file is dead"));
        }
        Ok(&mut self.inodes[file.inode])
    }

    /// Fails if changing calls are not possible.
    fn writable(&mut self) -> io::Result<()> {
        match &mut self.faults.calls_left {
            Some(0) => return Err(io::Error::other("the process is dead")),
            Some(left) => *left -= 1,
            None => {}
        }
        if self.faults.read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    fn stuttered(&mut self, wanted: usize) -> io::Result<usize> {
        if !self.faults.stutter || wanted == 0 {
            return Ok(wanted);
        }
        if chance(&mut self.random, 4) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(1 + below(&mut self.random, wanted))
    }

    /// The number of bytes that can be written at `offset` before the disk is full.
    fn room(&mut self, file: &SimFile, offset: usize) -> io::Result<usize> {
        let Some(space) = self.faults.space_bytes else { return Ok(usize::MAX) };
        let used: usize = self.names.values().map(|&inode| self.inodes[inode].bytes.len()).sum();
        let own = self.of(file)?.bytes.len();
        Ok((own + (space as usize).saturating_sub(used)).saturating_sub(offset))
    }

    fn sync(&mut self, file: &SimFile) -> io::Result<()> {
        self.of(file)?;
        let inode = &mut self.inodes[file.inode];
        if self.faults.failing_syncs > 0 {
            self.faults.failing_syncs -= 1;
            for (sector, old) in std::mem::take(&mut inode.old) {
                if chance(&mut self.random, 2) {
                    inode.lost.insert(sector, old);
                }
            }
            return Err(io::Error::other("the device lost what was written"));
        }
        inode.old.clear();
        inode.synced_bytes = inode.bytes.len();
        Ok(())
    }
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        self.remember(offset, end);
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn cut(&mut self, bytes: usize) {
        self.remember(bytes, self.bytes.len());
        self.bytes.truncate(bytes);
    }

    /// Saves the disk's contents of the sectors that are about to change.
    fn remember(&mut self, from: usize, to: usize) {
        for sector in from / SECTOR_BYTES..to.div_ceil(SECTOR_BYTES) {
            let (bytes, lost) = (&self.bytes, &mut self.lost);
            self.old.entry(sector).or_insert_with(|| {
                let start = bytes.len().min(sector * SECTOR_BYTES);
                let end = bytes.len().min(start + SECTOR_BYTES);
                lost.remove(&sector).unwrap_or_else(|| bytes[start..end].to_vec())
            });
        }
    }

    fn crash(&mut self, random: &mut u64) {
        let (short, long) = (self.synced_bytes.min(self.bytes.len()), self.synced_bytes.max(self.bytes.len()));
        let length = if chance(random, 2) { short + below(random, long - short + 1) } else { long };
        self.bytes.resize(long, 0);
        for (sector, old) in std::mem::take(&mut self.old) {
            // The whole sector reached the disk, or its first bytes, or nothing.
            let new = [SECTOR_BYTES, below(random, SECTOR_BYTES), 0][below(random, 3)];
            self.restore(sector, &old, new);
        }
        for (sector, old) in std::mem::take(&mut self.lost) {
            self.restore(sector, &old, 0);
        }
        self.bytes.truncate(length);
        self.synced_bytes = length;
    }

    /// Restores the old bytes of a sector except for its first `new` ones. Where the file was shorter, zeros are the
    /// old bytes.
    fn restore(&mut self, sector: usize, old: &[u8], new: usize) {
        let start = (sector * SECTOR_BYTES).min(self.bytes.len());
        let end = (start + SECTOR_BYTES).min(self.bytes.len());
        for (index, byte) in self.bytes[start..end].iter_mut().enumerate().skip(new) {
            *byte = old.get(index).copied().unwrap_or(0);
        }
    }
}

/// True once in `of` cases.
fn chance(random: &mut u64, of: usize) -> bool {
    below(random, of) == 0
}

/// A number below `limit`, by SplitMix64.
fn below(random: &mut u64, limit: usize) -> usize {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
}

/// The unit of a disk write, in bytes.
const SECTOR_BYTES: usize = 512;
