//! A world in which shipped code runs: hosts with clocks of their own, servers, and a network between them, in virtual time.
//!
//! One schedule is one thread and one seed. Programs are futures on a [`HostId`]; they see their host's clocks and nothing
//! else of time, and reach servers through [`SimStream`]s. Servers are values of the machine that plays the schedule: the
//! world says what [`Happening`]s there are for them, and takes their answers. The loop of a machine is
//!
//! ```
//! use lock_sim::{Chance, world::{Happening, HostClocks, SimStream, Wires, World}};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let mut world = World::<()>::new(Chance::new(7), Wires::default());
//! let (host, server) = (world.add_host(HostClocks::true_time()), world.add_server());
//! world.spawn(host, async move {
//!     let mut stream = SimStream::dial(host, server).await.unwrap();
//!     stream.write_all(b"ping").await.unwrap();
//!     let mut answer = [0; 4];
//!     stream.read_exact(&mut answer).await.unwrap();
//!     assert_eq!(&answer, b"pong");
//! });
//! while let Some(happening) = world.next() {
//!     if let Happening::Arrived { connection, .. } = happening {
//!         world.answer(connection, b"pong".to_vec());
//!     }
//! }
//! ```
//!
//! # What makes a seed replay exactly
//! Everything random is drawn from the [`Chance`] of the world, and what shipped code draws with `fastrand` from a generator
//! that is seeded with it. Which of the tasks that are ready is polled next is drawn, too; those that one poll has woken
//! become ready in the order of their numbers, since libraries wake many in an order that no seed decides.
//! [`World::fingerprint`] differs whenever two schedules do.
//!
//! # What goes wrong
//! A host can be [paused](World::pause_host) (its tasks are not polled, its kernel goes on) and [killed](World::kill_host).
//! A server can be [paused](World::pause_server), [stopped](World::stop_server) and [started](World::start_server). A way
//! between the two can be [blocked](World::block). Chunks are late and lost as [`Wires`] says.

mod executor;
mod host;
mod id;
mod links;
mod network;
mod servers;
mod shared;

use std::{collections::VecDeque, future::Future, sync::Arc};

use lock_core::{BootInstant, Clock, Context};

use self::{
    executor::{HostRunState, TaskTable},
    network::{Detention, NetworkConnection},
    servers::ServerState,
    shared::{ConnectionState, HostState, SleepKey, TaskRequest, shared},
};
pub use self::{
    host::{HOSTS, HostClock, HostExecutor},
    id::{ConnectionId, HostId, ServerId},
    network::{SimEnding, SimStream, Way, Wires},
    shared::{HostClocks, call_machine},
};
use crate::{Agenda, Chance, LocalClock, MS, SECOND, Time};

/// How often tasks may be polled without any time that passes.
const POLLS_AT_ONE_MOMENT: u32 = 200_000;

/// When the clocks on the wall begin.
const EPOCH: Time = 1_600_000_000 * SECOND;

/// How much later than it should a timer fires at most.
const LATE_TIMER: Time = MS;

/// What a machine has to see to.
#[derive(Debug)]
pub enum Happening<E> {
    /// A client has connected to a server.
    Connected {
        /// To which one.
        server: ServerId,
        /// The connection.
        connection: ConnectionId,
    },
    /// Bytes have come.
    Arrived {
        /// At which server.
        server: ServerId,
        /// On which connection.
        connection: ConnectionId,
        /// The next ones on it.
        bytes: Vec<u8>,
    },
    /// A connection is over.
    Ended {
        /// At which server.
        server: ServerId,
        /// The connection.
        connection: ConnectionId,
    },
    /// What the machine has put on the agenda itself.
    Own(E),
    /// A task has left something for the machine: see [`call_machine`].
    Called,
    /// Something has happened to clients only, and they have acted on it. Told only where the machine
    /// [asks for everything](World::tell_everything).
    Passed,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The process alone: its kernel resets its connections.
    Process,
    /// The whole machine: nobody is told anything.
    Machine,
}

/// What the world's agenda has for the simulated network and timers, or for the machine on top of them.
#[derive(Debug)]
enum WorldEvent<E> {
    Wake(SleepKey),
    /// The first packet of a connection reaches its server.
    Syn(ConnectionId),
    Opened(ConnectionId, bool),
    /// Chunks up to that number arrive.
    Arrive(ConnectionId, Way, u32),
    /// The other side of this way learns that the connection is over.
    Over(ConnectionId, Way, bool),
    Unacknowledged(ConnectionId),
    /// The client hears that the connection is over, and the server does not.
    BreakOff(ConnectionId),
    Own(E),
}

/// The true time of the schedule that this thread plays. For those who check: no program knows it.
#[must_use]
pub fn true_time() -> Time {
    shared(|shared| shared.now)
}

/// One schedule.
#[derive(Debug)]
pub struct World<E> {
    chance: Chance,
    agenda: Agenda<WorldEvent<E>>,
    tasks: TaskTable,
    gates: Vec<HostRunState>,
    servers: Vec<ServerState<E>>,
    lines: Vec<NetworkConnection>,
    /// Both ways between each host and each server.
    blocked: Vec<[bool; 2]>,
    wires: Wires,
    detention: Option<Detention>,
    happened: VecDeque<Happening<E>>,
    steps: u64,
    fingerprint: u64,
    tells_everything: bool,
}

impl HostClocks {
    /// Clocks that show true time.
    #[must_use]
    pub fn true_time() -> Self {
        Self::new(0, 0, 0)
    }

    /// A boot-time clock that runs too fast by `drift` millionths (too slow when that is negative), as the clock on the wall
    /// does, which is wrong by `offset` nanoseconds beside.
    #[must_use]
    pub fn new(since_boot: Time, drift: i64, offset: i64) -> Self {
        let wall = LocalClock::new(EPOCH.saturating_add_signed(offset), drift);
        Self { boot: LocalClock::new(SECOND + since_boot, drift), wall }
    }
}

impl<E> World<E> {
    /// A world with nobody in it.
    ///
    /// # Panics
    /// While another one is on this thread, and inside of a tokio runtime: what that has for a fair share would keep tasks
    /// waiting that it never wakes.
    #[must_use]
    pub fn new(chance: Chance, wires: Wires) -> Self {
        assert!(tokio::runtime::Handle::try_current().is_err(), "a world is no part of a runtime");
        Self::without_tasks(chance, wires)
    }

    /// A world in which no task is to run, as beside a real server.
    ///
    /// # Panics
    /// While another one is on this thread.
    #[must_use]
    pub fn without_tasks(mut chance: Chance, wires: Wires) -> Self {
        shared::begin();
        fastrand::seed(chance.below(u64::MAX));
        Self {
            chance,
            agenda: Agenda::default(),
            tasks: TaskTable::default(),
            gates: Vec::new(),
            servers: Vec::new(),
            lines: Vec::new(),
            blocked: Vec::new(),
            wires,
            detention: None,
            happened: VecDeque::new(),
            steps: 0,
            fingerprint: 0,
            tells_everything: false,
        }
    }

    /// Another host. To be called before the first server is added.
    ///
    /// # Panics
    /// When there are [`HOSTS`] already, or a server.
    pub fn add_host(&mut self, clocks: HostClocks) -> HostId {
        assert!(self.gates.len() < HOSTS && self.servers.is_empty(), "hosts come first, and few");
        let host = HostId(u8::try_from(self.gates.len()).unwrap_or(u8::MAX));
        self.gates.push(HostRunState::Running);
        shared(|shared| shared.hosts.push(HostState { clocks }));
        host
    }

    /// What shipped code takes from a host: its clocks, its tasks, ids that follow from the seed.
    #[must_use]
    pub fn context(&mut self, host: HostId) -> Context {
        let seed = self.chance.below(u64::MAX);
        Context::custom(Clock::custom(HostClock::of(host)), Arc::new(HostExecutor::of(host)), seed)
    }

    /// Runs a program on a host.
    pub fn spawn(&mut self, host: HostId, program: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(host, Box::pin(program));
    }

    /// The present moment.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.agenda.now()
    }

    /// Has each event told of, also those that concern clients only.
    pub const fn tell_everything(&mut self) {
        self.tells_everything = true;
    }

    /// Everything random.
    pub const fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    /// How many events there were, timers and chunks included.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Sums up what happened so far, and in which order.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Lets `event` happen at `at`.
    pub fn at(&mut self, at: Time, event: E) {
        self.agenda.at(at, WorldEvent::Own(event));
    }

    /// Lets `event` happen after `delay`.
    pub fn after(&mut self, delay: Time, event: E) {
        self.agenda.after(delay, WorldEvent::Own(event));
    }

    /// The earliest true time at which the boot-time clock of a host shows this.
    #[must_use]
    pub fn when(&self, host: HostId, shows: BootInstant) -> Time {
        shared(|shared| shared.hosts[host.place()].clocks.boot.when(shows.as_nanos()))
    }

    /// Puts the clock on the wall of a host forward, or back when `by` is negative.
    pub fn jump(&mut self, host: HostId, by: i64) {
        let now = self.now();
        shared(|shared| shared.hosts[host.place()].clocks.wall.jump(now, by));
    }

    /// Lets the tasks of a host stand still. Its kernel goes on.
    pub fn pause_host(&mut self, host: HostId) {
        let gate = &mut self.gates[host.place()];
        if matches!(gate, HostRunState::Running) {
            *gate = HostRunState::Paused(Vec::new());
        }
    }

    /// Lets them go on with what they knew.
    pub fn resume_host(&mut self, host: HostId) {
        let gate = &mut self.gates[host.place()];
        if let HostRunState::Paused(set_aside) = gate {
            self.tasks.again(set_aside);
            *gate = HostRunState::Running;
        }
    }

    /// Whether its tasks run.
    #[must_use]
    pub fn is_running(&self, host: HostId) -> bool {
        matches!(self.gates[host.place()], HostRunState::Running)
    }

    /// Ends what runs on a host, in the middle of whatever it does: nothing of it is polled or dropped any more.
    pub fn kill_host(&mut self, host: HostId, stop: Stop) {
        self.gates[host.place()] = HostRunState::Dead;
        for place in 0..self.lines.len() {
            if self.lines[place].host == host {
                self.host_is_gone(ConnectionId(u32::try_from(place).unwrap_or(u32::MAX)), stop);
            }
        }
    }

    /// Lets everything happen up to the next thing that the machine has to see to; `None` when nothing will happen any more.
    ///
    /// # Panics
    /// When tasks wake each other for ever.
    #[allow(clippy::should_implement_trait, reason = "a machine changes the world between two of them")]
    pub fn next(&mut self) -> Option<Happening<E>> {
        loop {
            self.settle();
            if let Some(happening) = self.happened.pop_front() {
                return Some(happening);
            }
            let event = self.agenda.next_event()?;
            self.steps += 1;
            let now = self.agenda.now();
            shared(|shared| shared.now = now);
            let has_happened = self.happen(event);
            if has_happened && self.tells_everything && self.happened.is_empty() {
                self.settle();
                return Some(Happening::Passed);
            }
        }
    }

    /// Polls whoever is ready, until nobody is.
    ///
    /// # Panics
    /// When tasks wake each other for ever.
    pub fn settle(&mut self) {
        for _ in 0..POLLS_AT_ONE_MOMENT {
            while let Some(request) = shared(|shared| shared.requests.pop_front()) {
                self.carry_out(request);
            }
            self.tasks.gather();
            let Some(task) = self.tasks.next(&mut self.chance, &mut self.gates) else { return };
            self.sum_up(task.number());
            self.tasks.poll(task);
        }
        panic!("tasks wake each other for ever");
    }

    fn carry_out(&mut self, request: TaskRequest) {
        match request {
            TaskRequest::Spawn(host, task) => self.tasks.spawn(host, task),
            TaskRequest::Call => self.happened.push_back(Happening::Called),
            TaskRequest::Wake { at, sleep } => {
                let late = self.chance.below(LATE_TIMER);
                self.agenda.at(at.saturating_add(late), WorldEvent::Wake(sleep));
            }
            TaskRequest::Dial { connection } => self.dial(connection),
            TaskRequest::Write { connection, bytes } => self.send(connection, Way::Up, bytes),
            TaskRequest::End { connection } => self.client_ends(connection),
        }
    }

    /// Whether that was anything: most timers are of limits, for which nobody waits any more when they fire.
    fn happen(&mut self, event: WorldEvent<E>) -> bool {
        match event {
            WorldEvent::Wake(sleep) => {
                let waker = shared(|shared| shared.sleeps.take(sleep));
                let Some(waker) = waker else { return false };
                waker.wake();
            }
            WorldEvent::Syn(connection) => self.syn(connection),
            WorldEvent::Opened(connection, is_accepted) => {
                let state = if is_accepted { ConnectionState::Open } else { ConnectionState::Refused };
                self.tell_client(connection, |end| {
                    if end.state == ConnectionState::Opening {
                        end.state = state;
                    }
                });
            }
            WorldEvent::Arrive(connection, way, number) => self.arrive(connection, way, number),
            WorldEvent::Over(connection, way, is_reset) => self.is_over(connection, way, is_reset),
            WorldEvent::Unacknowledged(connection) => self.unacknowledged(connection),
            WorldEvent::BreakOff(connection) => self.break_off(connection),
            WorldEvent::Own(event) => self.happened.push_back(Happening::Own(event)),
        }
        true
    }

    fn sum_up(&mut self, what: u64) {
        let mixed = self.fingerprint.rotate_left(5) ^ what ^ self.agenda.now();
        self.fingerprint = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl<E> Drop for World<E> {
    /// Nothing that is left acts any more: it is dropped when the schedule is over.
    fn drop(&mut self) {
        shared::end();
        self.tasks.clear();
    }
}
