//! What the laboratory does can be done on any thread.

use lock_lab::servers::{Cluster, Redis, RedisNodes, Sentinel, ZooKeeper};

fn is_send<F: Future + Send>(_: F) {}

#[test]
fn servers_can_be_started_from_a_task() {
    is_send(Redis::start());
    is_send(RedisNodes::start(3));
    is_send(Sentinel::start());
    is_send(Cluster::start());
    is_send(ZooKeeper::start(3));
}
