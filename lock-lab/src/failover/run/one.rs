//! One run: one fault on one arrangement of servers.

use std::{path::Path, time::Duration};

use lock_core::{BootInstant, Clock, LockName};

use super::{aftermath, expected::expected, watch::Watch};
use crate::{
    LabError,
    failover::{
        arrangement::Arrangement,
        check::{Moments, check},
        crew::{Crew, CrewOptions},
        events::{Lock, now},
        fault::{Fault, Strikes},
        matrix::Pair,
        report::{Figures, Scenery, Timeline, Verdict},
        scene::{Scene, Side},
    },
    report::millis,
};

/// The ttl, or session time-out: short, so that a run sees it end.
const LEASE: Duration = Duration::from_secs(1);
/// The same where a replica takes the place of a primary: a failover, of some two seconds, has to fit into it.
const LEASE_WITH_REPLICAS: Duration = Duration::from_secs(4);
/// The same where two holders are to be seen: the old one must not ask for a renewal, by which it would hear of its loss,
/// before the failover is over and the next one holds.
const LEASE_FOR_TWO_HOLDERS: Duration = Duration::from_secs(15);
/// The process that is struck, or that holds the kept lock when something else is.
const VICTIM: usize = 0;
/// The one that wants the kept lock next.
const NEXT: usize = 1;
/// One that has not waited, and asks when the servers are back: those that wait may hear of that late.
const LATE: usize = 2;
const PROCESSES: usize = 3;
/// Clients of the busy lock in each process.
const CLIENTS: usize = 2;

/// What counts as traffic, in operations a second.
const TRAFFIC: f64 = 50.0;
/// How long anything may take that must come before the fault. Far above what it takes.
const LIMIT: Duration = Duration::from_secs(30);
/// From the grant of the kept lock to the fault: a renewal is in it, and not the end of the lease.
const SETTLED: Duration = Duration::from_millis(500);
/// How much longer than a lease a fault lasts that is healed.
const LONGER: Duration = Duration::from_millis(1_000);
/// How long a stopped holder stays so when the next one holds its lock.
const OVERTAKEN: Duration = Duration::from_millis(200);
/// How long the load goes on afterwards: all that a fault leaves has ended by then.
const AFTERWARDS: Duration = Duration::from_millis(1_500);
/// How long the processes may take to end by themselves.
const END: Duration = Duration::from_secs(6);

/// What one run brought.
pub(super) struct Seen {
    pub(super) version: String,
    pub(super) figures: Figures,
    pub(super) verdict: Verdict,
}

/// The ttl, or session time-out, in such a run.
fn lease(Pair { on, fault }: Pair) -> Duration {
    match fault {
        Fault::FailoverBeforeReplication => LEASE_FOR_TWO_HOLDERS,
        _ if on.replicates() && fault.strikes() == Strikes::Servers => LEASE_WITH_REPLICAS,
        _ => LEASE,
    }
}

/// The leases in a sentence.
pub(super) fn leases() -> String {
    let [usual, replicas, two] = [LEASE, LEASE_WITH_REPLICAS, LEASE_FOR_TWO_HOLDERS].map(|lease| lease.as_secs());
    format!(
        "The lease (ttl, or session time-out) is {usual} s; {replicas} s where replicas take over, so that a failover fits \
         into it, and {two} s where the failover comes before replication, so that the old holder does not hear of it from \
         its next renewal, a third of the lease later."
    )
}

/// The load in a sentence.
pub(super) fn load() -> String {
    format!(
        "{PROCESSES} processes with {CLIENTS} clients each take, hold and release the busy lock; one process keeps the kept \
         lock, and writes under it without looking whether it still holds it; another one waits for it."
    )
}

/// When the fault began and ended, and what else happened.
struct Struck {
    at: BootInstant,
    healed: Option<BootInstant>,
    /// When servers and network were as before, or what had struck once was past.
    whole: BootInstant,
    /// From the fault on until the servers took a write again, by themselves.
    served_again: Option<Duration>,
}

/// Runs it.
pub(super) async fn run(pair: Pair, program: &Path) -> Result<Seen, LabError> {
    let clock = Clock::boot();
    let lease = lease(pair);
    let mut scene = Scene::start(pair.on, pair.fault, kept()?, lease).await?;
    let version = scene.version().await?;
    let mut crew = Crew::start(&crew(program, &scene, lease)).await?;
    crew.wait_for_traffic(TRAFFIC, LIMIT).await?;
    let observer = scene.observer();
    let quorum = observer.quorum();
    let watch = Watch::start(observer.clone());
    scene.prepare().await?;
    crew.keep(VICTIM, LIMIT).await?;
    crew.want(NEXT, LIMIT).await?;
    clock.sleep(SETTLED).await;

    let struck = strike(pair, lease + LONGER, &mut scene, &mut crew).await?;
    clock.sleep(AFTERWARDS).await;
    let moments = Moments { fault: struck.at, end: now() };
    let truths = watch.finish().await?;
    let mut history = crew.finish(END).await?;
    let expected = expected(pair, lease, quorum);
    history.aftermath = Some(aftermath::look(&observer, &history, struck.whole, expected.lingers).await);

    let findings = check(&history, &truths, moments, &expected);
    let marks =
        struck.served_again.map(|after| (struck.at.saturating_add(after), "the servers serve again".to_owned()));
    let scenery = Scenery { moments, healed: struck.healed, marks: marks.into_iter().collect() };
    let timeline = Timeline::of(&findings, &history.writes, &scenery);
    let re_election_ms = struck.served_again.map(millis);
    let figures = Figures { re_election_ms, ..Figures::of(&findings, timeline) };
    Ok(Seen { version, figures, verdict: Verdict::of(&findings, pair.fault.expects(pair.on).reason()) })
}

fn kept() -> Result<LockName, LabError> {
    LockName::new(Lock::Kept.name()).map_err(LabError::lock("naming the kept lock"))
}

fn crew(program: &Path, scene: &Scene, lease: Duration) -> CrewOptions {
    let mut options = CrewOptions::new(program, &scene.url(Side::Others, lease), PROCESSES, CLIENTS);
    options.members[VICTIM].url = scene.url(Side::Victim, lease);
    // The keeper: against one that does not look only a fence helps, and that is to be seen.
    options.members[VICTIM].careless = 1;
    options
}

/// Has the fault strike, last and end.
async fn strike(pair: Pair, lasts: Duration, scene: &mut Scene, crew: &mut Crew) -> Result<Struck, LabError> {
    let fault = pair.fault;
    let clock = Clock::boot();
    let at = now();
    if fault.strikes() == Strikes::Holder {
        let healed = strike_holder(fault, lasts, crew).await?;
        return Ok(Struck { at, healed, whole: healed.unwrap_or(at), served_again: None });
    }
    let observer = scene.observer();
    scene.inject().await?;
    let served_again = if stops_service(pair) {
        let served = observer.served_again().await?;
        if fault == Fault::FailoverBeforeReplication {
            crew.want(LATE, LIMIT).await?;
        }
        Some(served)
    } else {
        None
    };
    let lasts = if fault.is_momentary() { Duration::ZERO } else { lasts };
    clock.sleep(lasts.saturating_sub(now().saturating_since(at))).await;
    scene.heal().await?;
    let healed = (!fault.is_momentary()).then(now);
    scene.healthy().await?;
    Ok(Struck { at, healed, whole: now(), served_again })
}

/// Whether the service as a whole stands still until its servers have chosen another leader, or the one is back: before
/// the fault is healed, that is.
fn stops_service(Pair { on, fault }: Pair) -> bool {
    let replaced = on.replicates() || on == Arrangement::Zk3;
    match fault {
        Fault::ServerKilled | Fault::ServerFrozen => replaced,
        Fault::ServerRestartedEmpty | Fault::ServerRestartedDurable => !on.is_redlock(),
        Fault::FailoverBeforeReplication => true,
        _ => false,
    }
}

/// The faults that strike the process of the holder: when it goes on, if it does.
async fn strike_holder(fault: Fault, lasts: Duration, crew: &mut Crew) -> Result<Option<BootInstant>, LabError> {
    match fault {
        Fault::HolderStopped => {
            crew.stop(VICTIM).await?;
            overtaken(crew).await?;
            Clock::boot().sleep(OVERTAKEN).await;
            crew.resume(VICTIM)?;
            Ok(Some(now()))
        }
        Fault::HolderStarved => {
            crew.starve(VICTIM, lasts).await?;
            Clock::boot().sleep(lasts).await;
            Ok(Some(now()))
        }
        _ => {
            crew.kill(VICTIM).await?;
            overtaken(crew).await?;
            Ok(None)
        }
    }
}

/// Waits until the next one holds the kept lock.
async fn overtaken(crew: &mut Crew) -> Result<(), LabError> {
    let clock = Clock::boot();
    let deadline = now().saturating_add(LIMIT);
    while crew.holder(Lock::Kept).is_none_or(|holder| holder.whose.process == VICTIM) {
        if now() > deadline {
            return Err(LabError::run(format!("nobody else holds the lock {LIMIT:?} after its holder was struck")));
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
