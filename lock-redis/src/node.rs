//! One Redis server: scripts pipelined down one connection that rebuilds itself, and the channels on which releases are
//! published. What `lock-redis` does with one of these, a quorum does with several.
//!
//! ```no_run
//! # use lock_core::{Clock, Context};
//! # use lock_redis::node::{Node, NodeConfig, Script, ScriptCall};
//! static ECHO: Script = Script::new("return ARGV[1]");
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::new(NodeConfig::new("127.0.0.1", 6379), Context::current());
//! let connection = node.connection().await?;
//! let sent_at = Clock::boot().now(); // Validity counts from here: after connecting, before sending.
//! let answers = connection.run(&[ScriptCall::new(&ECHO).arg("a"), ScriptCall::new(&ECHO).arg("b")]).await;
//! # let _ = (sent_at, answers);
//! # Ok(())
//! # }
//! ```

mod answer;
mod connection;
mod election;
mod endpoint;
mod error;
mod eviction;
mod pool;
mod redirect;
mod replicas;
mod route;
mod script;
pub(crate) mod sentinel;
mod subscription;
mod wait;

use std::{
    convert::Infallible,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{BootInstant, Clock, Context, Outage, Password};
use redis::RedisConnectionInfo;
pub use redis::Value;

pub use self::{
    answer::text,
    connection::Connection,
    error::{Failure, FailureKind, NodeError},
    eviction::Eviction,
    replicas::Replicas,
    route::AddressMap,
    script::{Script, ScriptCall},
    subscription::Subscription,
};
use self::{endpoint::Endpoint, pool::ConnectionPools, route::Route, subscription::Subscriptions};
pub(crate) use self::{
    pool::{PoolPurpose, PooledConnection},
    redirect::Redirect,
    route::{PrimaryDiscovery, accepted, ask_once},
};
pub use crate::wire::Address;
use crate::wire::{Network, Tcp};

/// How to reach one server.
#[derive(Clone)]
#[non_exhaustive]
pub struct NodeConfig {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user to sign in as; `None` for the server's default user.
    pub username: Option<String>,
    /// The password to sign in with.
    pub password: Option<Password>,
    /// The number of the database.
    pub db: u32,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a request may take, and once more as long when that passed while the program stood still.
    pub response_timeout: Duration,
    /// By how many replicas grants and renewals have to be acknowledged; `None` where the primary's word is enough.
    pub replicas: Option<Replicas>,
    /// On which network it is.
    pub network: Arc<dyn Network>,
}

impl NodeConfig {
    /// The server at `host` and `port`: database 0, nobody signed in, a second to connect, half a second to answer.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            username: None,
            password: None,
            db: 0,
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_millis(500),
            replicas: None,
            network: Arc::new(Tcp),
        }
    }

    /// The URL without secrets, for messages.
    #[must_use]
    pub fn url(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let scheme = if self.network.is_encrypted() { "rediss" } else { "redis" };
        format!("{scheme}://{host}:{}/{}", self.port, self.db)
    }

    /// The same for the server at `address`.
    pub(crate) fn at(&self, address: &Address) -> Self {
        Self { host: address.host.clone(), port: address.port, ..self.clone() }
    }

    /// As whom to sign in, and to which database. A password that is in a file is read.
    pub(crate) fn user(&self) -> io::Result<RedisConnectionInfo> {
        let mut info = RedisConnectionInfo::default().set_db(self.db.into()).set_skip_set_lib_name();
        if let Some(username) = &self.username {
            info = info.set_username(username);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password.read().map_err(io::Error::other)?);
        }
        Ok(info)
    }
}

impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig")
            .field("url", &self.url())
            .field("username", &self.username)
            .field("password", &self.password)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

/// One server. Clones share its connection, which is made when it is first needed and again whenever it is of no further
/// use: closed, unanswered, or refusing writes (the server may be a replica by now).
#[derive(Clone)]
pub struct Node {
    shared: Arc<NodeState>,
}

/// The state that the clones of a [`Node`] share.
struct NodeState {
    endpoint: Arc<Endpoint>,
    context: Context,
    slot: Mutex<ConnectionSlot>,
    /// Held while connecting, so that many callers make one connection.
    connecting: tokio::sync::Mutex<()>,
    channels: Subscriptions,
    pools: ConnectionPools,
}

/// The present connection of a [`Node`], if there is one, and how the latest attempt to connect ended.
#[derive(Default)]
struct ConnectionSlot {
    connection: Option<Connection>,
    /// How often connecting ended, and how it failed the last time: those who waited for that attempt share its failure.
    attempts: u64,
    failure: Option<NodeError>,
    closed: bool,
}

impl Node {
    /// The server of `config`. Connects when it is first needed; its tasks run in `context`.
    #[must_use]
    pub fn new(config: NodeConfig, context: Context) -> Self {
        Self::build(config, context, Route::Fixed)
    }

    /// The primary of several servers, whichever that is: `guide` knows whom to ask. What `config` says beside the server
    /// holds for all of them.
    pub(crate) fn following(config: NodeConfig, context: Context, guide: Arc<dyn PrimaryDiscovery>) -> Self {
        Self::build(config, context, Route::Followed(guide))
    }

    fn build(config: NodeConfig, context: Context, route: Route) -> Self {
        let endpoint = Arc::new(Endpoint::new(config, context.clone(), route));
        let channels = Subscriptions::new(Arc::clone(&endpoint));
        let shared = NodeState {
            endpoint,
            context,
            slot: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            channels,
            pools: ConnectionPools::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How it is reached.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.shared.endpoint.config
    }

    /// The clock of its time limits.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.context.clock()
    }

    /// The present connection, or a new one. Answers at once while there is one; else within the connect limit.
    ///
    /// # Errors
    /// [`NodeError::NotApplied`] when there is none to be had: nothing was sent.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn connection(&self) -> Result<Connection, NodeError> {
        let seen = match self.present() {
            Ok(connection) => return connection,
            Err(attempts) => attempts,
        };
        // A task of its own: whoever has the turn may have other things to wait for first, or be given up, and the others wait
        // for its end.
        let node = self.clone();
        // Safeguard: one that began to connect keeps nobody waiting (Redis, Redlock)
        let connecting = self.shared.context.spawn(async move { node.connect_in_turn(seen).await });
        connecting.await.unwrap_or_else(|| Err(NodeError::closed()))
    }

    /// Connects, unless somebody else did meanwhile. `seen` is how often connecting had ended before.
    async fn connect_in_turn(&self, seen: u64) -> Result<Connection, NodeError> {
        let _turn = self.shared.connecting.lock().await;
        match self.present() {
            Ok(connection) => return connection,
            Err(attempts) if attempts != seen => {
                if let Some(failure) = self.slot(|slot| slot.failure.clone()) {
                    return Err(failure);
                }
            }
            Err(_) => {}
        }
        let connected = self.connect().await;
        if let Some(predecessor) = self.slot(|slot| slot.connection.take()) {
            // Before anything is sent on its successor, such as an undo: what was sent on it may not come after that.
            // Safeguard: a connection is dead before its successor is used (Redis, Redlock)
            predecessor.end();
        }
        self.slot(|slot| {
            slot.attempts += 1;
            slot.connection = connected.as_ref().ok().filter(|_| !slot.closed).cloned();
            slot.failure = connected.as_ref().err().cloned();
        });
        match &connected {
            Ok(_) => self.shared.endpoint.answered(),
            Err(error) => {
                tracing::debug!(node = %self.config().url(), %error, "no connection");
                self.shared.endpoint.failed();
            }
        }
        connected
    }

    /// Runs `calls` in one burst on the present connection or a new one; see [`Connection::run`].
    pub async fn run(&self, calls: &[ScriptCall]) -> Vec<Result<Value, NodeError>> {
        match self.connection().await {
            Ok(connection) => connection.run(calls).await,
            Err(error) => vec![Err(error); calls.len()],
        }
    }

    /// Runs one call; see [`Node::run`].
    ///
    /// # Errors
    /// [`NodeError`]
    pub async fn call(&self, call: ScriptCall) -> Result<Value, NodeError> {
        self.connection().await?.call(call).await
    }

    /// Listens to a channel, on the one connection that all channels of this node share. It is kept for a moment after
    /// the last listener left, so that a busy lock does not subscribe over and over.
    #[must_use]
    pub fn subscribe(&self, channel: &str) -> Subscription {
        self.shared.channels.subscribe(channel, None)
    }

    /// Listens to a channel, as [`Node::subscribe`] does, on which every message counts: each is given to `listener`, in
    /// their order. A channel that somebody listens to keeps its first listener.
    pub(crate) fn subscribe_each(&self, channel: &str, listener: subscription::MessageHandler) -> Subscription {
        self.shared.channels.subscribe(channel, Some(listener))
    }

    /// Listens to a channel if there is a confirmed subscription to it already, without asking the server for one.
    #[must_use]
    pub fn listening(&self, channel: &str) -> Option<Subscription> {
        self.shared.channels.listening(channel)
    }

    /// Since when nothing has succeeded on this server, on whichever connection; `None` while it works.
    #[must_use]
    pub fn failing_since(&self) -> Option<BootInstant> {
        self.shared.endpoint.failing_since()
    }

    /// Resolves when nothing has succeeded on this server for as long as connecting may take.
    pub(crate) async fn out(&self) {
        self.shared.endpoint.out().await;
    }

    /// Reports to `outage` when nothing succeeds on this server, and when something does again.
    pub(crate) async fn report(&self, outage: &Outage) -> Infallible {
        self.shared.endpoint.report(outage).await
    }

    /// Whether the server, when somebody last tried to connect, refused that for a reason that does not go by itself: its user,
    /// its password, its certificate, or its settings.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.slot(|slot| slot.failure.as_ref().is_some_and(|failure| !failure.is_temporary()))
    }

    /// Whether it is this very node.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Has it find its primary anew, if it is followed.
    pub(crate) fn look_again(&self) {
        if let Some(primary) = self.shared.endpoint.primary() {
            self.shared.endpoint.lost(&primary);
        }
    }

    /// Notes what somebody says of which server the primary is, so that a node that follows it looks at once.
    pub(crate) fn heard(&self, primary: &Address) {
        self.shared.endpoint.heard(primary);
    }

    /// Gives up the connection; those who still have a clone of it may use it up. Nothing connects any more.
    pub fn close(&self) {
        self.slot(|slot| {
            slot.closed = true;
            slot.connection = None;
        });
        self.shared.channels.close();
        self.shared.pools.close();
    }

    /// The present connection, or the failure of a closed node, or how often connecting ended so far.
    fn present(&self) -> Result<Result<Connection, NodeError>, u64> {
        self.slot(|slot| match &slot.connection {
            _ if slot.closed => Ok(Err(NodeError::closed())),
            Some(connection) if !connection.is_broken() => Ok(Ok(connection.clone())),
            _ => Err(slot.attempts),
        })
    }

    async fn connect(&self) -> Result<Connection, NodeError> {
        let endpoint = Arc::clone(&self.shared.endpoint);
        // A task of its own, so that the connection lives on the node's runtime, whoever asked for it.
        let opening = self.shared.context.spawn(Connection::open(endpoint));
        opening.await.unwrap_or_else(|| Err(NodeError::closed()))
    }

    fn slot<T>(&self, work: impl FnOnce(&mut ConnectionSlot) -> T) -> T {
        work(&mut self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("config", self.config()).finish_non_exhaustive()
    }
}
