//! The store thread: it persists histories, so that no shard waits for the disk.
//!
//! ```text
//!   shards ── Inbox ──▶ store thread: a group of records, one commit ──▶ ShardMessage::Persisted to the shards whose publishers wait
//! ```
//!
//! The inbox is bounded by bytes. While it is full, shards do not read WebSockets whose last messages were for
//! histories. Requests still arrive; they are refused when it is twice as full. The thread ends when the last shard
//! has left. A panic does not end it: from then on it does not touch the log and answers every request as not
//! persisted, so that no publisher waits forever.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use journal::{Directory, Disk};

use super::mailboxes::Mailboxes;
use super::outcomes::Outcomes;
use encke_core::{Metrics, PersistRequest, Persisted, ShardMessage, Shared};
use encke_store::HistoryStore;

/// A message from a shard to the store thread.
enum Post {
    PersistRequest(PersistRequest),
    /// A shard has ended cleanly.
    Leaving,
}

/// The sending half, where shards put records to persist.
#[derive(Clone)]
pub(crate) struct Inbox {
    posts: Sender<Post>,
    backlog: Arc<Backlog>,
}

/// Requests without an answer yet.
#[derive(Default)]
struct Backlog {
    bytes: AtomicUsize,
    /// A request was refused, and the store does not know yet.
    has_refused: AtomicBool,
}

/// The state of the thread.
struct StoreWorker<D: Disk> {
    history_store: HistoryStore<D>,
    shared: Arc<Shared>,
    mailboxes: Mailboxes,
    outcomes: Arc<Outcomes>,
    metrics: Arc<Metrics>,
    posts: Receiver<Post>,
    backlog: Arc<Backlog>,
    /// Answers to send, by shard.
    answers: Vec<Vec<Persisted>>,
    /// The number of shards that have ended cleanly.
    left: usize,
    start: Instant,
}

/// Starts the thread. It returns the store when it ends: as long as the store lives, no other process gets the
/// directory.
///
/// # Errors
/// The system's error if it cannot start a thread.
pub(crate) fn start(
    history_store: HistoryStore<Directory>,
    shared: Arc<Shared>,
    mailboxes: Mailboxes,
    outcomes: Arc<Outcomes>,
    metrics: Arc<Metrics>,
) -> io::Result<(Inbox, JoinHandle<HistoryStore<Directory>>)> {
    let (sender, posts) = mpsc::channel();
    let backlog = Arc::<Backlog>::default();
    let answers = vec![Vec::new(); mailboxes.shards()];
    let inbox = Inbox { posts: sender, backlog: backlog.clone() };
    let start = Instant::now();
    let left = 0;
    let worker =
        StoreWorker { history_store, shared, mailboxes, outcomes, metrics, posts, backlog, answers, left, start };
    let thread = std::thread::Builder::new().name("store".into()).spawn(move || worker.run())?;
    Ok((inbox, thread))
}

impl Inbox {
    /// Queues a request. Returns it if the backlog is too large or the thread has ended.
    pub(crate) fn put(&self, request: PersistRequest) -> Result<(), PersistRequest> {
        let bytes = cost(request.record.len());
        if self.backlog.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > 2 * BACKLOG_BYTES_MAX {
            self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.backlog.has_refused.store(true, Ordering::Relaxed);
            return Err(request);
        }
        if let Err(mpsc::SendError(Post::PersistRequest(request))) = self.posts.send(Post::PersistRequest(request)) {
            self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(request);
        }
        Ok(())
    }

    /// True if publishers have to wait.
    pub(crate) fn is_full(&self) -> bool {
        self.backlog.bytes.load(Ordering::Relaxed) > BACKLOG_BYTES_MAX
    }

    /// Reports that a shard has ended cleanly and sends nothing more.
    pub(crate) fn leave(self) {
        let _gone = self.posts.send(Post::Leaving);
    }
}

impl<D: Disk> StoreWorker<D> {
    fn run(mut self) -> HistoryStore<D> {
        // The panic may have interrupted the store halfway: its log is left as it is.
        if catch_unwind(AssertUnwindSafe(|| self.work())).is_err() {
            tracing::error!(
                "the thread that stores histories has panicked: nothing is stored on disk until the next start; delivery continues"
            );
            self.metrics.history_store_panicked.set(1);
            self.refuse_all();
        }
        self.history_store
    }

    fn work(&mut self) {
        while self.receive() {
            if self.backlog.has_refused.swap(false, Ordering::Relaxed) {
                self.history_store.missed();
            }
            self.history_store.commit(self.now_ms(), &self.shared.histories);
            self.deliver_everywhere();
        }
        // A shard that panicked may have assigned offsets that are not stored here.
        if self.left == self.mailboxes.shards() && !self.history_store.close(&self.shared.histories) {
            tracing::warn!("histories on disk are not complete: the next start leaves out some numbers");
        }
        self.deliver_everywhere();
    }

    /// Answers pending and new requests as not persisted, until no sender is left.
    fn refuse_all(&mut self) {
        self.history_store.give_up();
        self.deliver_everywhere();
        while let Ok(post) = self.posts.recv() {
            if let Post::PersistRequest(request) = post {
                self.history_store.refuse(&request);
                self.deliver_everywhere();
            }
        }
    }

    /// Waits for work and takes what is queued. False when no sender is left.
    fn receive(&mut self) -> bool {
        let now_ms = self.now_ms();
        let first = match self.history_store.due_ms() {
            None => self.posts.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due_ms) => self.posts.recv_timeout(Duration::from_millis(due_ms.saturating_sub(now_ms))),
        };
        let mut post = match first {
            Ok(post) => post,
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        let (mut bytes, mut records, mut has_paused) = (0, 0, false);
        loop {
            match post {
                Post::PersistRequest(request) => {
                    bytes += request.record.len();
                    records += 1;
                    self.history_store.take(request);
                }
                Post::Leaving => self.left += 1,
            }
            if bytes > GROUP_BYTES_MAX {
                return true;
            }
            post = match self.posts.try_recv() {
                Ok(post) => post,
                // Many records are arriving: one commit for all is cheaper.
                Err(TryRecvError::Empty) if records >= BUSY_RECORDS && !has_paused => {
                    has_paused = true;
                    std::thread::sleep(GATHER_PAUSE);
                    match self.posts.try_recv() {
                        Ok(post) => post,
                        Err(_) => return true,
                    }
                }
                // The next call notices the end.
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return true,
            };
        }
    }

    /// Sends the answers to the shards whose publishers wait.
    fn deliver_everywhere(&mut self) {
        for answer in self.history_store.answers() {
            self.backlog.bytes.fetch_sub(cost(answer.bytes), Ordering::Relaxed);
            let Some(token) = answer.token else { continue };
            let persisted = Persisted { number: token.number, is_persisted: answer.is_persisted };
            if token.is_of_handle() {
                self.outcomes.settle(&[persisted]);
            } else if let Some(answers) = self.answers.get_mut(usize::from(token.shard)) {
                answers.push(persisted);
            }
        }
        for (shard, answers) in self.answers.iter_mut().enumerate().filter(|(_, answers)| !answers.is_empty()) {
            let _ended = self.mailboxes.send_to_shard(shard, ShardMessage::Persisted(std::mem::take(answers)));
        }
        let (metrics, figures) = (&self.metrics, self.history_store.figures());
        metrics.history_store_backlog_bytes.set(self.backlog.bytes.load(Ordering::Relaxed));
        metrics.history_store_records.set(figures.persisted as usize);
        metrics.history_store_refused.set(figures.refused as usize);
        metrics.history_store_commits.set(figures.commits as usize);
        metrics.history_store_failures.set(figures.failures as usize);
        metrics.history_store_compactions.set(figures.compactions as usize);
        metrics.history_store_given_up.set(figures.given_up as usize);
        metrics.journal_bytes.set(figures.bytes as usize);
        metrics.journal_segments.set(figures.segments);
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// The charge for a waiting record, in bytes, including the reply that waits for it.
fn cost(bytes: usize) -> usize {
    bytes + 256
}

/// The bytes without an answer above which publishers wait: well below what the log holds in memory.
const BACKLOG_BYTES_MAX: usize = 8 << 20;
/// The bytes taken before a commit.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// The number of records in one group that suggests more are arriving.
const BUSY_RECORDS: usize = 4;
/// The pause in which further records are gathered.
const GATHER_PAUSE: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use simulated_disk::SimDisk;
    use tokio::sync::mpsc as mailbox;

    use super::*;
    use crate::net::thread_message::ThreadMessage;
    use encke_core::{Envelope, HistoryCommit, Settings};
    use encke_core::{Now, PublishToken};
    use encke_store::{Recovery, StoreOptions};

    fn inbox() -> (Inbox, Receiver<Post>) {
        let (posts, receiver) = mpsc::channel();
        (Inbox { posts, backlog: Arc::default() }, receiver)
    }

    fn request(bytes: usize) -> PersistRequest {
        PersistRequest { record: vec![0; bytes], token: None }
    }

    #[test]
    fn a_full_inbox_makes_publishers_wait_and_refuses_further_records() {
        let (inbox, posts) = inbox();
        let mut taken = 0;
        while !inbox.is_full() {
            inbox.put(request(100_000)).expect("room");
            taken += 1;
        }
        assert!(taken >= BACKLOG_BYTES_MAX / cost(100_000));
        while inbox.put(request(100_000)).is_ok() {
            taken += 1;
        }
        assert!(taken <= 2 * BACKLOG_BYTES_MAX / 100_000, "{taken}");
        assert!(inbox.backlog.has_refused.load(Ordering::Relaxed), "the store thread has to know of it");
        assert_eq!(posts.try_iter().count(), taken);
    }

    #[test]
    fn small_records_fill_it_too() {
        let (inbox, _posts) = inbox();
        let count = (0..).take_while(|_| inbox.put(request(0)).is_ok()).count();
        assert!(count <= 2 * BACKLOG_BYTES_MAX / cost(0));
    }

    #[test]
    fn an_inbox_without_a_receiver_returns_records_and_is_never_full() {
        let (inbox, posts) = inbox();
        drop(posts);
        assert_eq!(inbox.put(request(7)).err().map(|request| request.record.len()), Some(7));
        for _ in 0..200 {
            inbox.put(request(100_000)).expect_err("nobody takes it");
        }
        assert!(!inbox.is_full());
    }

    #[test]
    fn after_a_panic_everything_is_answered_as_not_stored() {
        let disk = SimDisk::new(1);
        let settings = Settings { history_commit: HistoryCommit::Always, ..Settings::default() };
        let now = Now { ms: 1 << 40, wall_ms: 1_700_000_000_000 };
        let opened =
            HistoryStore::open(disk.clone(), StoreOptions::new(&settings), 7, &mut Recovery::new(&settings, now));
        let Ok((history_store, _)) = opened else { panic!("an empty disk opens") };
        let (mailbox, mut message) = mailbox::unbounded_channel();
        let (inbox, posts) = inbox();
        let metrics = Arc::<Metrics>::default();
        let worker = StoreWorker {
            history_store,
            shared: Arc::new(Shared::new(1, Box::new(encke_core::NoApplication))),
            mailboxes: Mailboxes::new(vec![mailbox], Arc::default()),
            outcomes: Arc::default(),
            metrics: metrics.clone(),
            posts,
            backlog: inbox.backlog.clone(),
            answers: vec![Vec::new()],
            left: 0,
            start: Instant::now(),
        };
        let with_token = |number| PersistRequest { record: vec![1], token: Some(PublishToken { shard: 0, number }) };
        disk.faults(|faults| faults.panics = true);
        // Both are queued before the thread starts, so one commit takes them. The third arrives after the panic.
        inbox.put(with_token(1)).expect("room");
        inbox.put(with_token(2)).expect("room");
        let thread = std::thread::spawn(move || worker.run());
        let mut answers = Vec::new();
        let mut receive = |count: usize| {
            while answers.len() < count {
                let Some(ThreadMessage::FromShard(Envelope { message: ShardMessage::Persisted(stored), .. })) =
                    message.blocking_recv()
                else {
                    panic!("no answer")
                };
                answers.extend(stored.iter().map(|stored| (stored.number, stored.is_persisted)));
            }
        };
        receive(2);
        inbox.put(with_token(3)).expect("room");
        receive(3);
        assert_eq!(answers, [(1, false), (2, false), (3, false)]);
        assert_eq!(inbox.backlog.bytes.load(Ordering::Relaxed), 0);
        inbox.leave();
        thread.join().expect("it ends when the last shard has left");
        assert_eq!((metrics.history_store_panicked.get(), metrics.history_store_refused.get()), (1, 3));
    }
}
