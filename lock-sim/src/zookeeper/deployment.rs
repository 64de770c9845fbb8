//! The ensemble for tests of the backend in which time passes: the shipped backend on simulated servers, in simulated time.
//! Nothing goes wrong but what a test asks for; clocks differ, and messages take as long as they take in the machine.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::channel::oneshot;
use lock_core::{BootInstant, Clock, Context, Error, Executor as _};
use lock_zk::{Config, ZooKeeper};

use super::{
    message::{Answer, EnsembleEvent, SessionId},
    schedule::TICK,
    state::{ClientLink, Schedule},
    tree::TreeChange,
    wire::{SimEnsemble, server},
};
use crate::{
    SECOND, Time, Trace,
    world::{HostClock, HostExecutor, HostId, call_machine},
};

/// The machines of a test; the first one plays the test.
pub const HOSTS: usize = 6;
/// The `tickTime` of the servers.
pub const TICK_TIME: Duration = Duration::from_nanos(TICK);
/// How long a condition may take to come true, in simulated time.
const LIMIT: Duration = Duration::from_secs(600);
/// When a test has to have come to its end, in simulated time.
const END: Time = 3_600 * SECOND;
/// The longest time-out that the servers grant.
const LONGEST: Time = 600 * SECOND;
/// Longer than a request and its answer take while all servers run, and what they make the servers tell others.
const ROUND_TRIP: Duration = Duration::from_millis(60);

/// Something that a test asks of the simulated world, which is done between two steps of it.
type Order = Box<dyn FnOnce(&mut Schedule<'_>)>;

/// Three servers, and the machines of their clients.
#[derive(Clone)]
pub struct Deployment(Rc<DeploymentState>);

/// The state that the clones of a simulated deployment share.
struct DeploymentState {
    hosts: Vec<HostId>,
    /// How many connections there were, each with ids of its own.
    connections: Cell<u64>,
    /// What the test asks of the world.
    orders: RefCell<Vec<Order>>,
}

/// What a host is cut off from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing arrives, in either direction.
    Both,
    /// What the servers say does not arrive.
    Answers,
}

/// Plays `test` with the randomness of that seed: in how wrong clocks are, in how long messages take, in which servers
/// clients connect to.
///
/// # Panics
/// When the test panics, or waits for something that never happens.
pub fn play(seed: u64, test: impl AsyncFnOnce(Deployment) + 'static) {
    let mut trace = Trace::silent();
    let mut schedule = Schedule::undisturbed(seed, &mut trace, HOSTS, LONGEST);
    let hosts = schedule.hosts.iter().map(|host| host.id).collect();
    let deployment =
        Deployment(Rc::new(DeploymentState { hosts, connections: Cell::new(seed << 32), orders: RefCell::default() }));
    let done = Rc::new(Cell::new(false));
    let (played, is_done) = (deployment.clone(), Rc::clone(&done));
    schedule.world.spawn(deployment.0.hosts[0], async move {
        test(played).await;
        is_done.set(true);
    });
    while !done.get()
        && let Some(happening) = schedule.world.next()
    {
        assert!(schedule.now() < END, "seed {seed}: the test waits for something that does not happen in time");
        schedule.see_to(happening);
        for order in deployment.0.orders.take() {
            order(&mut schedule);
        }
    }
    assert!(done.get(), "seed {seed}: the test waits for something that never happens");
}

impl Deployment {
    /// The settings of a client on that host: a session of ten seconds, and the servers' own tick.
    #[must_use]
    pub fn config(&self, host: usize) -> Config {
        Config::new((0..3).map(server))
            .with_session_timeout(Duration::from_secs(10))
            .with_tick_time(TICK_TIME)
            .with_connect_timeout(Duration::from_secs(10))
            .with_response_timeout(Duration::from_secs(10))
            .with_ensemble(Arc::new(SimEnsemble { host }))
    }

    /// Connects with settings that [`Deployment::config`] has given for that host.
    ///
    /// # Errors
    /// As [`ZooKeeper::connect`].
    pub async fn connect(&self, host: usize, config: Config) -> Result<Arc<ZooKeeper>, Error> {
        self.0.connections.set(self.0.connections.get() + 1);
        let executor = Arc::new(HostExecutor::of(self.0.hosts[host]));
        ZooKeeper::connect_in(config, Context::custom(self.clock(host), executor, self.0.connections.get())).await
    }

    /// Runs `work` on a host, beside the test.
    pub fn start<T: Send + 'static>(
        &self,
        host: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, is_done) = oneshot::channel();
        HostExecutor::of(self.0.hosts[host]).spawn(Box::pin(async move {
            let _ = done.send(work.await);
        }));
        is_done
    }

    /// The boot-time clock of a host.
    #[must_use]
    pub fn clock(&self, host: usize) -> Clock {
        Clock::custom(HostClock::of(self.0.hosts[host]))
    }

    /// Lets so much time pass.
    pub async fn pass(&self, time: Duration) {
        self.clock(0).sleep(time).await;
    }

    /// Waits until what is on its way has arrived, and the answers to it.
    pub async fn settle(&self) {
        self.pass(ROUND_TRIP).await;
    }

    /// Waits until it is so.
    ///
    /// # Panics
    /// When it is not so for ten minutes.
    pub async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        let end = self.clock(0).now().saturating_add(LIMIT);
        while !is_so().await {
            assert!(self.clock(0).now() < end, "not within {LIMIT:?}: {what}");
            self.pass(Duration::from_millis(5)).await;
        }
    }

    /// The true time at which the clock of a host shows this. The clocks of two hosts cannot be compared otherwise.
    pub async fn true_time(&self, host: usize, shows: BootInstant) -> Time {
        self.order(move |schedule| schedule.hosts[host].clock.when(shows.as_nanos())).await
    }

    /// Cuts a host off: what is sent meanwhile is lost with its connection.
    pub async fn cut(&self, host: usize, cut: Cut) {
        self.order(move |schedule| {
            let host = &mut schedule.hosts[host];
            (host.mute, host.deaf, host.sends_again_at) = (cut == Cut::Both, true, None);
        })
        .await;
    }

    /// Has the host be heard again, and hear.
    pub async fn heal(&self, host: usize) {
        self.order(move |schedule| schedule.heal_host(host)).await;
    }

    /// Holds up what the servers say to a host, for so long.
    pub async fn hold_answers(&self, host: usize, time: Duration) {
        self.order(move |schedule| {
            let at = schedule.now() + nanos(time);
            let this = &mut schedule.hosts[host];
            (this.deaf, this.sends_again_at) = (true, Some(at));
            schedule.world.at(at, EnsembleEvent::HealHost { host });
        })
        .await;
    }

    /// Breaks all connections of a host. Its clients connect anew.
    pub async fn reset(&self, host: usize) {
        self.order(move |schedule| {
            for client in 0..schedule.clients.len() {
                let this = &schedule.clients[client];
                if let (true, ClientLink::Up { conn, server }) = (this.host == host, this.link) {
                    schedule.servers[server].conns.retain(|other| other.id != conn);
                    schedule.world.after(0, EnsembleEvent::HungUp { client, conn });
                }
            }
        })
        .await;
    }

    /// Has the programs of a host stand still for so long. Not those of the first, which plays the test.
    pub async fn pause_host(&self, host: usize, time: Duration) {
        self.order(move |schedule| {
            let (id, until) = (schedule.hosts[host].id, schedule.now() + nanos(time));
            schedule.hosts[host].paused_until = until;
            schedule.world.pause_host(id);
            schedule.world.at(until, EnsembleEvent::ResumeHost { host });
        })
        .await;
    }

    /// Ends all servers, and starts them anew a tick later with what they knew; the time-outs of sessions begin anew. From then
    /// on they grant time-outs of up to `longest`.
    pub async fn restart(&self, longest: Duration) {
        self.order(move |schedule| {
            for server in 0..schedule.servers.len() {
                schedule.take_server_down(server);
                schedule.servers[server].longest = nanos(longest);
                schedule.world.after(schedule.settings.tick, EnsembleEvent::Heal { server });
            }
        })
        .await;
    }

    /// Ends a session, as the servers do by themselves.
    pub async fn end_session(&self, session: SessionId) {
        self.order(move |schedule| {
            if let Some(tracked) = schedule.session(session) {
                tracked.closing = true;
            }
            schedule.append(vec![TreeChange::Close(session)], None, Ok(Answer::Done), 0, false);
        })
        .await;
        self.settle().await;
    }

    /// Deletes a node, as somebody else.
    pub async fn delete(&self, path: &str) {
        self.change(TreeChange::Delete { path: path.into() }).await;
    }

    /// Writes to a node, as somebody else.
    pub async fn write(&self, path: &str) {
        self.change(TreeChange::Write { path: path.into(), data: Rc::from(*b"x") }).await;
    }

    /// Makes a node that stays, as somebody else.
    pub async fn create(&self, path: &str) {
        let change = TreeChange::Create { path: path.into(), data: Rc::from([]), owner: 0, is_container: false };
        self.change(change).await;
    }

    /// Has the leader remove the containers that are empty, as it does by itself in longer times.
    pub async fn reap(&self) {
        self.order(|schedule| {
            schedule.reap();
        })
        .await;
        self.settle().await;
    }

    async fn change(&self, change: TreeChange) {
        self.order(move |schedule| schedule.append(vec![change], None, Ok(Answer::Done), 0, true)).await;
        self.settle().await;
    }

    /// The children of a node, in their order by name, as committed; none of a node that is not there.
    pub async fn children(&self, path: &str) -> Vec<String> {
        let path = path.to_owned();
        let mut children = self
            .order(move |schedule| schedule.leader_tree().and_then(|tree| tree.children(&path)).unwrap_or_default())
            .await;
        children.sort_unstable();
        children
    }

    /// Whether a node is there.
    pub async fn exists(&self, path: &str) -> bool {
        let path = path.to_owned();
        self.order(move |schedule| schedule.leader_tree().is_some_and(|tree| tree.get(&path).is_some())).await
    }

    /// How many watches the servers keep. Here clients remove none before it has fired.
    pub async fn watches(&self) -> usize {
        self.order(|schedule| {
            let conns = schedule.servers.iter().flat_map(|server| &server.conns);
            conns.map(|conn| conn.nodes.len() + conn.children.len()).sum()
        })
        .await
    }

    /// How many requests have arrived at the servers so far, pings apart.
    pub async fn requests(&self) -> u64 {
        self.order(|schedule| schedule.requests).await
    }

    /// How many sessions are open.
    pub async fn sessions(&self) -> usize {
        self.order(|schedule| schedule.invariants.alive.len()).await
    }

    async fn order<T: 'static>(&self, order: impl FnOnce(&mut Schedule<'_>) -> T + 'static) -> T {
        let (answer, answered) = oneshot::channel();
        self.0.orders.borrow_mut().push(Box::new(move |schedule| {
            let _ = answer.send(order(schedule));
        }));
        call_machine();
        match answered.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deployment").field("hosts", &self.0.hosts).finish_non_exhaustive()
    }
}

fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}
