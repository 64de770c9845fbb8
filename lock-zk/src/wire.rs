//! The wire: what the backend asks of an ensemble, as two traits, and the client library below them.
//!
//! A request is sent when its method is called, in the order of the calls, and it is sent also when the returned future is
//! dropped. So clocks are read before the call, and whoever gives up a create has to look for its node later. While the
//! client is disconnected requests wait in it, and are sent on its next connection.
//!
//! The simulator puts an ensemble of its own below these traits, with [`Config::with_ensemble`](crate::Config::with_ensemble).

mod error;
mod native;
mod security;
mod sockets;

use std::{fmt, sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream::BoxStream};

pub use self::error::{Cause, Outcome, RequestError};
pub(crate) use self::{native::ZooKeeperServers, security::Security};

/// The answer to a request that was sent already.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, RequestError>>;

/// A one-shot watch that is set, as the future of its event. The watch is removed when this is dropped.
pub type Watch = BoxFuture<'static, WatchEvent>;

/// Host and port of a server.
pub type Server = (String, u16);

/// The servers, as the client library takes them.
pub(crate) fn connect_string(servers: &[Server]) -> String {
    let server = |(host, port): &Server| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    servers.iter().map(server).collect::<Vec<_>>().join(",")
}

/// Servers that sessions are opened with.
pub trait Ensemble: fmt::Debug + Send + Sync {
    /// Opens a session with the first of `servers` that answers, in one round over them. The servers may make another
    /// time-out of the one that is asked for: see [`Client::session_timeout`].
    fn connect<'a>(&'a self, servers: &'a [Server], session_timeout: Duration) -> Answer<'a, Arc<dyn Client>>;

    /// To which of `servers` this process is connected. Whatever is set on connections is set on new ones now.
    fn connections<'a>(&'a self, servers: &'a [Server]) -> BoxFuture<'a, Connections>;
}

/// Servers that a session may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// These servers.
    pub servers: Vec<Server>,
    /// Whether there is a connection to each of them. Otherwise the process cannot look at its own connections, and these are
    /// all servers.
    pub is_certain: bool,
}

/// A session with an ensemble. The servers are asked to end it when it is dropped.
pub trait Client: fmt::Debug + Send + Sync {
    /// Which session it is.
    fn session_id(&self) -> i64;

    /// The time-out that the servers made of the one that was asked for, when the session was opened.
    fn session_timeout(&self) -> Duration;

    /// How the session is now.
    fn state(&self) -> SessionState;

    /// How the session is now, and how it is after each change. Changes that follow each other closely may be told as one.
    fn states(&self) -> BoxStream<'static, SessionState>;

    /// Creates a node.
    fn create<'a>(&'a self, path: &'a str, data: &[u8], mode: CreateMode) -> Answer<'a, Created>;

    /// Deletes a node.
    fn delete<'a>(&'a self, path: &'a str) -> Answer<'a, ()>;

    /// Reads a node.
    fn get_data<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<u8>, Stat)>;

    /// Writes a node's data.
    fn set_data<'a>(&'a self, path: &'a str, data: &[u8]) -> Answer<'a, Stat>;

    /// Lists a node's children, in any order.
    fn list_children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>>;

    /// Lets the server catch up with its leader.
    fn sync<'a>(&'a self, path: &'a str) -> Answer<'a, ()>;

    /// Watches the data of a node that is there.
    fn watch_data<'a>(&'a self, path: &'a str) -> Answer<'a, (Stat, Watch)>;

    /// Watches for a node that comes, goes or changes. With it, whether the node is there.
    fn watch_existence<'a>(&'a self, path: &'a str) -> Answer<'a, (Option<Stat>, Watch)>;

    /// Lists a node's children, and watches for the first change of what is listed.
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Watch)>;

    /// Creates the ephemeral node `created` and deletes the node `deleted`, in one transaction.
    fn create_and_delete<'a>(&'a self, created: &str, data: &[u8], deleted: &str) -> Answer<'a, ()>;

    /// Writes a node's data and deletes the node, in one transaction.
    fn set_and_delete<'a>(&'a self, path: &str, data: &[u8]) -> Answer<'a, ()>;
}

/// How a node is created. Who may read and write it, the ensemble was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateMode {
    /// The node stays until it is deleted.
    Persistent,
    /// The servers remove the node some time after its last child has gone.
    Container,
    /// The node ends with its session.
    Ephemeral,
    /// The node ends with its session, and the server appends a number to its name.
    EphemeralSequential,
}

/// A node that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// What the servers know of the node.
    pub stat: Stat,
    /// The number that the server appended to its name, as it is written there; empty where it appended none.
    pub sequence: String,
}

/// What the servers know of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The transaction that created the node.
    pub czxid: i64,
    /// How often its data were written.
    pub version: i32,
    /// The session that the node ends with; 0 for a node that ends with none.
    pub ephemeral_owner: i64,
    /// When the node was created, by the servers' wall clock, in milliseconds since 1970.
    pub ctime: i64,
    /// How many children it has.
    pub num_children: i32,
}

impl Stat {
    /// The number of the fencing token of whoever made the node: the transaction that created it.
    pub(crate) const fn token(&self) -> u64 {
        self.czxid.unsigned_abs()
    }
}

/// What a watch tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEvent {
    /// The node was created.
    Created,
    /// The node was deleted.
    Deleted,
    /// The node's data were written.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
    /// The session has ended, and the watch with it.
    SessionEnded,
}

/// How a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Connected to a server that takes part in the ensemble.
    Connected,
    /// Not connected.
    Disconnected,
    /// Ended for good.
    Ended,
}
