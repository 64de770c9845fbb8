//! Batches of attempts, each on a few locks, and what they leave.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use lock::{BootInstant, Clock, Error, Guard, LockName, Locks, Permit, WriteGuard};
use lock_lab::proxy::Proxy;
use tokio::task::JoinSet;

use crate::cancellations::{
    choices::{Cancel, Choice, Ending, Fault, Way},
    dropped::{Ended, run},
    service::{Link, Service},
};

/// Far beyond what anything here takes; a run that waits that long has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// How many attempts are made on the locks of one batch.
const ATTEMPTS: usize = 24;
/// How many names they choose from.
const NAMES: usize = ATTEMPTS + 2;
/// How many batches run at a time: half of them over connections that are cut.
const LANES: usize = 4;
/// Of so many batches with a fault, one has a connection that is never whole again.
const STAYS_CUT: u8 = 12;
/// How many permits there are.
const PERMITS: u32 = 2;

/// What came of the attempts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Dropped with its request under way, or before.
    asking: usize,
    /// Dropped while another held the lock.
    behind: usize,
    /// Dropped when there was news for it, a grant among others, that it had not seen yet.
    with_news: usize,
    granted: usize,
    /// Of those granted: the release was dropped, too.
    releases_dropped: usize,
    refused: usize,
    failed: usize,
}

impl Tally {
    fn cancelled(&self) -> usize {
        self.asking + self.behind + self.with_news
    }

    fn add(&mut self, other: &Self) {
        self.asking += other.asking;
        self.behind += other.behind;
        self.with_news += other.with_news;
        self.granted += other.granted;
        self.releases_dropped += other.releases_dropped;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

/// The attempts of one kind of batch, and how long the servers had something of each after the last was dropped.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub(crate) tally: Tally,
    pub(crate) emptied: Vec<Duration>,
}

impl Half {
    /// The longest that servers had something of a batch.
    pub(crate) fn slowest(&self) -> Duration {
        self.emptied.iter().copied().max().unwrap_or_default()
    }

    /// Below which so many of a thousand were.
    fn quantile(&self, of_thousand: usize) -> Duration {
        let mut took = self.emptied.clone();
        took.sort_unstable();
        took.get((took.len() * of_thousand / 1000).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The service could be reached all the time.
    pub(crate) reachable: Half,
    /// The connection was cut or held; it was whole again when the batch was over.
    pub(crate) cut: Half,
    /// The connection was cut and stayed so.
    pub(crate) stayed_cut: Half,
}

impl Outcome {
    pub(crate) fn cancelled(&self) -> usize {
        [&self.reachable, &self.cut, &self.stayed_cut].iter().map(|half| half.tally.cancelled()).sum()
    }

    fn half(&mut self, kind: Kind) -> &mut Half {
        match kind {
            Kind::Reachable => &mut self.reachable,
            Kind::Cut => &mut self.cut,
            Kind::StaysCut => &mut self.stayed_cut,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, half) in [("reachable", &self.reachable), ("cut", &self.cut), ("stays cut", &self.stayed_cut)] {
            let Half { tally, emptied } = half;
            writeln!(
                f,
                "  {what:9} {:5} cancelled: {} asking, {} behind a holder, {} with news; {} granted ({} releases \
                 cancelled), {} refused, {} failed; {} batches, the servers were empty after {:.1?} (half of them), \
                 {:.1?} (nine of ten), {:.1?} (99 of 100), {:.1?} (all)",
                tally.cancelled(),
                tally.asking,
                tally.behind,
                tally.with_news,
                tally.granted,
                tally.releases_dropped,
                tally.refused,
                tally.failed,
                emptied.len(),
                half.quantile(500),
                half.quantile(900),
                half.quantile(990),
                half.slowest(),
            )?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reachable,
    Cut,
    StaysCut,
}

/// The seed of this run: that of `CANCEL_SEED`, to do what an earlier run did, or a new one.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("CANCEL_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("CANCEL_SEED is a whole number"))
}

/// Cancels attempts on `service` until there were `count`, half of them over connections that are cut.
///
/// # Panics
/// When a server still has something of a batch long after its last attempt was dropped.
pub(crate) async fn cancel(service: Service, seed: u64, count: usize) -> Outcome {
    let service = Arc::new(service);
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let is_cut = service.is_remote() && lane % 2 == 1;
        let goal = count.div_ceil(LANES);
        let lane = Lane { service: Arc::clone(&service), seed, lane, is_cut, after: JoinSet::new() };
        lanes.spawn(lane.run(goal));
    }
    let mut all = Outcome::default();
    while let Some(outcome) = lanes.join_next().await {
        let outcome = outcome.unwrap_or_else(|error| panic!("CANCEL_SEED={seed}: {error}"));
        for (kind, half) in
            [(Kind::Reachable, outcome.reachable), (Kind::Cut, outcome.cut), (Kind::StaysCut, outcome.stayed_cut)]
        {
            let sum = all.half(kind);
            sum.tally.add(&half.tally);
            sum.emptied.extend(half.emptied);
        }
    }
    all
}

/// One batch after the other.
struct Lane {
    service: Arc<Service>,
    seed: u64,
    lane: usize,
    is_cut: bool,
    /// Batches whose connection stays cut, whose locks end by their ttl.
    after: JoinSet<Duration>,
}

impl Lane {
    async fn run(mut self, goal: usize) -> Outcome {
        let mut outcome = Outcome::default();
        let direct = [self.service.connect().await, self.service.connect().await];
        let mut link = None;
        let mut number = 0_u64;
        while outcome.cancelled() < goal {
            let rng = Rng::with_seed(self.seed ^ (number << 8) ^ self.lane as u64);
            if self.is_cut && link.is_none() {
                link = Some(self.service.link().await);
            }
            self.batch(number, rng, &direct, &mut link, &mut outcome).await;
            number += 1;
        }
        while let Some(took) = self.after.join_next().await {
            outcome.half(Kind::StaysCut).emptied.push(took.expect("everything went"));
        }
        for locks in direct.into_iter().chain(link.map(|link| link.locks)) {
            locks.close(LIMIT).await.expect("nothing is left to be given back");
        }
        outcome
    }

    async fn batch(
        &mut self,
        number: u64,
        mut rng: Rng,
        direct: &[Locks; 2],
        link: &mut Option<Link>,
        outcome: &mut Outcome,
    ) {
        let batch = format!("b{}-{number}", self.lane);
        let name = |name: String| LockName::new(format!("{batch}.{name}")).expect("a name");
        // The second half is for permits: one name is one kind of lock.
        let names: Vec<LockName> =
            ["", "p"].iter().flat_map(|kind| (0..NAMES).map(move |at| format!("{kind}{at}"))).map(name).collect();
        let holders: Arc<[AtomicUsize]> = names.iter().map(|_| AtomicUsize::new(0)).collect();
        let ways = Service::ways(&direct[0]);
        let mut attempts = JoinSet::new();
        for index in 0..ATTEMPTS {
            let choice = Choice::draw(&mut rng, index, &ways);
            let locks = match link {
                Some(link) if choice.severable => link.locks.clone(),
                _ => direct[index % 2].clone(),
            };
            attempts.spawn(attempt(locks, choice, names.clone(), Arc::clone(&holders)));
        }
        let kind = match link {
            None => Kind::Reachable,
            Some(_) if rng.u8(..STAYS_CUT) == 0 => Kind::StaysCut,
            Some(_) => Kind::Cut,
        };
        if let Some(link) = link {
            let fault = Fault::draw(&mut rng);
            strike(link, if kind == Kind::StaysCut { Fault::Cut(Duration::from_millis(6)) } else { fault }).await;
        }
        let half = outcome.half(kind);
        while let Some(done) = attempts.join_next().await {
            half.tally.add(&done.expect("an attempt does not panic"));
        }
        self.is_empty_again(kind, names, link, outcome).await;
    }

    /// Waits until the servers have nothing of a batch any more.
    async fn is_empty_again(
        &mut self,
        kind: Kind,
        names: Vec<LockName>,
        link: &mut Option<Link>,
        outcome: &mut Outcome,
    ) {
        if kind != Kind::Reachable {
            // What had come to a server before the cut is done when it has answered twice since: it goes round all that is
            // ready before it begins anew. Until then it may grant for the first time what nobody can take back.
            for _ in 0..2 {
                self.service.left(&names).await;
            }
        }
        let ended = Clock::boot().now();
        let (service, seed) = (Arc::clone(&self.service), self.seed);
        let looking = async move { until_empty(&service, &names, ended, seed).await };
        if kind == Kind::StaysCut {
            let cut = link.take();
            self.after.spawn(async move {
                let took = looking.await;
                // Only now: the proxies would serve nobody either way, and the cleanup is not to be stopped early.
                drop(cut);
                took
            });
            return;
        }
        if let Some(link) = link {
            link.proxies.iter().for_each(Proxy::heal);
        }
        let took = looking.await;
        outcome.half(kind).emptied.push(took);
        if let Some(link) = link {
            works_again(&link.locks).await;
        }
    }
}

/// Waits until the servers have nothing of these names any more.
async fn until_empty(service: &Service, names: &[LockName], since: BootInstant, seed: u64) -> Duration {
    let clock = Clock::boot();
    let mut told = false;
    loop {
        let looks = clock.now();
        let left = service.left(names).await;
        let now = clock.now();
        let took = now.saturating_since(since);
        if left.is_empty() {
            return took;
        }
        if took > service.bound() && !told {
            println!("after {took:.1?} there still is {left:?}");
            told = true;
        }
        assert!(took < LIMIT, "CANCEL_SEED={seed}: {took:?} after the last attempt ended there still is {left:?}");
        // A look goes through all keys of a server, which serves nobody else meanwhile: half of its time is the locks'.
        let pause = now.saturating_since(looks).clamp(Duration::from_millis(2), Duration::from_millis(20));
        clock.sleep(pause).await;
    }
}

async fn works_again(locks: &Locks) {
    let works = async {
        while locks.mutex("works").try_lock().await.is_err() {
            Clock::boot().sleep(Duration::from_millis(10)).await;
        }
    };
    Clock::boot().timeout(LIMIT, works).await.expect("the connection works again");
}

async fn strike(link: &Link, fault: Fault) {
    let clock = Clock::boot();
    let proxies = &link.proxies;
    match fault {
        Fault::Cut(at) => {
            clock.sleep(at).await;
            proxies.iter().for_each(Proxy::cut);
        }
        Fault::CutOnce(at) => {
            clock.sleep(at).await;
            proxies.iter().for_each(Proxy::cut_once);
        }
        Fault::CutAtReply(after) => proxies.iter().for_each(|proxy| proxy.cut_at_reply(after)),
        Fault::Hold(at, time) => {
            clock.sleep(at).await;
            proxies.iter().for_each(Proxy::hold);
            clock.sleep(time).await;
            proxies.iter().for_each(Proxy::heal);
        }
        Fault::HoldReplies(at, time) => {
            clock.sleep(at).await;
            proxies.iter().for_each(Proxy::hold_replies);
            clock.sleep(time).await;
            proxies.iter().for_each(Proxy::heal);
        }
    }
}

/// What an attempt got.
enum Got {
    Guard(Guard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Got {
    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

async fn attempt(locks: Locks, choice: Choice, names: Vec<LockName>, holders: Arc<[AtomicUsize]>) -> Tally {
    Clock::boot().sleep(choice.starts).await;
    let mut tally = Tally::default();
    let at = choice.name + if choice.way == Way::Permit { NAMES } else { 0 };
    let here = &holders[at];
    let ended = run(choice.cancel, acquire(&locks, &choice, &names[at])).await;
    match ended {
        Ended::Dropped { news: true } => tally.with_news += 1,
        Ended::Dropped { news: false } if here.load(Ordering::Acquire) > 0 => tally.behind += 1,
        Ended::Dropped { news: false } => tally.asking += 1,
        Ended::Finished(Ok(None)) => tally.refused += 1,
        Ended::Finished(Err(_)) => tally.failed += 1,
        Ended::Finished(Ok(Some(got))) => {
            tally.granted += 1;
            here.fetch_add(1, Ordering::AcqRel);
            Clock::boot().sleep(choice.held).await;
            match choice.ending {
                // A connection that is cut cannot say that it was released.
                Ending::Release => drop(got.release().await),
                Ending::Drop => drop(got),
                Ending::DropRelease(polls) => {
                    let released = run(Cancel::AfterPolls(polls), got.release()).await;
                    tally.releases_dropped += usize::from(matches!(released, Ended::Dropped { .. }));
                }
            }
            here.fetch_sub(1, Ordering::AcqRel);
        }
    }
    tally
}

async fn acquire(locks: &Locks, choice: &Choice, name: &LockName) -> Result<Option<Got>, Error> {
    let (guard, write, permit) = (Got::Guard, Got::Write, Got::Permit);
    let name = name.as_str();
    Ok(match (choice.way, choice.waits) {
        (Way::Lock, true) => Some(guard(locks.mutex(name).lock().await?)),
        (Way::Lock, false) => locks.mutex(name).try_lock().await?.map(guard),
        (Way::Read, true) => Some(guard(locks.rwlock(name).read().await?)),
        (Way::Read, false) => locks.rwlock(name).try_read().await?.map(guard),
        (Way::Write, true) => Some(write(locks.rwlock(name).write().await?)),
        (Way::Write, false) => locks.rwlock(name).try_write().await?.map(write),
        (Way::Permit, true) => Some(permit(locks.semaphore(name, PERMITS).acquire().await?)),
        (Way::Permit, false) => locks.semaphore(name, PERMITS).try_acquire().await?.map(permit),
    })
}
