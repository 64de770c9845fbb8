//! ZooKeeper, one server or an ensemble.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Clock, LockName, conformance::Kept};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission, Stat};

use crate::{
    LabError,
    deployment::{
        Connection, Decides, Description, GroundTruth, Held, Lease, Left, Sample, Servers, StartOptions, StartFuture, Trials,
    },
    servers::{SILENCE, ZooKeeper, ZooKeeperOptions, rights, until::RetryLimit, zookeeper::session},
};

/// The cases that lock names of every kind. In the layouts of other libraries a name is a path, and what is none is refused.
const OTHER_NAMES: [&str; 2] =
    ["any_name_can_be_locked_and_excludes_only_itself", "names_that_escape_alike_do_not_collide"];

inventory::submit! {
    Description {
        // Every case is tried out on three servers, of which each client has its own, but for those with very many grants.
        trials: Trials::OfTheWayAndLong,
        is_compared: true,
        is_struck: true,
        quick: &["server-restarted-durable", "session-taken-over"],
        column: Some("ZooKeeper"),
        ..ONE
    }
}

inventory::submit! {
    Description {
        key: "zk1-herd",
        title: "ZooKeeper 1 herd",
        settings: "strategy=herd",
        start: |options| start(1, Strategy::Herd, options),
        trials: Trials::All,
        is_in_clear: true,
        is_compared: true,
        column: Some("ZooKeeper `strategy=herd`"),
        ..ONE
    }
}

inventory::submit! {
    Description {
        key: "zk3",
        title: "ZooKeeper 3",
        servers: 3,
        decides: Decides::Ensemble(3),
        start: |options| start(3, Strategy::Queue, options),
        trials: Trials::AllButLong,
        is_compared: true,
        strike: Some("the leader of three killed"),
        is_struck: true,
        quick: &[
            "holder-killed",
            "holder-stopped",
            "pauses",
            "server-killed",
            "server-frozen",
            "rolling-restart",
            "holder-stopped-server-killed",
            "partition-holder",
            "reply-cut",
        ],
        ..ONE
    }
}

inventory::submit! {
    Description {
        key: "zk1-curator",
        title: "ZooKeeper 1 curator",
        settings: "layout=curator",
        start: |options| start(1, Strategy::Curator, options),
        trials: Trials::AllButLong,
        is_in_clear: true,
        except: &OTHER_NAMES,
        column: Some("ZooKeeper `layout=curator`"),
        ..ONE
    }
}

inventory::submit! {
    Description {
        key: "zk1-kazoo",
        title: "ZooKeeper 1 kazoo",
        settings: "layout=kazoo",
        start: |options| start(1, Strategy::Kazoo, options),
        trials: Trials::AllButLong,
        is_in_clear: true,
        except: &OTHER_NAMES,
        column: Some("ZooKeeper `layout=kazoo`"),
        ..ONE
    }
}

/// One server, which has each transaction on its disk.
const ONE: Description = Description {
    scheme: "zk",
    // A session ends at the end of a tick.
    lease: Some(Lease { setting: "session_timeout", notice: Duration::from_millis(200), has_claims: false }),
    answer_limit: Some("response_timeout"),
    decides: Decides::Ensemble(1),
    is_durable: true,
    strike: Some("the server killed, and started again with its data"),
    ..Description::new("zk1", "ZooKeeper 1", |options| start(1, Strategy::Queue, options))
};

/// Where the locks are by default.
const ROOT: &str = "/locks";
/// What whoever looks on writes to, to see everything that was committed before.
const MARKER: &str = "/observer";
/// The session of whoever looks on. An answer may take two fifths of it.
const SESSION: Duration = Duration::from_secs(120);
/// How many digits a server puts behind a name.
const DIGITS: usize = 10;
/// Between two questions to a server that does not serve yet.
const PAUSE: Duration = Duration::from_millis(5);

/// How contenders take turns in a deployment, and what their nodes are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// In line, each with a node of its own in the lock's directory.
    Queue,
    /// In line, by the names of Curator.
    Curator,
    /// In line, by the names of kazoo.
    Kazoo,
    /// Around the lock's path, which is the holder's node.
    Herd,
}

impl Strategy {
    /// Whether the nodes are those of another library.
    const fn is_foreign(self) -> bool {
        matches!(self, Self::Curator | Self::Kazoo)
    }

    /// The directory of a lock, or its one node.
    fn directory(self, name: &LockName) -> String {
        if self.is_foreign() { format!("{ROOT}/{name}") } else { format!("{ROOT}/{}", name.to_component()) }
    }

    /// The directory of the sessions' own nodes.
    fn sessions(self) -> String {
        format!("{ROOT}/{}", if self.is_foreign() { "_sessions" } else { ".sessions" })
    }
}

fn start(count: usize, strategy: Strategy, options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let ticks = (u128::from(SILENCE) / ZooKeeper::TICK.as_millis()).to_string();
        let settings: &[_] = if options.bears_silence { &[("syncLimit", ticks.as_str())] } else { &[] };
        let told = ZooKeeperOptions::default().with_tls(options.tls);
        let servers = ZooKeeper::start_as_told(count, settings, told).await?;
        let truth = Arc::new(ZooKeeperTruth::new(&servers.ports(), strategy, options.patience));
        if options.users {
            truth.grant_least_rights().await?;
        }
        Ok(Box::new(ZooKeeperDeployment { servers, truth, has_users: options.users }) as Box<dyn Servers>)
    })
}

/// A running ZooKeeper ensemble, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct ZooKeeperDeployment {
    servers: ZooKeeper,
    truth: Arc<ZooKeeperTruth>,
    has_users: bool,
}

#[async_trait]
impl Servers for ZooKeeperDeployment {
    fn ports(&self) -> Vec<u16> {
        self.servers.client_ports()
    }

    fn authority(&self, way: &Connection) -> String {
        // Where the names are paths, nothing is put before them that the URL does not say.
        let root = if self.truth.strategy.is_foreign() { ROOT } else { "" };
        rights::user(self.has_users) + &way.hosts(&self.ports()) + root
    }

    fn settings(&self, _way: &Connection) -> String {
        format!("tick_time={}ms", ZooKeeper::TICK.as_millis())
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    async fn version(&self) -> Result<String, LabError> {
        self.servers.version().await
    }

    async fn requests(&self) -> Result<Option<u64>, LabError> {
        self.servers.packets().await.map(Some)
    }

    async fn ready(&mut self) -> Result<(), LabError> {
        self.servers.wait_until_ready().await
    }

    async fn leading(&self, _lock: &LockName) -> Result<Option<usize>, LabError> {
        Ok(self.servers.leader().await)
    }

    fn kill(&mut self, server: usize) {
        self.servers.kill(server);
    }

    fn stop(&self, server: usize) -> Result<(), LabError> {
        self.servers.stop(server)
    }

    fn cont(&self, server: usize) -> Result<(), LabError> {
        self.servers.cont(server)
    }

    async fn restart(&mut self, server: usize) -> Result<(), LabError> {
        self.servers.restart(server).await
    }

    /// It serves nobody before it has a leader, and the others may be next.
    async fn restart_at_once(&mut self, server: usize) -> Result<(), LabError> {
        self.servers.launch_again(server)
    }

    /// An ensemble has elected another leader by then: one that had not would count the empty server among those that know
    /// everything.
    async fn restart_empty(&mut self, server: usize) -> Result<(), LabError> {
        self.servers.kill(server);
        self.servers.wait_until_ready().await?;
        self.servers.restart_empty(server).await
    }
}

/// The [`GroundTruth`] of a ZooKeeper ensemble, read by a client for each server, made when it is needed. Each server
/// tells the same; one at a time is asked, the next one when it does not answer: a client's own change to another server
/// takes the time of its session.
#[derive(Debug)]
struct ZooKeeperTruth {
    strategy: Strategy,
    patience: Duration,
    clients: Vec<(u16, tokio::sync::Mutex<Option<Client>>)>,
    turn: AtomicUsize,
    /// The node of each grant that was looked at: found once by listing, then looked at directly.
    nodes: Mutex<HashMap<(LockName, u64), String>>,
}

/// The node of a lock's holder, as a ZooKeeper server shows it.
#[derive(Debug)]
struct HolderNode {
    payload: Vec<u8>,
    stat: Stat,
}

impl ZooKeeperTruth {
    fn new(ports: &[u16], strategy: Strategy, patience: Duration) -> Self {
        let clients = ports.iter().map(|port| (*port, tokio::sync::Mutex::default())).collect();
        Self { strategy, patience, clients, turn: AtomicUsize::new(0), nodes: Mutex::default() }
    }

    /// The least rights that are enough: docs/protocols.md has them in a table.
    async fn grant_least_rights(&self) -> Result<(), LabError> {
        let at_root = Permission::CREATE | Permission::READ;
        let at_root = match self.strategy {
            Strategy::Herd => at_root | Permission::DELETE,
            Strategy::Queue | Strategy::Curator | Strategy::Kazoo => at_root,
        };
        let creation = |client: Client| async move {
            let acl = [Acl::new(at_root, AuthId::authed())];
            match client.create(ROOT, b"", &CreateMode::Persistent.with_acls(Acls::new(&acl))).await {
                // Made by a request that was not answered in time.
                Ok(_) | Err(Error::NodeExists) => Ok(()),
                Err(error) => Err(error),
            }
        };
        self.ask_until_answered(creation).await
    }

    /// Asks the server whose turn it is, by a client that has caught up with the others.
    async fn ask<T, A>(&self, question: impl FnOnce(Client) -> A + Send) -> Result<T, Error>
    where
        A: Future<Output = Result<T, Error>> + Send,
    {
        let turn = self.turn.load(Ordering::Relaxed) % self.clients.len();
        let (port, kept) = &self.clients[turn];
        let mut kept = kept.lock().await;
        let look = async {
            let client = match &*kept {
                Some(client) => client.clone(),
                None => kept.insert(connect(*port).await?).clone(),
            };
            // A server of several may be behind what others have told their clients, and a read does not wait for that; a write
            // of the own session is carried out in its turn, and what comes after it sees all that came before.
            if self.clients.len() > 1 {
                client.set_data(MARKER, b"", None).await?;
            }
            question(client).await
        };
        let found = Clock::boot().answer_timeout(self.patience, look).await.unwrap_or(Err(Error::Timeout));
        if found.is_err() {
            *kept = None;
            self.turn.store(turn + 1, Ordering::Relaxed);
        }
        found
    }

    /// Asks one server after the other, until one answers: a fault is not to fail because the machine is busy.
    async fn ask_until_answered<T, A>(&self, question: impl Fn(Client) -> A + Send + Sync) -> Result<T, LabError>
    where
        A: Future<Output = Result<T, Error>> + Send,
    {
        let limit = RetryLimit::with("an answer of ZooKeeper");
        loop {
            match self.ask(&question).await {
                Ok(answer) => return Ok(answer),
                Err(error) => limit.again(error.to_string()).await?,
            }
        }
    }

    /// Who holds now, by any server.
    async fn present_holder(&self, name: &LockName) -> Result<HolderNode, LabError> {
        let directory = self.strategy.directory(name);
        let holder = self.ask_until_answered(|client| first_in_line(client, directory.clone())).await?;
        holder.ok_or_else(|| LabError::run(format!("nobody holds {name} whom the fault could strike")))
    }

    /// What stands for contenders of these locks.
    async fn contenders(&self, names: &[LockName]) -> Result<Vec<String>, Error> {
        let strategy = self.strategy;
        let paths = names.iter().map(|name| strategy.directory(name)).collect();
        self.ask(|client| async move { contenders(&client, strategy, paths).await }).await
    }

    /// Whether the node of that grant is there.
    async fn is_there(&self, name: &LockName, token: u64) -> Result<bool, LabError> {
        let key = (name.clone(), token);
        let known = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let strategy = self.strategy;
        let find = |client| node_of_grant(client, strategy, strategy.directory(name), known.clone(), token);
        let Some(path) = self.ask_until_answered(find).await? else { return Ok(false) };
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, path);
        Ok(true)
    }
}

#[async_trait]
impl GroundTruth for ZooKeeperTruth {
    async fn holders(&self, name: &LockName) -> Vec<Sample> {
        let clock = Clock::boot();
        let asked = clock.now();
        let directory = self.strategy.directory(name);
        let Ok(first) = self.ask(|client| first_in_line(client, directory)).await else { return Vec::new() };
        let held = first.map(|HolderNode { payload, stat }| Held {
            token: Some(stat.czxid.cast_unsigned()),
            payload: Some(String::from_utf8_lossy(&payload).into_owned()),
            remaining_nanos: None,
        });
        vec![Sample { server: "ensemble".into(), asked, answered: clock.now(), held, closed_nanos: None }]
    }

    /// ZooKeeper tells nobody until when a session lives: only whether the node is still there.
    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError> {
        let is_there = self.is_there(name, token).await?;
        Ok(if is_there { Kept::Held } else { Kept::Gone })
    }

    async fn residue(&self, names: &[LockName], _has_died: bool) -> Left {
        left(self.contenders(names).await)
    }

    /// Sessions have nodes of their own. A connection that was closed has none.
    async fn sessions_left(&self) -> Left {
        let sessions = self.strategy.sessions();
        left(self.ask(|client| async move { children(&client, vec![sessions]).await }).await)
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        let (strategy, directory) = (self.strategy, self.strategy.directory(name));
        let listed = |client| {
            let directory = directory.clone();
            async move { contenders(&client, strategy, vec![directory]).await }
        };
        let mut contenders = self.ask_until_answered(listed).await?;
        // A writer holds alone; whoever comes after it waits.
        if contenders.first().is_some_and(|first| is_exclusive(first)) {
            contenders.truncate(1);
        }
        let deletions = |client: Client| {
            let contenders = contenders.clone();
            async move {
                for path in contenders {
                    ignore_no_node(client.delete(&path, None).await)?;
                }
                Ok(())
            }
        };
        self.ask_until_answered(deletions).await
    }

    async fn end_session(&self, name: &LockName) -> Result<(), LabError> {
        let session = self.present_holder(name).await?.stat.ephemeral_owner;
        let ports: Vec<u16> = self.clients.iter().map(|(port, _)| *port).collect();
        session::end(&ports, session).await
    }

    async fn serves(&self, number: usize, _name: &LockName) {
        // A server of an ensemble that knows of no leader opens no session.
        while session::open_and_close(self.clients[number].0).await.is_err() {
            Clock::boot().sleep(PAUSE).await;
        }
    }
}

async fn connect(port: u16) -> Result<Client, Error> {
    // As the user of programs that sign in, who alone may read what these create.
    let connector = Client::connector().with_session_timeout(SESSION).with_auth("digest", rights::USER.as_bytes());
    let client = connector.connect(&format!("127.0.0.1:{port}")).await?;
    match client.create(MARKER, b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await {
        Ok(_) | Err(Error::NodeExists) => Ok(client),
        Err(error) => Err(error),
    }
}

/// The node that holds the lock: the first in line.
async fn first_in_line(client: Client, directory: String) -> Result<Option<HolderNode>, Error> {
    for path in children(&client, vec![directory]).await? {
        if let Some((payload, stat)) = ignore_no_node(client.get_data(&path).await)? {
            return Ok(Some(HolderNode { payload, stat }));
        }
        // Gone since it was listed: the next one holds.
    }
    Ok(None)
}

/// The node of the grant with that token: the one that is `known`, or another one in its lock's directory.
async fn node_of_grant(
    client: Client,
    strategy: Strategy,
    directory: String,
    known: Option<String>,
    token: u64,
) -> Result<Option<String>, Error> {
    let of_grant = |path: &str, stat: &Stat| number(path).unwrap_or(stat.czxid.cast_unsigned()) == token;
    if let Some(path) = known
        && client.check_stat(&path).await?.is_some_and(|stat| of_grant(&path, &stat))
    {
        return Ok(Some(path));
    }
    loop {
        let mut has_changed = false;
        for path in contenders(&client, strategy, vec![directory.clone()]).await? {
            match client.check_stat(&path).await? {
                Some(stat) if of_grant(&path, &stat) => return Ok(Some(path)),
                Some(_) => {}
                // A writer that becomes a reader goes on by another node, which may not have been in the list.
                None => has_changed = true,
            }
        }
        if !has_changed {
            return Ok(None);
        }
    }
}

/// What stands for contenders of the locks at these paths.
async fn contenders(client: &Client, strategy: Strategy, paths: Vec<String>) -> Result<Vec<String>, Error> {
    match strategy {
        Strategy::Queue | Strategy::Curator | Strategy::Kazoo => children(client, paths).await,
        Strategy::Herd => existing(client, paths).await,
    }
}

/// The children of these nodes, in the order of their numbers.
async fn children(client: &Client, paths: Vec<String>) -> Result<Vec<String>, Error> {
    // Requests go out when they are made: all are on their way before the first is awaited.
    let looks: Vec<_> = paths.into_iter().map(|path| (client.list_children(&path), path)).collect();
    let mut all = Vec::new();
    for (children, path) in looks {
        let mut children = ignore_no_node(children.await)?.unwrap_or_default();
        // Those of one run never wrap.
        children.sort_by_key(|child| child.get(child.len().saturating_sub(DIGITS)..)?.parse::<u32>().ok());
        all.extend(children.into_iter().map(|child| format!("{path}/{child}")));
    }
    Ok(all)
}

/// Those of these nodes that are there.
async fn existing(client: &Client, paths: Vec<String>) -> Result<Vec<String>, Error> {
    let looks: Vec<_> = paths.into_iter().map(|path| (client.check_stat(&path), path)).collect();
    let mut all = Vec::new();
    for (stat, path) in looks {
        all.extend(stat.await?.map(|_| path));
    }
    Ok(all)
}

fn left(found: Result<Vec<String>, Error>) -> Left {
    match found {
        Ok(paths) => {
            Left { things: paths.into_iter().map(|path| format!("the node {path}")).collect(), ..Left::default() }
        }
        Err(_) => Left { silent: vec!["the ensemble".into()], ..Left::default() },
    }
}

/// Whether that node is of a contender that holds alone.
fn is_exclusive(path: &str) -> bool {
    kind(path).is_none_or(|kind| !kind.starts_with(['r', 'p']))
}

/// What the contender of that node asks for; `None` for a holder's node with the strategy `herd`.
fn kind(path: &str) -> Option<Cow<'_, str>> {
    let name = path.rsplit('/').next()?;
    // What other libraries call those that read; between the id, of that length, and that, a reader has the number that it had as a
    // writer.
    for (marker, before, id) in [("__READ__", "_c_", 36), ("__rlock__", "", 32)] {
        if let Some((stem, _)) = name.rsplit_once(marker) {
            let number = stem.strip_prefix(before).and_then(|stem| stem.get(id..)).unwrap_or_default();
            return Some(format!("r{}", number.trim_matches('-')).into());
        }
    }
    name.split('-').nth(2).filter(|_| !name.contains("lock") && !name.contains("__WRIT__")).map(Cow::from)
}

/// The fencing token's number in the name of a node that took a writer's place: its own creation says nothing.
fn number(path: &str) -> Option<u64> {
    kind(path)?.strip_prefix('r')?.parse().ok()
}

fn ignore_no_node<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}
