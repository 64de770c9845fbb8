//! A future that is dropped half-way, at a moment that was chosen.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use lock::{BootInstant, Clock};

use crate::cancellations::choices::Cancel;

/// How it ended.
pub(crate) enum Ended<T> {
    Finished(T),
    /// Dropped: whether something had woken it that it did not see any more.
    Dropped {
        news: bool,
    },
}

/// How long an attempt is left alone that waits for a connection that is cut.
const LEFT_ALONE: Duration = Duration::from_millis(150);

/// Runs `future` until it ends or is dropped. It is polled only when it was woken.
pub(crate) async fn run<F: Future>(cancel: Cancel, future: F) -> Ended<F::Output> {
    let mut cancelled = Cancelled { future: Some(Box::pin(future)), heard: None, cancel, polls: 0 };
    let time = match cancel {
        Cancel::After(time) => time,
        Cancel::AfterPolls(_) | Cancel::AtNews(_) | Cancel::Never => LEFT_ALONE,
    };
    let until = Clock::boot().now().saturating_add(time);
    tokio::select! {
        biased;
        ended = &mut cancelled => ended,
        () = moment(until) => Ended::Dropped { news: cancelled.has_news() },
    }
}

/// Sleeps, and turns round and round for the last of it: timers are too coarse for a moment within a round trip.
async fn moment(until: BootInstant) {
    const COARSE: Duration = Duration::from_millis(2);
    let clock = Clock::boot();
    clock.sleep_until(until.saturating_sub(COARSE)).await;
    while clock.now() < until {
        tokio::task::yield_now().await;
    }
}

struct Cancelled<F> {
    future: Option<Pin<Box<F>>>,
    /// What its last poll left to be woken by.
    heard: Option<Arc<Heard>>,
    cancel: Cancel,
    polls: usize,
}

/// Passes a wake-up on, and remembers it.
struct Heard {
    news: AtomicBool,
    task: Waker,
}

impl Wake for Heard {
    fn wake(self: Arc<Self>) {
        self.news.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl<F> Cancelled<F> {
    fn has_news(&self) -> bool {
        self.heard.as_ref().is_some_and(|heard| heard.news.load(Ordering::Acquire))
    }
}

impl<F: Future> Future for Cancelled<F> {
    type Output = Ended<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let news = this.has_news();
        if this.heard.is_some() && !news {
            return Poll::Pending;
        }
        if matches!(this.cancel, Cancel::AtNews(polls) if this.polls >= polls) {
            this.future = None;
            return Poll::Ready(Ended::Dropped { news });
        }
        let heard = Arc::new(Heard { news: AtomicBool::new(false), task: cx.waker().clone() });
        let waker = Waker::from(Arc::clone(&heard));
        this.heard = Some(heard);
        this.polls += 1;
        let future = this.future.as_mut().expect("a finished future is not polled again");
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Poll::Ready(Ended::Finished(done));
        }
        if matches!(this.cancel, Cancel::AfterPolls(polls) if this.polls >= polls) {
            let news = this.has_news();
            this.future = None;
            return Poll::Ready(Ended::Dropped { news });
        }
        Poll::Pending
    }
}
