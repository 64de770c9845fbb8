//! Where a contest is played: clients, Redis servers, what goes wrong, and how it ends.

use std::time::Duration;

use lock_core::{Context, Locks};

use super::{Grant, Habits, Oracle, faults::Own, probe};
use crate::{
    Chance, MS, Outcome, SECOND, Time, Trace,
    redis::Fleet,
    world::{Happening, HostId, ServerId, Wires, World},
};

/// What a machine knows of its servers that the stage does not.
pub trait Scene {
    /// Until when the servers keep this grant, if nobody asks anything of them any more.
    fn kept(&mut self, stage: &mut Stage, grant: &Grant) -> Time;

    /// What is left on the servers of those who have gone; `at_once` when each of them has said that it gave everything back.
    fn residue(&mut self, stage: &mut Stage, at_once: bool) -> Option<String>;

    /// Something goes wrong that only the machine knows how to do.
    fn strike(&mut self, stage: &mut Stage, number: u32);

    /// Nothing goes wrong from now on, and what had is mended.
    fn calm(&mut self, stage: &mut Stage);

    /// Sees to what its own programs have asked for.
    fn look(&mut self, _: &mut Stage) {}

    /// After how long, when everything is quiet, the lock can certainly be had again.
    fn recovery(&self) -> Duration;

    /// Connects as one who has not taken part.
    fn connect(&self, host: HostId, context: Context) -> futures::future::LocalBoxFuture<'static, Option<Locks>>;
}

/// A contest that is played.
#[derive(Debug)]
pub struct Stage {
    /// Where.
    pub world: World<Own>,
    /// The servers.
    pub fleet: Fleet,
    /// Who sees all grants.
    pub oracle: Oracle,
    /// The hosts of those who compete.
    pub clients: Vec<HostId>,
    /// The host of one who does not.
    pub operator: HostId,
    /// Its servers.
    pub servers: Vec<ServerId>,
    /// From when on nothing goes wrong any more.
    pub end: Time,
    pub(crate) is_calm: bool,
    /// A server, a client, or a way between them stood still for some time.
    pub(crate) was_cut_off: bool,
    /// What an undo has given up stays there for longer than a schedule waits for it.
    pub(crate) is_lasting: bool,
    /// A server that stands still for longer may run a request when the tombstone of its undo has ended, and what that takes
    /// is lasting.
    pub(crate) most_pause: Time,
    /// A server stood still or was restarted.
    pub(crate) server_stood_still: bool,
    pub(crate) wires: Wires,
}

/// How many events a schedule may have.
const STEPS: u64 = 400_000;

/// How long after the last client has ended it is looked what the servers still keep for the first time.
const SOON: Time = 100 * MS;

/// How the end of a schedule goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Clients compete, or come to their ends.
    Contest,
    /// All have ended; what has just been sent arrives.
    Ended(Time),
    /// What is on its way for longer arrives.
    Quiet(Time),
    /// What was left to its ttl ends.
    Expiry(Time),
    /// Somebody new acquires the lock.
    Probe,
}

impl Stage {
    /// Plays it to its end or to the first violation.
    pub fn play(mut self, scene: &mut impl Scene) -> (Outcome, Trace) {
        self.world.tell_everything();
        self.world.at(self.end, Own::Calm);
        let (mut phase, mut changes) = (Phase::Contest, 0);
        while !self.oracle.is_violated() {
            let Some(happening) = self.world.next() else {
                self.oracle.violate("P", "nothing will happen any more, and somebody waits".to_owned());
                break;
            };
            self.see_to(happening, scene);
            scene.look(&mut self);
            // What a server changes may end what somebody holds there.
            let before = std::mem::replace(&mut changes, self.fleet.changes());
            self.check(scene, changes != before);
            if self.world.steps() > STEPS {
                self.oracle.violate("P", "it does not come to an end".to_owned());
            }
            let Some(next) = self.go_on(phase, scene) else { break };
            phase = next;
        }
        let (grants, steps) = (self.oracle.grants(), self.world.steps());
        drop(self.world);
        let (violation, counts, trace) = self.oracle.end();
        (Outcome { violation, grants, steps, counts }, trace)
    }

    fn see_to(&mut self, happening: Happening<Own>, scene: &mut impl Scene) {
        if let Happening::Arrived { server, connection, bytes } = &happening
            && self.oracle.is_kept()
        {
            let from = self.world.ends_of(*connection).0.place();
            let said = readable(bytes);
            self.oracle.note(format_args!("server {}", server.place()), format_args!("client {from}: {said}"));
        }
        let Some(event) = self.fleet.see_to(&mut self.world, happening) else { return };
        match event {
            Own::Fault(fault) if !self.is_calm => self.strike(fault),
            Own::Scene(number) if !self.is_calm => scene.strike(self, number),
            Own::Heal(fault) => self.heal(fault),
            Own::Calm => {
                self.calm();
                scene.calm(self);
            }
            Own::Fault(_) | Own::Scene(_) | Own::Look => {}
        }
    }

    fn check(&mut self, scene: &mut impl Scene, all: bool) {
        let moved = self.oracle.moved(all);
        for grant in moved {
            let Some(until) = grant.until() else { continue };
            let until = self.world.when(grant.host, until);
            let kept = scene.kept(self, &grant);
            if kept < until {
                let (host, token, early) = (grant.host.place(), grant.token.number, (until - kept) / 1_000);
                let text = format!("client {host} believes in token {token} for {early} us longer than it is kept");
                self.oracle.violate("T", text);
            }
        }
    }

    fn go_on(&mut self, phase: Phase, scene: &mut impl Scene) -> Option<Phase> {
        let now = self.world.now();
        if !self.is_calm {
            return Some(phase);
        }
        let recovery = nanos(scene.recovery());
        match phase {
            Phase::Contest if !self.oracle.is_any_running() => {
                self.world.after(SOON, Own::Look);
                Some(Phase::Ended(now + SOON))
            }
            Phase::Ended(until) if now >= until => {
                // A server that nobody reached for longer may have got a request only now, whose undo was given up when
                // the lease had ended.
                if !self.was_cut_off {
                    self.is_all_given_back(scene);
                }
                self.world.after(2 * SECOND, Own::Look);
                Some(Phase::Quiet(now + 2 * SECOND))
            }
            Phase::Quiet(until) if now >= until => {
                if !self.was_cut_off || !self.is_lasting {
                    self.is_all_given_back(scene);
                }
                self.world.after(recovery, Own::Look);
                Some(Phase::Expiry(now + recovery))
            }
            Phase::Expiry(until) if now >= until => {
                if let Some(left) = scene.residue(self, false) {
                    self.oracle.violate("O", format!("{left} is left for nobody, and does not end"));
                }
                self.probe(scene);
                Some(Phase::Probe)
            }
            // Nothing that comes now takes anything any more.
            Phase::Expiry(_) if !self.was_cut_off => {
                self.is_all_given_back(scene);
                Some(phase)
            }
            Phase::Probe if !self.oracle.is_any_running() => None,
            _ if now > self.end + 4 * recovery + 120 * SECOND => {
                let who: Vec<_> = self.oracle.running().iter().map(|host| host.place()).collect();
                self.oracle.violate("P", format!("clients {who:?} do not come to an end"));
                None
            }
            phase => Some(phase),
        }
    }

    /// Before what was left there ends by its ttl.
    fn is_all_given_back(&mut self, scene: &mut impl Scene) {
        if !self.oracle.is_unclean()
            && let Some(left) = scene.residue(self, true)
        {
            self.oracle.violate("O", format!("{left} is left when everybody has given everything back"));
        }
    }

    fn probe(&mut self, scene: &impl Scene) {
        let (host, oracle) = (self.operator, self.oracle.clone());
        let context = self.world.context(host);
        let clock = context.clock();
        let connecting = scene.connect(host, context);
        self.oracle.begins(host);
        self.world.spawn(host, async move {
            match connecting.await {
                Some(locks) => probe(locks, clock, host, Duration::from_secs(20), oracle).await,
                None => {
                    oracle.violate("P", "nobody can connect although all is well".to_owned());
                    oracle.ends(host, true);
                }
            }
        });
    }

    /// When each client begins, and for how long it competes.
    #[must_use]
    pub fn habits(chance: &mut Chance, ttl: Time, end: Time, counts: [usize; 4], shares: bool) -> Habits {
        Habits {
            reads: chance.one_of(&[0, 30, 60, 90]),
            tries: chance.one_of(&[0, 0, 20, 60]),
            limits: chance.one_of(&[0, 20, 50]),
            leaves: chance.one_of(&[0, 0, 15, 40]),
            drops: chance.one_of(&[0, 20, 50]),
            downgrades: if shares { chance.one_of(&[0, 20]) } else { 0 },
            ttl: Duration::from_nanos(ttl),
            pause: chance.one_of(&[50 * MS, ttl / 2, ttl]),
            hold: chance.one_of(&[20 * MS, ttl / 2, 2 * ttl]),
            until: end,
            ends: chance.one_of(&[0, 0, 30]),
            least: Duration::ZERO,
            crowds: false,
            permits: None,
            delay: None,
            shares,
            counts,
        }
    }
}

/// The words of requests, but for the sources of scripts.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split("\r\n").filter(|line| !line.starts_with(['$', '*']) && !line.is_empty());
    let short = lines.map(|line| if line.len() > 100 || line.contains('\n') { "<source>" } else { line });
    short.collect::<Vec<_>>().join(" ")
}

pub(crate) fn nanos(length: Duration) -> Time {
    Time::try_from(length.as_nanos()).unwrap_or(Time::MAX)
}
