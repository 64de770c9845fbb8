//! Everything together, and what happens next.

use std::{rc::Rc, sync::Arc, time::Duration};

use lock_zk::{Config, Strategy, protocol::queue::NUMBERS_END};
use tokio::sync::watch;

use super::{
    fact::FactKind,
    message::EnsembleEvent,
    profile::{EnsembleSettings, FaultProfile, ScheduleAim},
    program::{self, ContenderHabits, HostPlan},
    report::{ContenderReport, RequestMode, ScheduleStage},
    state::{ContenderState, HostState, InvariantChecker, Schedule, ServerRole, ServerState, lock_path},
    tree::{NodeTree, TreeChange},
    wire::{SimEnsemble, WireCall, clear_calls, next_call, server},
};
use crate::{
    Chance, Counts, LocalClock, MS, Outcome, SECOND, Time, Trace,
    world::{Happening, HostClocks, Wires, World},
};

/// What a tick lasts: all else is in proportion.
pub(super) const TICK: Time = 100 * MS;

/// Everybody's clock is wrong by up to 0.45 %, so two of them differ by up to 0.9 %.
fn drift(chance: &mut Chance) -> i64 {
    if chance.one_in(2) { chance.one_of(&[-4_500, 4_500]) } else { chance.signed(-4_500, 4_500) }
}

impl<'a> Schedule<'a> {
    pub(super) fn new(seed: u64, trace: &'a mut Trace) -> Self {
        let (mut this, habits) = Self::draw(seed, trace, World::new);
        this.prepare(habits);
        this
    }

    /// The servers alone.
    pub(super) fn without_programs(seed: u64, trace: &'a mut Trace) -> Self {
        let (mut this, _) = Self::draw(seed, trace, World::without_tasks);
        this.faults.lag = 0;
        this
    }

    /// Servers that keep nothing yet and grant time-outs of up to `longest`, and hosts with no programs on them. Nothing goes
    /// wrong by chance.
    pub(super) fn undisturbed(seed: u64, trace: &'a mut Trace, hosts: usize, longest: Time) -> Self {
        let (mut this, _) = Self::draw(seed, trace, World::new);
        this.hosts.truncate(hosts);
        while this.hosts.len() < hosts {
            this.hosts.push(add_host(&mut this.world, ScheduleAim::Nothing));
        }
        this.settings = EnsembleSettings { tick: TICK, timeout: longest, sync_limit: TICK * 5 };
        this.faults.lag = 0;
        for server in &mut this.servers {
            (server.tree, server.longest) = (NodeTree::new(), longest);
        }
        this.stage.send_replace(ScheduleStage::Calm);
        this.elect(0, &[0, 1, 2]);
        this.servers_look_after_themselves();
        this
    }

    fn draw(
        seed: u64,
        trace: &'a mut Trace,
        begin: fn(Chance, Wires) -> World<EnsembleEvent>,
    ) -> (Self, ContenderHabits) {
        clear_calls();
        let (mut chance, aim) = (Chance::new(seed), ScheduleAim::of(seed));
        let mut settings = EnsembleSettings {
            tick: TICK,
            timeout: TICK * chance.one_of(&[4, 4, 6, 10]),
            sync_limit: TICK * chance.one_of(&[2, 5]),
        };
        aim.change_settings(&mut settings);
        let mut faults = FaultProfile::draw(&mut chance, TICK, aim);
        aim.change_faults(&mut faults, settings);
        let is_herd = chance.one_in(8);
        let mut habits = ContenderHabits {
            tick: TICK,
            timeout: settings.timeout,
            pause: TICK * 2,
            long_holds: 4,
            longest_hold: settings.timeout,
            mix: chance.one_of(&[(1, 0, 0), (1, 1, 0), (1, 3, 0), (0, 0, 1), (0, 0, 1), (1, 1, 2)]),
            // One that counts on being alone, among those who count on three, is the worst that can be believed: with two
            // and three the second one is never out of step with enough of the others.
            permits: chance.one_of(&[(2, 12, 3), (3, 12, 1), (3, 2, 1)]),
            is_herd,
        };
        aim.change_habits(&mut habits);
        let is_herd = habits.is_herd;
        let tree = first_tree(&mut chance, is_herd);
        let mut servers = Vec::new();
        for _ in 0..3 {
            let since = 10 * SECOND + chance.below(SECOND);
            let clock = LocalClock::new(since, aim.drift(drift(&mut chance), true));
            servers.push(ServerState::new(tree.clone(), clock, TICK * 20));
        }
        let hosts = usize::try_from(chance.between(2, 4)).unwrap_or(2);
        let mut world = begin(chance, Wires::default());
        let hosts: Vec<HostState> = (0..hosts).map(|_| add_host(&mut world, aim)).collect();
        let this = Self {
            world,
            trace,
            counts: Counts::default(),
            grants: 0,
            settings,
            faults,
            servers,
            leader: None,
            epoch: 0,
            log: Vec::new(),
            committed: 0,
            zxid: 0,
            timeouts: Vec::new(),
            links: 0,
            hosts,
            clients: Vec::new(),
            conns: 0,
            requests: 0,
            contending: Vec::new(),
            invariants: InvariantChecker::default(),
            is_herd,
            stage: watch::Sender::new(ScheduleStage::Active),
            deadline: 0,
            quiet: (0, 0),
        };
        (this, habits)
    }

    fn prepare(&mut self, habits: ContenderHabits) {
        self.elect(0, &[0, 1, 2]);
        self.counts = Counts::default();
        if habits.is_herd {
            self.counts.add(FactKind::Herd as usize);
        }
        self.servers_look_after_themselves();
        let (fewest, most) = self.faults.aim.contenders();
        for host in 0..self.hosts.len() {
            let first = self.contending.len();
            let slots = usize::try_from(self.world.chance().between(fewest, most)).unwrap_or(1);
            self.contending.extend((0..slots).map(|_| ContenderState::new(host)));
            let plan = self.plan(host, first..first + slots, habits);
            self.world.spawn(self.hosts[host].id, program::host(plan));
        }
        let soon = if self.faults.aim == ScheduleAim::WakingLeader { self.faults.pause } else { self.settings.tick };
        self.world.after(soon, EnsembleEvent::Fault);
        self.world.after(self.settings.tick * 3, EnsembleEvent::Strike);
        self.world.after(self.settings.timeout, EnsembleEvent::Reap);
        let (least, more) = self.faults.aim.active(self.settings.timeout);
        let active = least + self.world.chance().below(more);
        self.world.after(active, EnsembleEvent::Stage);
    }

    fn servers_look_after_themselves(&mut self) {
        for server in 0..self.servers.len() {
            self.world.after(self.settings.tick / 2, EnsembleEvent::Check { server });
        }
    }

    /// Programs differ in their settings.
    fn plan(&mut self, host: usize, slots: std::ops::Range<usize>, habits: ContenderHabits) -> HostPlan {
        let (tick, longest) = (self.settings.tick, self.settings.timeout);
        let chance = self.world.chance();
        let timeout = if chance.one_in(3) { chance.between(tick * 4, longest) } else { longest };
        let counted = if chance.one_in(3) { chance.between(tick, timeout / 3) } else { tick };
        let patience = chance.between(timeout / 2, timeout * 3);
        let config = Config::new((0..self.servers.len()).map(server))
            .with_session_timeout(Duration::from_nanos(timeout))
            .with_tick_time(Duration::from_nanos(counted))
            .with_connect_timeout(Duration::from_nanos(patience))
            .with_response_timeout(Duration::from_nanos(patience))
            .with_strategy(if habits.is_herd { Strategy::Herd } else { Strategy::Queue })
            .with_ensemble(Arc::new(SimEnsemble { host }));
        let seed = chance.below(u64::MAX);
        HostPlan { id: self.hosts[host].id, config, seed, slots, habits, stage: self.stage.subscribe() }
    }

    pub(super) fn play(mut self) -> Outcome {
        while self.stage() != ScheduleStage::Over && self.invariants.violation.is_none() {
            let Some(happening) = self.world.next() else { break };
            self.see_to(happening);
        }
        let steps = self.world.steps();
        if self.stage() != ScheduleStage::Over && self.invariants.violation.is_none() {
            self.violate("P", "nothing happens any more".to_owned());
        }
        self.trace.note(self.world.now(), "-", format_args!("fingerprint {:016x}", self.world.fingerprint()));
        Outcome { violation: self.invariants.violation.take(), grants: self.grants, steps, counts: self.counts }
    }

    pub(super) fn see_to(&mut self, happening: Happening<EnsembleEvent>) {
        match happening {
            Happening::Own(event) => {
                if let Some((until, event)) = self.postponed(event) {
                    self.world.at(until, event);
                }
            }
            Happening::Called => self.answer_calls(),
            _ => {}
        }
    }

    fn answer_calls(&mut self) {
        while let Some(call) = next_call() {
            match call {
                WireCall::Open { host, servers, timeout, answer } => self.open(host, servers, timeout, answer),
                WireCall::Connections { host, answer } => {
                    let _ = answer.send(self.connections(host));
                }
                WireCall::Ask { client, op, waiter } => self.ask(client, op, waiter),
                WireCall::Unwatch { client, watch } => self.unwatch(client, watch),
                WireCall::Drop { client } => self.drop_client(client),
                WireCall::Report(report) => self.hear_of(report),
            }
        }
    }

    fn hear_of(&mut self, report: ContenderReport) {
        match report {
            ContenderReport::Asks { slot, attempt, kind } => self.asks(slot, attempt, kind),
            ContenderReport::Granted { slot, token, validity } => {
                self.granted(slot, token, validity);
                self.strike_at_grant(self.host_of(slot));
            }
            ContenderReport::Downgrades { slot } => {
                self.contending[slot].kind = RequestMode::Reader;
            }
            ContenderReport::Ends { slot, why } => self.ends(slot, &why),
            ContenderReport::Closed { slot, failure } => self.closed(slot, failure),
        }
    }

    /// Plays an event; or gives it back, with the time at which whom it concerns goes on.
    fn postponed(&mut self, event: EnsembleEvent) -> Option<(Time, EnsembleEvent)> {
        let now = self.now();
        let leader = self.leader.as_ref().map(|leader| leader.server);
        let host_of = |client: usize| self.clients.get(client).map_or(0, |client| self.hosts[client.host].paused_until);
        let until = match &event {
            EnsembleEvent::Arrive { server, .. }
            | EnsembleEvent::ToFollower { server, .. }
            | EnsembleEvent::Apply { server, .. } => self.servers[*server].deaf_until,
            EnsembleEvent::ToLeader { .. } => leader.map_or(0, |leader| self.servers[leader].deaf_until),
            EnsembleEvent::Check { server } => self.servers[*server].paused_until,
            EnsembleEvent::Commit { .. }
            | EnsembleEvent::Expire { .. }
            | EnsembleEvent::LeaderTick { .. }
            | EnsembleEvent::Reap => leader.map_or(0, |leader| self.servers[leader].paused_until),
            EnsembleEvent::Deliver { client, .. }
            | EnsembleEvent::HungUp { client, .. }
            | EnsembleEvent::Look { client }
            | EnsembleEvent::Connect { client, .. } => host_of(*client),
            EnsembleEvent::Fault
            | EnsembleEvent::Strike
            | EnsembleEvent::CrashLeader
            | EnsembleEvent::CutClients { .. }
            | EnsembleEvent::Cut { .. }
            | EnsembleEvent::Heal { .. }
            | EnsembleEvent::HealHost { .. }
            | EnsembleEvent::ResumeHost { .. }
            | EnsembleEvent::Stage => 0,
        };
        if until > now {
            return Some((until, event));
        }
        self.happen(event);
        None
    }

    pub(super) fn happen(&mut self, event: EnsembleEvent) {
        match event {
            EnsembleEvent::Arrive { server, conn, message } => self.arrive(server, conn, &message),
            EnsembleEvent::Deliver { client, conn, message } => self.deliver(client, conn, &message),
            EnsembleEvent::HungUp { client, conn } => self.hung_up(client, conn),
            EnsembleEvent::ToLeader { from, link, message } if self.is_linked(from, link) && self.follows(from) => {
                self.leader_hears(from, message);
            }
            EnsembleEvent::ToFollower { server, link, message } if self.is_linked(server, link) => {
                self.follower_hears(server, message);
            }
            EnsembleEvent::Apply { server, link, upto } if self.is_linked(server, link) => self.apply(server, upto),
            EnsembleEvent::Commit { epoch, upto } if epoch == self.epoch => self.commit(upto),
            EnsembleEvent::Expire { epoch, session } if epoch == self.epoch => self.expire(session),
            EnsembleEvent::LeaderTick { epoch } if epoch == self.epoch => self.leader_tick(),
            EnsembleEvent::Check { server } => self.check(server),
            EnsembleEvent::Reap => self.reap(),
            EnsembleEvent::Look { client } => self.look(client),
            EnsembleEvent::Connect { client, attempt } => self.connect(client, attempt),
            EnsembleEvent::Fault => self.go_wrong(),
            EnsembleEvent::Strike => self.strike(),
            EnsembleEvent::CrashLeader => self.crash_leader(),
            EnsembleEvent::CutClients { server } => self.cut_clients_off(server),
            EnsembleEvent::Cut { server } => self.mute_server(server),
            EnsembleEvent::Heal { server } => self.heal(server),
            EnsembleEvent::HealHost { host } => self.heal_host(host),
            EnsembleEvent::ResumeHost { host } => self.resume_host(host),
            EnsembleEvent::Stage => self.next_stage(),
            // Of a connection or an epoch that is over.
            _ => {}
        }
    }

    fn is_linked(&self, server: usize, link: u32) -> bool {
        self.servers[server].role == ServerRole::Following && self.servers[server].link.number == link
    }

    fn next_stage(&mut self) {
        match self.stage() {
            ScheduleStage::Active => {
                self.note("-", format_args!("nothing goes wrong any more, nobody comes, and nobody lets go"));
                for server in 0..self.servers.len() {
                    self.heal(server);
                }
                for host in 0..self.hosts.len() {
                    self.heal_host(host);
                }
                self.enter(ScheduleStage::Calm);
            }
            ScheduleStage::Over => {}
            _ => self.look_for_rest(),
        }
    }

    fn enter(&mut self, stage: ScheduleStage) {
        self.stage.send_replace(stage);
        self.quiet = (self.invariants.changes, 0);
        self.deadline = self.now() + self.settings.timeout * 8 + self.settings.sync_limit * 2 + 6 * SECOND;
        self.world.after(self.settings.tick, EnsembleEvent::Stage);
    }

    /// Looks whether all is quiet, and as it should be then.
    fn look_for_rest(&mut self) {
        let looks = if self.quiet.0 == self.invariants.changes { self.quiet.1 + 1 } else { 0 };
        self.quiet = (self.invariants.changes, looks);
        let unrest = self.unrest();
        let quiet = looks >= 2 && unrest.is_none();
        match self.stage() {
            ScheduleStage::Calm if quiet => {
                if self.somebody_waits() {
                    self.counts.add(FactKind::SleptInPeace as usize);
                }
                self.note("-", format_args!("those who hold let go"));
                self.enter(ScheduleStage::Ending);
            }
            ScheduleStage::Ending if quiet && self.nobody_is_there() => {
                self.note("-", format_args!("the connections are closed"));
                self.enter(ScheduleStage::Closing);
            }
            ScheduleStage::Closing if quiet && self.all_is_closed() => {
                self.stage.send_replace(ScheduleStage::Over);
            }
            _ if self.now() > self.deadline => {
                let (invariant, text) = unrest.unwrap_or_else(|| ("P", "it never becomes quiet".to_owned()));
                self.violate(invariant, text);
            }
            _ => self.world.after(self.settings.tick, EnsembleEvent::Stage),
        }
    }
}

fn add_host(world: &mut World<EnsembleEvent>, aim: ScheduleAim) -> HostState {
    let drift = aim.drift(drift(world.chance()), false);
    let clocks = HostClocks::new(10 * SECOND + world.chance().below(SECOND), drift, 0);
    let clock = clocks.boot;
    let id = world.add_host(clocks);
    HostState {
        id,
        clock,
        paused_until: 0,
        resumed: 0,
        mute: false,
        deaf: false,
        sends_again_at: None,
        heard: None,
        is_dead: false,
    }
}

/// What the servers keep in the beginning: nothing, or a directory whose counter is near its end.
fn first_tree(chance: &mut Chance, is_herd: bool) -> NodeTree {
    let mut tree = NodeTree::new();
    let counter = if chance.one_in(2) { NUMBERS_END - 3 } else { 0 };
    if chance.one_in(4) || is_herd {
        return tree;
    }
    let create = |path: &str, is_container: bool| TreeChange::Create {
        path: Rc::from(path),
        data: Rc::from([]),
        owner: 0,
        is_container,
    };
    let lock = lock_path();
    tree.apply(0, &[create(Config::ROOT, false), create(&lock, true)], |_| {});
    if let Some(node) = tree.nodes.get_mut(lock.as_str()) {
        (node.counter, node.had_children) = (counter, true);
    }
    tree
}

impl Drop for Schedule<'_> {
    fn drop(&mut self) {
        clear_calls();
    }
}
