//! Plays the steps of a fault: those of the processes here, those of servers and connections by the scene.

use std::time::Duration;

use lock_core::{BootInstant, Clock};

use crate::{
    LabError,
    failover::{
        events::{History, Lock, What, now},
        fault::{Act, Awaited, Place, ProcessAction, Step, Who},
        matrix::Pair,
        scene::Scene,
        worker::Order,
        workers::Workers,
    },
};

/// The process that is struck, or that holds the kept lock when something else is.
pub(super) const VICTIM: usize = 0;
/// The one that wants the kept lock next.
pub(super) const NEXT: usize = 1;
/// One that has not waited, and asks when the servers are back: those that wait may hear of that late.
const LATE: usize = 2;

/// How long anything may take that must come. Far above what it takes.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// How long clients rest after a hold that are told to: with a dozen of them, the lock is free for most of the time.
const REST: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

/// When the fault of a run began and ended, and what else happened meanwhile.
pub(super) struct FaultTimes {
    pub(super) at: BootInstant,
    pub(super) healed: Option<BootInstant>,
    /// When servers and network were as before, or what had struck once was past.
    pub(super) whole: BootInstant,
    /// From the last step against the servers until they took a write again, by themselves; the longest of several.
    pub(super) served_again: Option<Duration>,
    /// What else happened, for the picture.
    pub(super) marks: Vec<(BootInstant, String)>,
}

/// Has the fault strike, last as long as it does, and end.
pub(super) async fn play(
    pair: Pair,
    lasts: Duration,
    scene: &mut Scene,
    workers: &mut Workers,
) -> Result<FaultTimes, LabError> {
    let clock = Clock::boot();
    let steps = pair.fault.steps(pair.on);
    let mut player = FaultPlayer { lasts, at: now(), stopped: None, served_again: None, marks: Vec::new() };
    for (number, step) in steps.iter().enumerate() {
        // The first one is the fault's own beginning.
        player.marks.extend(mark(*step).filter(|_| number > 0).map(|text| (now(), text)));
        match step {
            Step::Process(who, action) => player.strike(*who, *action, workers).await?,
            Step::Until(Awaited::Overtaken) => overtaken(workers).await?,
            Step::Until(Awaited::Served) => player.served(scene).await?,
            Step::Until(Awaited::Lasted) => clock.sleep(lasts.saturating_sub(now().saturating_since(player.at))).await,
            Step::Rest(time) => clock.sleep(*time).await,
            Step::Strangers => workers.admit_strangers()?,
            Step::Server(..) | Step::Network(_) | Step::Until(Awaited::TakesPart(_)) => scene.step(*step).await?,
        }
    }
    scene.heal().await?;
    let healed = (!pair.fault.is_momentary()).then(now);
    scene.healthy().await?;
    let FaultPlayer { at, served_again, marks, .. } = player;
    Ok(FaultTimes { at, healed, whole: now(), served_again, marks })
}

/// Carries out the steps of a fault against the worker processes and the servers, and notes their times.
struct FaultPlayer {
    lasts: Duration,
    at: BootInstant,
    /// The process that was stopped last.
    stopped: Option<usize>,
    served_again: Option<Duration>,
    marks: Vec<(BootInstant, String)>,
}

impl FaultPlayer {
    async fn strike(&mut self, who: Who, action: ProcessAction, workers: &mut Workers) -> Result<(), LabError> {
        let process = match who {
            Who::All => {
                for process in 0..workers.processes() {
                    self.strike_one(process, action, workers).await?;
                }
                return Ok(());
            }
            Who::Victim => VICTIM,
            Who::Late => LATE,
            Who::Stopped => self.stopped.take().ok_or_else(|| LabError::run("no process was stopped before"))?,
            Who::BusyHolder => busy_holder(workers).await?,
        };
        self.strike_one(process, action, workers).await
    }

    async fn strike_one(
        &mut self,
        process: usize,
        action: ProcessAction,
        workers: &mut Workers,
    ) -> Result<(), LabError> {
        match action {
            ProcessAction::Rest => workers.order(process, Order::Rest(REST)).await,
            ProcessAction::Kill => workers.kill(process).await,
            ProcessAction::Stop => {
                self.stopped = Some(process);
                workers.stop(process).await
            }
            ProcessAction::Continue => workers.resume(process),
            ProcessAction::Starve => workers.starve(process, self.lasts).await,
            ProcessAction::Ask => workers.want(process, LIMIT).await,
        }
    }

    async fn served(&mut self, scene: &Scene) -> Result<(), LabError> {
        if let Some(took) = scene.served_again().await? {
            self.marks.push((now(), "the servers serve again".into()));
            self.served_again = self.served_again.max(Some(took));
        }
        Ok(())
    }
}

/// A step in the words of the picture, if it is worth a word.
fn mark(step: Step) -> Option<String> {
    let at = |place| match place {
        Place::Number(number) | Place::Following(number) => format!("server {}", number + 1),
        Place::Leading => "a server".into(),
        _ => "servers".into(),
    };
    match step {
        Step::Server(act @ (Act::Kill | Act::Restart | Act::Replace | Act::Freeze), place) => {
            let what = match act {
                Act::Kill => "killed",
                Act::Freeze => "frozen",
                Act::Replace => "replaced",
                _ => "restarted",
            };
            Some(format!("{} {what}", at(place)))
        }
        Step::Process(_, ProcessAction::Stop) => Some("stopped".into()),
        Step::Process(_, ProcessAction::Continue) => Some("goes on".into()),
        Step::Process(_, ProcessAction::Kill) => Some("killed".into()),
        _ => None,
    }
}

/// Waits until somebody holds the busy lock, and says which process that is.
async fn busy_holder(workers: &mut Workers) -> Result<usize, LabError> {
    let begin = now();
    let granted = |history: &History| {
        let newest = history.events.iter().rev().take_while(|event| event.at >= begin);
        let granted = |what: &What| matches!(what, What::Granted { .. });
        let mut grants = newest.filter(|event| event.whose.lock == Lock::Busy && granted(&event.what));
        grants.next().map(|event| event.whose.process)
    };
    workers.wait_for("somebody holds the busy lock", LIMIT, granted).await
}

/// Waits until somebody else than the victim holds the kept lock.
async fn overtaken(workers: &Workers) -> Result<(), LabError> {
    let clock = Clock::boot();
    let deadline = now().saturating_add(LIMIT);
    while workers.holder(Lock::Kept).is_none_or(|holder| holder.whose.process == VICTIM) {
        if now() > deadline {
            return Err(LabError::run(format!("nobody else holds the lock {LIMIT:?} after its holder was struck")));
        }
        clock.sleep(POLL).await;
    }
    Ok(())
}
