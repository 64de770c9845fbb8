//! One run: one fault on one arrangement of servers.

use std::{path::Path, time::Duration};

use lock_core::{Clock, LockName};

use super::{
    expected::expected,
    play::{LIMIT, NEXT, VICTIM, play},
    post_check,
    watch::TruthWatch,
};
use crate::{
    LabError,
    deployment::Deployment,
    failover::{
        check::{Expected, Moments, Strangers, check},
        events::{Lock, now},
        fault::{Fault, scenario::Scenario},
        matrix::Pair,
        report::{Figures, Timeline, TimelineContext, Verdict},
        scene::{Scene, Side},
        workers::{WorkerOptions, Workers, WorkersOptions},
    },
    report::in_millis,
};

/// The ttl, or session time-out: short, so that a run sees it end.
const LEASE: Duration = Duration::from_secs(1);
const PROCESSES: usize = 3;
/// Clients of the busy lock in each process.
const CLIENTS: usize = 2;

/// From the grant of the kept lock to the fault: a renewal is in it, and not the end of the lease.
const SETTLED: Duration = Duration::from_millis(500);
/// How much longer than a lease a fault lasts that is healed.
const LONGER: Duration = Duration::from_millis(1_000);
/// How long the processes may take to end by themselves.
const END: Duration = Duration::from_secs(6);

/// The outcome of one run: the figures, the verdict, and the version of the servers.
pub(super) struct RunOutcome {
    pub(super) version: String,
    pub(super) figures: Figures,
    pub(super) verdict: Verdict,
}

/// The ttl, or session time-out, in such a run.
fn lease(Pair { on, fault }: Pair) -> Duration {
    (fault.scenario().lease)(on).unwrap_or(LEASE)
}

/// The leases in a sentence.
pub(super) fn leases() -> String {
    let of = |is: fn(&Deployment) -> bool, fault| {
        let on = Deployment::struck().into_iter().find(is);
        on.map_or(LEASE, |on| lease(Pair { on, fault })).as_secs()
    };
    let [usual, replicas, two, pauses, nodes, ensembles] = [
        LEASE.as_secs(),
        of(|on| on.replicates(), Fault::ServerKilled),
        of(|on| on.replicates(), Fault::FailoverBeforeReplication),
        of(|_| true, Fault::Pauses),
        of(|on| on.is_quorum(), Fault::RollingRestart),
        of(|on| on.is_ensemble(), Fault::RollingRestart),
    ];
    format!(
        "The lease (ttl, or session time-out) is {usual} s; {replicas} s where replicas take over, so that a failover fits \
         into it; {two} s where the failover comes before replication, so that the old holder does not hear of it from its \
         next renewal, a third of the lease later; {pauses} s under the pauses of the published test; and where all servers \
         are restarted one after the other, {nodes} s on Redlock, whose quarantines last as long, and {ensembles} s \
         elsewhere."
    )
}

/// The load in a sentence.
pub(super) fn load() -> String {
    format!(
        "{PROCESSES} processes with {CLIENTS} clients each take, hold and release the busy lock; one process keeps the kept \
         lock, and writes under it without looking whether it still holds it; another one waits for it. Under the busy lock a \
         value is updated: read, and written back with an element more."
    )
}

/// Runs it.
pub(super) async fn run(pair: Pair, program: &Path) -> Result<RunOutcome, LabError> {
    let clock = Clock::boot();
    let scenario = pair.fault.scenario();
    let lease = lease(pair);
    let mut scene = Scene::start(pair.on, pair.fault, kept()?, lease).await?;
    let version = scene.version().await?;
    let mut workers = Workers::start(&workers(program, &scene, lease)?).await?;
    workers.wait_for_traffic(scenario.load.traffic, LIMIT).await?;
    let observer = scene.observer();
    let quorum = observer.quorum();
    let watch = TruthWatch::start(observer.clone())?;
    scene.prepare().await?;
    workers.keep(VICTIM, LIMIT).await?;
    workers.want(NEXT, LIMIT).await?;
    clock.sleep(SETTLED).await;

    let struck = play(pair, lease + LONGER, &mut scene, &mut workers).await?;
    clock.sleep(scenario.afterwards).await;
    let moments = Moments { fault: struck.at, end: now() };
    let seen = watch.finish().await?;
    let mut history = workers.finish(END).await?;
    let expected = Expected { strangers: strangers(scenario), ..expected(pair, lease, quorum) };
    history.post_check = Some(post_check::look(&observer, &history, struck.whole, expected.lingers).await);
    (history.stood_still, history.retransmitted) = (seen.stood_still, scene.retransmitted()?);

    let findings = check(&history, &seen.truths, moments, &expected);
    let scenery = TimelineContext { moments, healed: struck.healed, marks: struck.marks };
    let timeline = Timeline::of(&findings, &history.writes, &scenery);
    let re_election_ms = struck.served_again.map(in_millis);
    let retransmitted = history.retransmitted;
    let figures = Figures { re_election_ms, retransmitted, ..Figures::of(&findings, timeline) };
    Ok(RunOutcome { version, figures, verdict: Verdict::of(&findings, pair.fault.expects(pair.on).reason()) })
}

/// The processes that disagree: they come after all others, and each has a keeper, too.
fn strangers(scenario: &Scenario) -> Option<Strangers> {
    let processes = scenario.strangers.len();
    (processes > 0).then_some(Strangers { first: PROCESSES, clients: processes * (CLIENTS + 1) })
}

fn kept() -> Result<LockName, LabError> {
    LockName::new(Lock::Kept.name()).map_err(LabError::lock("naming the kept lock"))
}

fn workers(program: &Path, scene: &Scene, lease: Duration) -> Result<WorkersOptions, LabError> {
    let mut options = WorkersOptions::new(program, &scene.url(Side::Others, lease), PROCESSES, CLIENTS);
    let scenario = scene.fault().scenario();
    for disagreement in scenario.strangers {
        let stranger =
            WorkerOptions { url: scene.strange_url(*disagreement, lease)?, ..options.processes[NEXT].clone() };
        options.strangers.push(stranger);
    }
    options.hold = scenario.load.hold;
    options.write_every = options.write_every.max(scenario.load.update);
    let victim = &mut options.processes[VICTIM];
    victim.url = scene.url(Side::Victim, lease);
    victim.namespace = scene.namespace(Side::Victim);
    victim.clock_ahead = scenario.clock_ahead;
    victim.clients = scenario.load.victims;
    // The keeper: against one that does not look only a fence helps, and that is to be seen.
    victim.careless = 1;
    if scenario.load.is_careless {
        options.processes.iter_mut().for_each(|worker| worker.careless = worker.clients + 1);
    }
    Ok(options)
}
