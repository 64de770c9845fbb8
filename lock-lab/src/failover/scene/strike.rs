//! Carries the steps of a fault out, and ends what they have struck.

use std::time::Duration;

use super::{Scene, Side};
use crate::{
    LabError,
    failover::fault::{Act, Awaited, Disturbance, Place, Step},
    proxy::Proxy,
    servers::until::RetryLimit,
};

/// What the fault `delay` adds each way.
const DELAY: Duration = Duration::from_millis(30);
/// By how much a wall clock jumps: more than any lease of a run.
const JUMP: Duration = Duration::from_secs(60);

/// The fault of one server that is in effect, and has to be undone when the run heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerFault {
    Killed,
    Frozen,
    ReadOnly,
}

impl Scene {
    /// Does what must be done before the victim acquires. For most faults that is nothing; afterwards the lock can still
    /// be had, unless it must have a replica.
    ///
    /// # Errors
    /// [`LabError`] when a server does not do as it is told.
    pub async fn prepare(&mut self) -> Result<(), LabError> {
        let steps = self.fault.scenario().prepare;
        if !steps.is_empty() {
            // Now: with the replicas stopped, it takes its time to ask which one leads.
            self.chosen = Some(self.leading().await?);
        }
        for step in steps {
            self.step(*step).await?;
        }
        Ok(())
    }

    /// Strikes: takes all steps that concern servers and connections, and waits between them where a step waits for the
    /// servers. Returns as soon as the last one has its effect on the servers; what clients make of it takes its time.
    ///
    /// # Errors
    /// [`LabError`] when a server does not do as it is told, or there is no holder to be struck.
    pub async fn inject(&mut self) -> Result<(), LabError> {
        let mut steps = self.fault.steps(self.deployment());
        while let Some(Step::Until(_) | Step::Rest(_) | Step::Process(..)) = steps.last() {
            steps.pop();
        }
        for step in steps {
            match step {
                Step::Until(Awaited::Served) => drop(self.served_again().await?),
                step => self.step(step).await?,
            }
        }
        Ok(())
    }

    /// Takes one step, if it concerns servers or connections.
    ///
    /// # Errors
    /// [`LabError`] when a server does not do as it is told, or there is no holder to be struck.
    pub async fn step(&mut self, step: Step) -> Result<(), LabError> {
        if self.chosen.is_none() && !self.fault.scenario().prepare.is_empty() {
            return Err(LabError::run("this fault has to be prepared before the acquisition"));
        }
        match step {
            Step::Server(act, place) => {
                for server in self.servers_at(place).await? {
                    self.act(act, server).await?;
                }
                Ok(())
            }
            Step::Network(disturbance) => self.disturb(disturbance).await,
            Step::Until(Awaited::TakesPart(server)) => self.servers.takes_part(server).await,
            Step::Process(..) | Step::Strangers | Step::Until(_) | Step::Rest(_) => Ok(()),
        }
    }

    /// Waits until the servers take writes again where the fault stops the service, and says how long that took.
    ///
    /// # Errors
    /// As those of [`Observer::served_again`](super::Observer::served_again).
    pub async fn served_again(&self) -> Result<Option<Duration>, LabError> {
        if !(self.fault.scenario().stops_service)(self.deployment()) {
            return Ok(None);
        }
        self.observer().served_again().await.map(Some)
    }

    /// Ends the fault: what was frozen goes on, what was killed is started again, the network is whole. A clock that
    /// jumped stays where it is: set back, it would add the jump to every lease that was given meanwhile. Nodes of Redlock
    /// that have lost their data are made members again, as an operator does where a majority has.
    ///
    /// # Errors
    /// [`LabError`] when a server does not come back.
    pub async fn heal(&mut self) -> Result<(), LabError> {
        self.links.heal().await?;
        let mut struck = std::mem::take(&mut self.struck);
        // Those that go on first: an ensemble that gets one server back waits for all that run.
        struck.sort_by_key(|(_, how)| *how == ServerFault::Killed);
        for (server, how) in struck {
            match how {
                ServerFault::Killed => self.servers.restart(server).await?,
                ServerFault::Frozen => self.servers.cont(server)?,
                ServerFault::ReadOnly => self.servers.take_writes(server).await?,
            }
        }
        self.servers.repair().await
    }

    /// The numbers of the servers at that place.
    async fn servers_at(&self, place: Place) -> Result<Vec<usize>, LabError> {
        let voters = self.deployment().voters();
        let after = |leading: usize, offsets: std::ops::Range<usize>| -> Vec<usize> {
            offsets.map(|offset| (leading + offset) % voters).collect()
        };
        Ok(match place {
            Place::Number(server) => vec![server],
            Place::All => (0..self.deployment().servers).collect(),
            Place::Frozen => {
                let frozen = self.struck.iter().filter(|(_, how)| *how == ServerFault::Frozen);
                frozen.map(|(server, _)| *server).collect()
            }
            Place::Leading => vec![self.leading().await?],
            Place::Following(n) => after(self.leading().await?, n + 1..n + 2),
            Place::Minority => after(self.leading().await?, 1..voters.div_ceil(2)),
            Place::Majority => after(self.leading().await?, 0..voters / 2 + 1),
            Place::Replicas => self.servers.replicas(self.leading().await?).await?,
        })
    }

    async fn leading(&self) -> Result<usize, LabError> {
        match self.chosen {
            Some(chosen) => Ok(chosen),
            None => {
                // There is none for a moment where servers of a machine that stood still elect one.
                let limit = RetryLimit::with("a leader or primary that the fault could strike");
                loop {
                    match self.servers.leading(&self.name).await? {
                        Some(found) => return Ok(found),
                        None => limit.again("there is none".into()).await?,
                    }
                }
            }
        }
    }

    async fn act(&mut self, act: Act, server: usize) -> Result<(), LabError> {
        match act {
            Act::Kill => {
                self.servers.kill(server);
                self.struck.push((server, ServerFault::Killed));
            }
            Act::Start => {
                self.servers.restart(server).await?;
                self.struck.retain(|struck| *struck != (server, ServerFault::Killed));
            }
            Act::Restart => self.servers.restart_at_once(server).await?,
            Act::RestartEmpty => self.servers.restart_empty(server).await?,
            Act::Replace => self.replace(server).await?,
            Act::Freeze => {
                self.servers.stop(server)?;
                self.struck.push((server, ServerFault::Frozen));
            }
            Act::Continue => {
                self.servers.cont(server)?;
                self.struck.retain(|struck| *struck != (server, ServerFault::Frozen));
            }
            Act::JumpAhead => self.servers.set_clock_ahead(server, JUMP)?,
            Act::RefuseWrites => {
                if self.servers.refuse_writes(server).await? {
                    self.struck.push((server, ServerFault::ReadOnly));
                }
            }
            // Safeguard: a lock is not lost to a replica that still receives it (fault)
            Act::CutReplicas => self.servers.cut_replicas(server).await?,
            Act::DeleteLock => self.servers.ground_truth().delete(&self.name).await?,
            Act::FlushScripts => self.servers.flush_scripts(server).await?,
            Act::EndSession => self.servers.ground_truth().end_session(&self.name).await?,
        }
        Ok(())
    }

    /// Another server has that place from then on, for whoever looks at the servers, too.
    async fn replace(&mut self, server: usize) -> Result<(), LabError> {
        let old = self.servers.replace(server).await?;
        self.links.replaced()?;
        self.struck.retain(|(struck, _)| *struck != server);
        self.beside.extend(old.pid().is_some().then_some(old));
        Ok(())
    }

    async fn disturb(&self, disturbance: Disturbance) -> Result<(), LabError> {
        let victim = self.links.of(Side::Victim);
        match disturbance {
            Disturbance::Delay => self.links.all().for_each(|proxy| proxy.delay(DELAY)),
            Disturbance::HoldAll => victim.iter().for_each(Proxy::hold),
            Disturbance::HoldRequests => victim.iter().for_each(Proxy::hold_requests),
            Disturbance::HoldReplies => victim.iter().for_each(Proxy::hold_replies),
            Disturbance::CutReplies => {
                // Not the same reply everywhere: now one to an acquisition, now one to a release.
                self.links.all().zip(0..).for_each(|(proxy, after)| proxy.cut_at_reply(after));
            }
            Disturbance::CutOffMinority => {
                victim[self.deployment().voters() / 2 + 1..].iter().for_each(Proxy::cut);
            }
            Disturbance::DropPackets => self.links.drop_packets().await?,
        }
        Ok(())
    }
}
