//! Tasks that wake themselves, without the cost of it.
//!
//! The parts of a connection tell each other of what they have read by waking the task that all of
//! them are. The runtime puts such a task behind the others and wakes another thread to take it,
//! which on the way of a write takes longer than all that is left to do. So a task that was woken
//! while it ran just goes on.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// How often a task goes on at once before others have their turn.
const ROUNDS: usize = 16;

/// Nobody looks; who wakes it has it looked at.
const RESTING: u8 = 0;
/// It is being looked at.
const RUNNING: u8 = 1;
/// It was woken meanwhile.
const WOKEN: u8 = 2;

thread_local! {
    /// Whether what runs on this thread has given way.
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
}

/// A future that is polled again at once when it was woken while it was polled.
#[derive(Debug)]
pub(crate) struct Poised<F> {
    future: Pin<Box<F>>,
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    /// Whom to wake for it.
    task: Mutex<Waker>,
}

impl<F> Poised<F> {
    pub(crate) fn new(future: F) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicU8::new(RESTING),
            task: Mutex::new(Waker::noop().clone()),
        });
        Self {
            future: Box::pin(future),
            waker: Arc::clone(&shared).into(),
            shared,
        }
    }
}

impl<F: Future> Future for Poised<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self {
            future,
            shared,
            waker,
        } = &mut *self;
        shared.is_run_by(context.waker());
        let mut inner = Context::from_waker(waker);
        for _ in 0..ROUNDS {
            shared.state.store(RUNNING, Ordering::SeqCst);
            GAVE_WAY.set(false);
            if let Poll::Ready(output) = future.as_mut().poll(&mut inner) {
                return Poll::Ready(output);
            }
            let gave_way = GAVE_WAY.replace(false);
            let state = shared.state.swap(RESTING, Ordering::SeqCst);
            // Who gave way has seen to it that it is woken when the others are done.
            if gave_way || state == RUNNING {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Shared {
    fn is_run_by(&self, task: &Waker) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone_from(task);
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let running =
            self.state
                .compare_exchange(RUNNING, WOKEN, Ordering::SeqCst, Ordering::SeqCst);
        if running == Err(RESTING) {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
            task.wake_by_ref();
        }
    }
}

/// Lets those run first who were woken on this thread.
pub(crate) async fn give_way() {
    let mut others = pin!(tokio::task::yield_now());
    std::future::poll_fn(|context| {
        let done = others.as_mut().poll(context);
        if done.is_pending() {
            GAVE_WAY.set(true);
        }
        done
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::{Notify, mpsc};

    use super::*;

    /// Counts how often the runtime polls a future.
    async fn polls<F: Future>(future: F) -> (F::Output, usize) {
        let count = AtomicUsize::new(0);
        let mut future = pin!(future);
        let output = std::future::poll_fn(|context| {
            count.fetch_add(1, Ordering::Relaxed);
            future.as_mut().poll(context)
        })
        .await;
        (output, count.into_inner())
    }

    /// Two parts of one task that tell each other things.
    async fn talk(words: usize) -> usize {
        let (there, mut heard) = mpsc::channel(1);
        let (back, mut answers) = mpsc::channel(1);
        let one = async {
            for word in 0..words {
                there.send(word).await.unwrap();
                answers.recv().await.unwrap();
            }
        };
        let other = async {
            let mut count = 0;
            while count < words {
                heard.recv().await.unwrap();
                count += 1;
                back.send(()).await.unwrap();
            }
            count
        };
        futures::future::join(other, one).await.0
    }

    #[tokio::test]
    async fn who_wakes_itself_goes_on_at_once_but_not_for_ever() {
        let (_, plainly) = polls(talk(5)).await;
        let (heard, poised) = polls(Poised::new(talk(5))).await;
        assert_eq!((heard, poised), (5, 1), "{plainly} otherwise");
        let (heard, polled) = polls(Poised::new(talk(1000))).await;
        assert_eq!(heard, 1000);
        assert!(polled > 10, "others had {polled} turns");
    }

    #[tokio::test]
    async fn who_gives_way_lets_the_others_run_first_even_if_it_woke_itself() {
        let (bell, order) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
        let watcher = tokio::spawn({
            let (bell, order) = (Arc::clone(&bell), Arc::clone(&order));
            async move {
                bell.notified().await;
                order.lock().unwrap().push("watcher");
            }
        });
        tokio::task::yield_now().await;
        let writer = tokio::spawn(Poised::new({
            let order = Arc::clone(&order);
            async move {
                talk(1).await;
                std::future::poll_fn(|context| {
                    context.waker().wake_by_ref();
                    Poll::Ready(())
                })
                .await;
                bell.notify_one();
                give_way().await;
                order.lock().unwrap().push("writer");
            }
        }));
        writer.await.unwrap();
        watcher.await.unwrap();
        assert_eq!(*order.lock().unwrap(), ["watcher", "writer"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_wakes_it_from_elsewhere_is_heard() {
        let (send, mut receive) = mpsc::channel::<usize>(1);
        let other = tokio::spawn(async move {
            for n in 0..20_000 {
                send.send(n).await.unwrap();
            }
        });
        let all = Poised::new(async move {
            let mut count = 0;
            while receive.recv().await.is_some() {
                count += 1;
            }
            count
        });
        let all = tokio::time::timeout(Duration::from_secs(60), tokio::spawn(all));
        assert_eq!(all.await.expect("a wake was lost").unwrap(), 20_000);
        other.await.unwrap();
    }
}
