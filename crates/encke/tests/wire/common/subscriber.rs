//! Waits for subscriptions in the process of the server, on the thread of a test.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};

use encke::{Gap, Message, Subscription};

use super::TIMEOUT;

/// Wakes a thread that waits at a channel.
struct Bell(Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _gone = self.0.send(());
    }
}

/// Waits for a future on this thread.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let (bell, rung): (_, Receiver<()>) = channel();
    let waker = Waker::from(Arc::new(Bell(bell)));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        rung.recv_timeout(TIMEOUT).expect("nothing came in time");
    }
}

/// The next item of a subscription.
pub fn next(subscription: &mut Subscription) -> Result<Message, Gap> {
    wait(subscription.next()).expect("the server runs")
}

/// The data of the next messages.
pub fn data(subscription: &mut Subscription, count: usize) -> Vec<String> {
    (0..count).map(|_| next(subscription).expect("a message").data().to_owned()).collect()
}

/// True if nothing waits for the reader of a subscription.
pub fn is_silent(subscription: &mut Subscription) -> bool {
    let mut next = pin!(subscription.next());
    next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}
