//! The arrangements of servers that the suite runs on. A new backend is one line here.

use std::{future::Future, pin::Pin, sync::Arc};

use lock_core::conformance::{Fixture, MemoryFixture};
use tokio::sync::OnceCell;

use crate::{local::LocalFixture, redis_nodes::RedisNodesFixture, zookeeper::ZooKeeperFixture};

type Starting = Pin<Box<dyn Future<Output = Result<Arc<dyn Fixture>, String>> + Send>>;

/// A backend on one arrangement of servers.
pub(crate) struct Arrangement {
    /// What its tests are called by.
    pub(crate) name: &'static str,
    /// Which backend of the facade it is.
    pub(crate) scheme: &'static str,
    start: fn() -> Starting,
}

/// All of them.
pub(crate) const FIXTURES: &[Arrangement] = &[
    Arrangement { name: "memory", scheme: "memory", start: || fixture(async { Ok(MemoryFixture::default()) }) },
    Arrangement { name: "local", scheme: "local", start: || fixture(async { LocalFixture::new() }) },
    Arrangement { name: "redis", scheme: "redis", start: || fixture(RedisNodesFixture::single()) },
    Arrangement { name: "redis_fifo", scheme: "redis", start: || fixture(RedisNodesFixture::fifo()) },
    Arrangement { name: "redis_sentinel", scheme: "redis+sentinel", start: || fixture(RedisNodesFixture::sentinel()) },
    Arrangement { name: "redis_cluster", scheme: "redis+cluster", start: || fixture(RedisNodesFixture::cluster()) },
    Arrangement { name: "redlock_3", scheme: "redlock", start: || fixture(RedisNodesFixture::redlock(3)) },
    Arrangement { name: "redlock_5", scheme: "redlock", start: || fixture(RedisNodesFixture::redlock(5)) },
    Arrangement { name: "zookeeper_1", scheme: "zk", start: || fixture(ZooKeeperFixture::queue(1)) },
    Arrangement { name: "zookeeper_3", scheme: "zk", start: || fixture(ZooKeeperFixture::queue(3)) },
    Arrangement { name: "zookeeper_herd", scheme: "zk", start: || fixture(ZooKeeperFixture::herd(1)) },
];

fn fixture<F: Fixture>(start: impl Future<Output = Result<F, String>> + Send + 'static) -> Starting {
    Box::pin(async move { Ok(Arc::new(start.await?) as Arc<dyn Fixture>) })
}

/// A fixture that is started when it is first asked for.
#[derive(Default)]
pub(crate) struct Started(OnceCell<Result<Arc<dyn Fixture>, String>>);

impl Started {
    /// The running fixture, or why it does not run: each of its tests fails with that.
    pub(crate) async fn get(&self, arrangement: &Arrangement) -> Result<Arc<dyn Fixture>, String> {
        self.0.get_or_init(|| (arrangement.start)()).await.clone()
    }
}
