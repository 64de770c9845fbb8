//! What `lock-core` promises a backend: each lease is released once, and its validity has ended by then.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError, mpsc},
    task::{self, Wake},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{
    Backend, Capabilities, Clock, Context, Error, Feature, Lease, LockName, Locks, Loss, ReleaseOutcome, Request,
    Snapshot, Validity,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(3600);

/// Grants everything, and records why each lease had been lost when it was asked to release it.
#[derive(Debug)]
struct Recorder {
    context: Context,
    released: Mutex<Vec<Option<Loss>>>,
    answer: ReleaseOutcome,
    /// Told of each release.
    release: Notify,
    /// Told when a downgrade has begun.
    downgrading: Notify,
    /// Lets a downgrade go on.
    downgrade: Notify,
}

#[derive(Debug)]
struct Recorded {
    recorder: Arc<Recorder>,
    validity: Validity,
}

#[async_trait]
impl Backend for Recorder {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new("recorder").with(Feature::ReadWrite).with(Feature::Downgrade)
    }

    async fn acquire(self: Arc<Self>, _: Request, _: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let clock = self.context.clock();
        Ok(Box::new(Recorded { validity: Validity::new(clock, clock.now().saturating_add(LONG)), recorder: self }))
    }

    async fn inspect(&self, _: &LockName) -> Result<Snapshot, Error> {
        Ok(Snapshot::default())
    }

    async fn close(&self, _: Duration) {}
}

#[async_trait]
impl Lease for Recorded {
    fn token(&self) -> u64 {
        7
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        self.recorder.released.lock().unwrap_or_else(PoisonError::into_inner).push(self.validity.loss());
        self.recorder.release.notify_one();
        Ok(self.recorder.answer)
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        self.recorder.downgrading.notify_one();
        self.recorder.downgrade.notified().await;
        Ok(self)
    }
}

fn recorder(answer: ReleaseOutcome) -> (Arc<Recorder>, Locks) {
    let context = Context::current().with_clock(Clock::runtime());
    let recorder = Recorder {
        context,
        released: Mutex::default(),
        answer,
        release: Notify::new(),
        downgrading: Notify::new(),
        downgrade: Notify::new(),
    };
    let recorder = Arc::new(recorder);
    (Arc::clone(&recorder), Locks::new(recorder))
}

impl Recorder {
    async fn until_released(&self, count: usize) {
        while self.released().len() < count {
            self.release.notified().await;
        }
    }

    fn released(&self) -> Vec<Option<Loss>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_ends_the_validity_before_anybody_is_asked() {
    let (recorder, locks) = recorder(ReleaseOutcome::Released);
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("a").lock().await.unwrap());
    let guard = locks.mutex("a").max_hold(Duration::from_secs(1)).lock().await.unwrap();
    assert_eq!(guard.lost().await, Loss::MaxHoldExceeded);
    recorder.until_released(3).await;
    assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::MaxHoldExceeded, .. })));
    let guard = locks.mutex("a").lock().await.unwrap();
    locks.close(LONG).await.unwrap();
    assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::Closed, .. })));
    let reasons = [Loss::Released, Loss::Released, Loss::MaxHoldExceeded, Loss::Closed];
    assert_eq!(recorder.released(), reasons.map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_server_does_not_have_any_more_was_lost() {
    let (_, locks) = recorder(ReleaseOutcome::Gone);
    let error = locks.mutex("a").lock().await.unwrap().release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { loss: Loss::Revoked, .. }), "{error}");
}

/// Does something at the moment at which it is woken, within the call that wakes it.
struct ActWhenWoken(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for ActWhenWoken {
    fn wake(self: Arc<Self>) {
        if let Some(act) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            act();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_released_or_downgraded_in_the_middle_of_a_close_was_lost() {
    let (recorder, locks) = recorder(ReleaseOutcome::Released);
    let first = locks.mutex("a").lock().await.unwrap();
    let (second, third) = (locks.mutex("b").lock().await.unwrap(), locks.rwlock("c").write().await.unwrap());
    let (told, results) = mpsc::channel();
    let act = move || {
        told.send(second.release().now_or_never()).unwrap();
        let downgraded = third.downgrade().now_or_never();
        told.send(downgraded.map(|done| done.map(drop).map_err(|failed| failed.error))).unwrap();
    };
    let waker = Arc::new(ActWhenWoken(Mutex::new(Some(Box::new(act))))).into();
    let mut lost = pin!(first.lost());
    // It is woken when the validity of the first lock has ended, and that of the others has not.
    assert!(lost.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending());
    locks.close(LONG).await.unwrap();
    let results: Vec<_> = results.try_iter().collect();
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(matches!(result, Some(Err(Error::Lost { loss: Loss::Closed, .. }))), "{result:?}");
    }
    assert_eq!(recorder.released(), [Some(Loss::Closed); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_in_the_middle_of_a_downgrade_is_released_before_the_connection_ends() {
    let (recorder, locks) = recorder(ReleaseOutcome::Released);
    let writer = locks.rwlock("a").write().await.unwrap();
    let downgrade = tokio::spawn(writer.downgrade());
    recorder.downgrading.notified().await;
    let mut closing = pin!(locks.close(LONG));
    assert!(Clock::runtime().timeout(LONG / 2, &mut closing).await.is_none(), "it waits for the downgrade");
    assert!(recorder.released().is_empty());
    recorder.downgrade.notify_one();
    closing.await.unwrap();
    assert_eq!(recorder.released(), [Some(Loss::Closed)]);
    assert!(matches!(downgrade.await.unwrap().unwrap_err().error, Error::Lost { loss: Loss::Closed, .. }));
}
