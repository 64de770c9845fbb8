//! A deployment in simulated time: the shipped backend on simulated servers, for tests in which time passes.

#![expect(clippy::future_not_send, reason = "a world is played on one thread")]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::RangeInclusive,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use futures::channel::oneshot;
use lock_core::{Clock, Context, Error, Guard, Locks, Settings};
use lock_redis::protocol::packed::Lock;
use lock_redlock::{Config, InitOptions, Redlock, Replaced};
use lock_sim::{
    Chance, LocalClock, SECOND, Time,
    redis::{Fleet, HostNetwork, Loses, PORTS, Reply},
    world::{HostClocks, HostId, ServerId, Stop, Way, Wires, World, call_machine, true_time},
};

/// How many schedules each test plays.
const SEEDS: u64 = 5;
/// How long a condition may take to come true, in simulated time.
const LIMIT: Duration = Duration::from_secs(60);
/// When a schedule has to have come to its end.
const END: Time = 300 * SECOND;
/// How many messages follow from each other at most, to the end of a vote with its late answers.
const MESSAGES_IN_A_ROW: u32 = 20;
/// The clients of a test: each is a machine of its own.
const CLIENTS: usize = 3;
/// How many servers there are besides the members.
const SPARES: usize = 3;
/// What all servers are called; their ports differ.
const HOST: &str = "server";

type Order = Box<dyn FnOnce(&mut World<()>, &mut Fleet)>;

/// The servers of a deployment, and the machines of its clients.
#[derive(Clone)]
pub(crate) struct Nodes(Rc<Inner>);

struct Inner {
    hosts: Vec<HostId>,
    contexts: Vec<Context>,
    /// The members, and [`SPARES`] that are none.
    servers: Vec<ServerId>,
    fleet: RefCell<Fleet>,
    /// The longest that a message takes.
    longest_way: Cell<Duration>,
    /// What the test asks of the world.
    orders: RefCell<Vec<Order>>,
}

/// Plays `test` several times, with so many servers that are a deployment with these settings.
pub(crate) fn simulated<F>(
    servers: usize,
    settings: &'static [(&'static str, &'static str)],
    test: impl Fn(Nodes) -> F + Copy + 'static,
) where
    F: Future<Output = ()> + 'static,
{
    for seed in 0..SEEDS {
        play(seed, servers, settings, test);
    }
}

fn play<F>(
    seed: u64,
    servers: usize,
    settings: &'static [(&'static str, &'static str)],
    test: impl Fn(Nodes) -> F + 'static,
) where
    F: Future<Output = ()> + 'static,
{
    let wires = Wires { unacknowledged: None, ..Wires::default() };
    let longest_way = Cell::new(Duration::from_nanos(wires.most));
    let mut world = World::<()>::new(Chance::new(seed), wires);
    let hosts: Vec<HostId> = (0..CLIENTS).map(|_| world.add_host(HostClocks::true_time())).collect();
    let contexts = hosts.iter().map(|host| world.context(*host)).collect();
    let mut fleet = Fleet::default();
    let clock = LocalClock::new(1_600_000_000 * SECOND, 0);
    let servers = (0..servers + SPARES).map(|_| fleet.add(&mut world, clock, None)).collect();
    let (fleet, orders) = (RefCell::new(fleet), RefCell::default());
    let inner = Inner { hosts, contexts, servers, fleet, longest_way, orders };
    let (nodes, done) = (Nodes(Rc::new(inner)), Rc::new(Cell::new(false)));
    let (played, is_done) = (nodes.clone(), Rc::clone(&done));
    world.spawn(nodes.0.hosts[0], async move {
        played.init(settings, InitOptions::new().with_no_holders()).await.unwrap();
        test(played).await;
        is_done.set(true);
    });
    while !done.get()
        && let Some(happening) = world.next()
    {
        assert!(world.now() < END, "seed {seed}: the test waits for something that does not happen in time");
        nodes.0.fleet.borrow_mut().see_to(&mut world, happening);
        for order in nodes.0.orders.take() {
            order(&mut world, &mut nodes.0.fleet.borrow_mut());
        }
    }
    assert!(done.get(), "seed {seed}: the test waits for something that never happens");
}

impl Nodes {
    /// The settings of a client on this machine.
    pub(crate) fn config(&self, client: usize, values: &[(&str, &str)]) -> Config {
        self.config_of(client, 0..self.len(), values)
    }

    /// As [`Nodes::config`], with this list of servers.
    fn config_of(&self, client: usize, list: impl IntoIterator<Item = usize>, values: &[(&str, &str)]) -> Config {
        let mut settings = Settings::new("redlock");
        let address = |node| (HOST.to_owned(), Some(self.port(node)));
        settings.hosts = list.into_iter().map(address).collect();
        settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let network = HostNetwork(self.0.hosts[client]);
        Config::from_settings(settings).unwrap().with_network(&(Arc::new(network) as _))
    }

    fn port(&self, node: usize) -> u16 {
        PORTS + u16::try_from(self.0.servers[node].place()).unwrap()
    }

    /// Replaces a member by the first server that is none, as an operator does.
    pub(crate) async fn replace(&self, old: usize) -> Result<Replaced, Error> {
        let members: Vec<usize> = (0..self.len()).collect();
        self.replace_of(&members, old, self.len()).await
    }

    /// Replaces one of these members by another server.
    async fn replace_of(&self, members: &[usize], old: usize, new: usize) -> Result<Replaced, Error> {
        let config = self.config_of(0, members.iter().copied(), &[]);
        let [old, new] = [old, new].map(|node| (HOST, self.port(node)));
        lock_redlock::replace_in(&config, old, new, self.context(0)).await
    }

    /// Tries to replace one of these members by another server until it is done, through errors.
    pub(crate) async fn until_replaced(&self, members: &[usize], old: usize, new: usize) {
        let end = self.clock().now().saturating_add(LIMIT);
        while let Err(error) = self.replace_of(members, old, new).await {
            assert!(self.clock().now() < end, "not replaced within {LIMIT:?}: {error}");
            self.clock().sleep(Duration::from_millis(50)).await;
        }
    }

    /// A connection of this client with the list of after [`Nodes::replace`].
    pub(crate) async fn connect_without(&self, client: usize, old: usize) -> Locks {
        let config = self.config_of(client, (0..=self.len()).filter(|node| *node != old), &[]);
        Locks::new(Redlock::connect_in(config, self.context(client)).await.unwrap())
    }

    /// Marks the servers, as an operator does.
    pub(crate) async fn init(&self, settings: &[(&str, &str)], options: InitOptions) -> Result<Duration, Error> {
        lock_redlock::init_in(&self.config(0, settings), options, self.context(0)).await
    }

    /// A connection of the first client.
    pub(crate) async fn connect(&self, values: &[(&str, &str)]) -> Locks {
        self.connect_from(0, values).await
    }

    /// A connection of this client.
    pub(crate) async fn connect_from(&self, client: usize, values: &[(&str, &str)]) -> Locks {
        let config = self.config(client, values);
        Locks::new(Redlock::connect_in(config, self.context(client)).await.unwrap())
    }

    /// Runs `work` on the machine of this client, beside the test.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        client: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, is_done) = oneshot::channel();
        self.context(client).spawn(async move {
            let _ = done.send(work.await);
        });
        is_done
    }

    pub(crate) fn context(&self, client: usize) -> Context {
        self.0.contexts[client].clone()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.contexts[0].clock()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.servers.len() - SPARES
    }

    /// Runs one command on a server, at once.
    pub(crate) fn command<W: AsRef<[u8]>>(&self, node: usize, words: &[W]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        match self.0.fleet.borrow_mut().at(self.0.servers[node], true_time()).command(&words) {
            Reply::Error(error) => panic!("{error}"),
            reply => reply,
        }
    }

    /// Has a server forget its scripts.
    pub(crate) fn forget_scripts(&self, node: usize) {
        self.0.fleet.borrow_mut().at(self.0.servers[node], true_time()).forget_scripts();
    }

    /// The value of a key on a server, as text.
    pub(crate) fn get(&self, node: usize, key: &str) -> Option<String> {
        match self.command(node, &["GET", key]) {
            Reply::Bulk(text) => Some(String::from_utf8_lossy(&text).into_owned()),
            Reply::Nil => None,
            other => panic!("{other:?}"),
        }
    }

    /// How many servers have the key of `name`.
    pub(crate) fn count(&self, name: &str) -> usize {
        let key = format!("{{lock:{name}}}");
        (0..self.len()).filter(|node| self.command(*node, &["EXISTS", &key]) == Reply::Int(1)).count()
    }

    /// What a server keeps of the one that holds `name` alone.
    pub(crate) fn writer(&self, node: usize, name: &str) -> Option<Lock> {
        match self.command(node, &["GET", &format!("{{lock:{name}}}")]) {
            Reply::Bulk(held) => Lock::read(&held),
            _ => None,
        }
    }

    /// How many servers have so many readers of `name`.
    pub(crate) fn readers(&self, name: &str, count: i64) -> usize {
        let key = format!("{{lock:{name}}}:readers");
        (0..self.len()).filter(|node| self.command(*node, &["ZCARD", &key]) == Reply::Int(count)).count()
    }

    /// The keys of `name` on a server.
    pub(crate) fn keys(&self, node: usize, name: &str) -> Vec<String> {
        let prefix = format!("{{lock:{name}}}");
        let mut fleet = self.0.fleet.borrow_mut();
        let keys = fleet.store(self.0.servers[node], true_time()).keys();
        let keys = keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned());
        keys.filter(|key| key.starts_with(&prefix)).collect()
    }

    /// Everything that a server keeps of `name`, but for the counter and notes of what was undone, which stay for a while.
    pub(crate) fn residue(&self, node: usize, name: &str) -> Vec<String> {
        let mut keys = self.keys(node, name);
        keys.retain(|key| !key.ends_with(":token") && !key.contains(":undone:"));
        keys
    }

    /// Waits until what is on its way has arrived, and the answers to it, and what follows from these. Nothing is lost here, so
    /// that takes so many times the longest that a message takes, whatever the machine on which this is played.
    pub(crate) async fn settle(&self) {
        self.clock().sleep(self.0.longest_way.get() * MESSAGES_IN_A_ROW).await;
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let end = self.clock().now().saturating_add(LIMIT);
        while !condition() {
            assert!(self.clock().now() < end, "not within {LIMIT:?}: {what}");
            self.clock().sleep(Duration::from_millis(5)).await;
        }
    }

    /// Tries to take a lock until it is granted, through errors.
    pub(crate) async fn until_granted(&self, locks: &Locks, name: &str) -> Guard {
        let end = self.clock().now().saturating_add(LIMIT);
        loop {
            if let Ok(Some(guard)) = locks.mutex(name).try_lock().await {
                return guard;
            }
            assert!(self.clock().now() < end, "not granted within {LIMIT:?}");
            self.clock().sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until these servers keep nothing of `name`.
    pub(crate) async fn until_nothing_is_left(&self, nodes: impl IntoIterator<Item = usize>, name: &str) {
        let nodes: Vec<usize> = nodes.into_iter().collect();
        let residues = || nodes.iter().map(|node| (*node, self.residue(*node, name))).collect::<BTreeMap<_, _>>();
        self.until("nothing is left", || residues().values().all(Vec::is_empty)).await;
    }

    /// Has a server stand still.
    pub(crate) async fn stop(&self, node: usize) {
        let server = self.0.servers[node];
        self.order(move |world, _| world.pause_server(server)).await;
    }

    /// Has a server go on that stood still.
    pub(crate) async fn cont(&self, node: usize) {
        let server = self.0.servers[node];
        self.order(move |world, _| world.resume_server(server)).await;
    }

    /// Ends the process of a server.
    pub(crate) async fn kill(&self, node: usize) {
        let server = self.0.servers[node];
        self.order(move |world, fleet| fleet.stop(world, server, Stop::Process)).await;
    }

    /// Starts a server anew, without its data.
    pub(crate) async fn restart_empty(&self, node: usize) {
        let server = self.0.servers[node];
        self.kill(node).await;
        self.order(move |world, fleet| fleet.start(world, server, Loses::Everything)).await;
    }

    /// Holds what a client sends to a server, or what the server sends to it, until the way is open again.
    pub(crate) async fn block(&self, client: usize, node: usize, way: Way, is_blocked: bool) {
        let (host, server) = (self.0.hosts[client], self.0.servers[node]);
        self.order(move |world, _| world.block(host, server, way, is_blocked)).await;
    }

    /// Holds the next request about `late` on its way from a client to a server, whose connection the client gives up, until
    /// [`Nodes::let_go`].
    pub(crate) async fn hold_late(&self, client: usize, node: usize) {
        let (host, server) = (self.0.hosts[client], self.0.servers[node]);
        let is_meant = |request: &[u8]| String::from_utf8_lossy(request).contains("{lock:late}");
        self.order(move |world, _| world.detain(host, server, is_meant, true)).await;
    }

    /// Lets the request arrive that is held on its way.
    pub(crate) async fn let_go(&self) {
        self.order(|world, _| world.let_go(1)).await;
    }

    /// Has every message take so long.
    pub(crate) async fn delay(&self, by: Duration) {
        self.delay_by(by..=by).await;
    }

    /// Has each message take a time of its own between these.
    pub(crate) async fn delay_by(&self, range: RangeInclusive<Duration>) {
        let [least, most] = [range.start(), range.end()].map(|delay| u64::try_from(delay.as_nanos()).unwrap());
        self.0.longest_way.set(*range.end());
        self.order(move |world, _| world.set_wires(|wires| (wires.least, wires.most) = (least, most))).await;
    }

    async fn order(&self, order: impl FnOnce(&mut World<()>, &mut Fleet) + 'static) {
        let (done, is_done) = oneshot::channel();
        self.0.orders.borrow_mut().push(Box::new(move |world, fleet| {
            order(world, fleet);
            let _ = done.send(());
        }));
        call_machine();
        is_done.await.unwrap();
    }
}
