//! Locks that are measured side by side: ours, and what others take for the same.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all, ready};
use lock::Locks;
use lock_core::Clock;
use lock_lab::servers::Redis;
use redis::{Script, aio::MultiplexedConnection};
use rslock::LockManager;

const TTL: Duration = Duration::from_secs(30);
const TTL_MS: u64 = 30_000;

/// Which lock takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The lock of this workspace.
    Ours,
    /// The crate `rslock`, with its own settings.
    Rslock,
    /// A lock on the client crate that ours has, and nothing else.
    Minimal,
    /// The least that a server has to do for a lock with a fencing token.
    Floor,
}

impl Kind {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Rslock => "rslock",
            Self::Minimal => "minimal",
            Self::Floor => "floor",
        }
    }

    /// A client of its own, of these servers, which ours finds by `url`.
    pub(crate) async fn connect(self, url: &str, servers: &[Redis]) -> Arc<dyn Contestant> {
        match self {
            Self::Ours => Arc::new(Ours(lock::connect(&patient(url)).await.expect("the servers were just started"))),
            Self::Rslock => Arc::new(Rslock::new(servers)),
            Self::Minimal => Arc::new(Minimal::connect(servers).await),
            Self::Floor => Arc::new(Floor::connect(servers).await),
        }
    }
}

/// A lock that takes part. It waits for a lock name that another contender has.
pub(crate) trait Contestant: Send + Sync {
    /// Acquires `name`, awaits `work`, which begins with the grant, and releases `name`.
    fn hold<'a>(&'a self, name: &'a str, work: BoxFuture<'a, ()>) -> BoxFuture<'a, ()>;

    /// Acquires and releases `name`.
    fn pair<'a>(&'a self, name: &'a str) -> BoxFuture<'a, ()> {
        self.hold(name, Box::pin(ready(())))
    }

    /// Whether it sends `SET` by itself; in a script its time is part of the script's.
    fn sends_set(&self) -> bool {
        false
    }
}

/// The URL of a client for which no answer is late. A round without a measurement is played also where the machine stands still.
pub(crate) fn patient(url: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    let limit = if url.starts_with("redlock") { "node_timeout" } else { "response_timeout" };
    format!("{url}{separator}{limit}=20s")
}

/// A connection of this project.
struct Ours(Locks);

impl Contestant for Ours {
    fn hold<'a>(&'a self, name: &'a str, work: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let guard = self.0.mutex(name).lock().await.expect("the server is there");
            work.await;
            guard.release().await.expect("it is held");
        })
    }
}

/// Who finds a lock taken tries again after 200 ms or less.
struct Rslock(LockManager);

impl Rslock {
    fn new(servers: &[Redis]) -> Self {
        Self(LockManager::new(servers.iter().map(|server| format!("{}/", server.url())).collect()))
    }
}

impl Contestant for Rslock {
    fn hold<'a>(&'a self, name: &'a str, work: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // It gives up after three tries.
            let held = loop {
                match self.0.lock(name.as_bytes(), TTL).await {
                    Ok(held) => break held,
                    Err(error) => assert!(matches!(error, rslock::LockError::Unavailable), "{error}"),
                }
            };
            work.await;
            self.0.unlock(&held).await;
        })
    }

    fn sends_set(&self) -> bool {
        true
    }
}

async fn connection(server: &Redis) -> MultiplexedConnection {
    server.connection().await.expect("the server was just started")
}

/// What the minimal lock and the floor release by.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// How long the minimal lock pauses where it finds the lock taken.
const POLL: Duration = Duration::from_millis(1);

/// `SET NX PX`, and a script that compares and deletes. Who finds the lock taken tries again after a millisecond.
struct Minimal {
    connections: Vec<MultiplexedConnection>,
    value: String,
    release: Script,
}

impl Minimal {
    async fn connect(servers: &[Redis]) -> Self {
        let connections = join_all(servers.iter().map(connection)).await;
        Self { connections, value: format!("{:032x}", fastrand::u128(..)), release: Script::new(DELETE) }
    }

    /// Whether all servers have the lock for it now.
    async fn acquire(&self, name: &str) -> bool {
        let acquired = self.connections.iter().map(|connection| async move {
            let mut command = redis::cmd("SET");
            command.arg(name).arg(&self.value).arg("NX").arg("PX").arg(TTL_MS);
            command.query_async::<Option<String>>(&mut connection.clone()).await.expect("the server is there")
        });
        join_all(acquired).await.iter().all(Option::is_some)
    }
}

impl Contestant for Minimal {
    fn hold<'a>(&'a self, name: &'a str, work: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            while !self.acquire(name).await {
                Clock::boot().sleep(POLL).await;
            }
            work.await;
            let released = self.connections.iter().map(|connection| async {
                let mut release = self.release.key(name);
                release
                    .arg(&self.value)
                    .invoke_async::<u32>(&mut connection.clone())
                    .await
                    .expect("the server is there")
            });
            assert!(join_all(released).await.iter().all(|&deleted| deleted == 1), "it is held");
        })
    }

    fn sends_set(&self) -> bool {
        true
    }
}

/// The two scripts without which no lock with a fencing token gets by. It waits for nobody.
struct Floor {
    connection: MultiplexedConnection,
    acquire: Script,
    release: Script,
}

/// The value of the floor, as long as ours.
const VALUE: &str = "0123456789abcdef0123456789abcdef";

const TAKE_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                              return redis.call('INCR', KEYS[2]) else return 0 end";

impl Floor {
    async fn connect(servers: &[Redis]) -> Self {
        let [server] = servers else { panic!("the floor is that of one server") };
        Self {
            connection: connection(server).await,
            acquire: Script::new(TAKE_AND_COUNT),
            release: Script::new(DELETE),
        }
    }
}

impl Contestant for Floor {
    fn hold<'a>(&'a self, name: &'a str, work: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // As long as ours.
            let (key, counter) = (format!("{{floor:{name}}}"), format!("{{floor:{name}}}:token"));
            let mut connection = self.connection.clone();
            let mut acquire = self.acquire.key(&key);
            let acquire = acquire.key(counter).arg(VALUE).arg(TTL_MS);
            let number: u64 = acquire.invoke_async(&mut connection).await.expect("the server is there");
            assert!(number > 0, "nobody else takes it");
            work.await;
            let mut release = self.release.key(&key);
            let deleted: u32 = release.arg(VALUE).invoke_async(&mut connection).await.expect("the server is there");
            assert_eq!(deleted, 1, "it is held");
        })
    }
}
