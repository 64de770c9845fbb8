//! An uncontended acquisition is one round trip: counted by what passes a proxy that delays each direction by 5 ms, not
//! by the time it takes.

#[path = "round_trips/frames.rs"]
mod frames;

use std::time::Duration;

use lock::{Clock, LockName, Locks};
use lock_lab::{
    proxy::Proxy,
    servers::{Redis, RedisNodes, ZooKeeper},
};

use self::frames::{CREATE, FrameProxy, LIST, Passed};

const EACH_WAY: Duration = Duration::from_millis(5);

/// How many acquisitions are counted, after the first, which brings the script to the server or makes the directory.
const ACQUISITIONS: u64 = 10;

/// Far longer than a test, so that no renewal is counted.
const TTL: &str = "60s";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_on_redis() {
    let server = Redis::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let locks = Locks::connect(&format!("redis://127.0.0.1:{}/?ttl={TTL}", proxy.port())).await.unwrap();
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    proxy.delay(EACH_WAY);
    for acquisition in 0..ACQUISITIONS {
        one_round_trip_each(&locks, &format!("fresh-{acquisition}"), std::slice::from_ref(&proxy)).await;
    }
    locks.close(Duration::from_secs(10)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_to_each_node_of_redlock() {
    let nodes = RedisNodes::start(5).await.unwrap();
    let mut proxies = Vec::new();
    for port in nodes.ports() {
        proxies.push(Proxy::start(port).await.unwrap());
    }
    let hosts: Vec<_> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    let url = format!("redlock://{}/?ttl={TTL}", hosts.join(","));
    let locks = Locks::connect(&url).await.unwrap();
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    for (node, proxy) in nodes.nodes().iter().zip(&proxies) {
        warmed(node).await;
        proxy.delay(EACH_WAY);
    }
    for acquisition in 0..ACQUISITIONS {
        one_round_trip_each(&locks, &format!("fresh-{acquisition}"), &proxies).await;
    }
    locks.close(Duration::from_secs(10)).await.unwrap();
}

/// Waits until the release of the first lock has reached a node: the quorum did not wait for its slowest nodes, whose late
/// requests would be counted with what comes next.
async fn warmed(node: &Redis) {
    let mut connection = node.connection().await.unwrap();
    let released = Clock::boot().timeout(Duration::from_secs(30), async {
        loop {
            let fields: Vec<String> =
                redis::cmd("HKEYS").arg("{lock:warm}:token").query_async(&mut connection).await.unwrap();
            // Of a lock that was released the counter is left.
            if fields == ["counter"] {
                return;
            }
            Clock::boot().sleep(EACH_WAY).await;
        }
    });
    released.await.expect("the first lock was released everywhere");
}

/// Locks and releases `name`, and sees that each is one burst of requests through every proxy. It cannot have been done
/// before an answer was here, so it is one round trip.
async fn one_round_trip_each(locks: &Locks, name: &str, proxies: &[Proxy]) {
    let before: Vec<_> = proxies.iter().map(bursts).collect();
    let guard = locks.mutex(name).lock().await.unwrap();
    passed_once(proxies, &before, "the acquisition").await;
    let before: Vec<_> = proxies.iter().map(bursts).collect();
    guard.release().await.unwrap();
    passed_once(proxies, &before, "the release").await;
}

fn bursts(proxy: &Proxy) -> u64 {
    proxy.requests().bursts
}

/// Waits until every proxy has forwarded a request (a quorum does not wait for its slowest node), and sees that it was one.
/// A second one that came later still would be counted with the next.
async fn passed_once(proxies: &[Proxy], before: &[u64], what: &str) {
    for (proxy, before) in proxies.iter().zip(before) {
        let sent = Clock::boot().timeout(Duration::from_secs(30), async {
            while bursts(proxy) == *before {
                Clock::boot().sleep(EACH_WAY).await;
            }
        });
        sent.await.unwrap_or_else(|| panic!("{what} was not sent"));
    }
    for (proxy, before) in proxies.iter().zip(before) {
        assert_eq!(bursts(proxy) - before, 1, "bursts of requests of {what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_on_zookeeper_create_and_list_in_flight_together() {
    let servers = ZooKeeper::start(1).await.unwrap();
    let proxy = FrameProxy::start(servers.ports()[0], EACH_WAY).await.unwrap();
    let tick = ZooKeeper::TICK.as_millis();
    let url = format!("zk://127.0.0.1:{}/?session_timeout=10s&tick_time={tick}ms", proxy.port);
    let locks = Locks::connect(&url).await.unwrap();
    let name = LockName::new("round trips").unwrap();
    let directory = format!("/locks/{}", name.to_component());
    locks.mutex(name.as_str()).lock().await.unwrap().release().await.unwrap();
    for _ in 0..ACQUISITIONS {
        proxy.take();
        let guard = locks.mutex(name.as_str()).lock().await.unwrap();
        one_round_trip(&proxy.take(), &directory);
        guard.release().await.unwrap();
    }
    locks.close(Duration::from_secs(10)).await.unwrap();
}

/// That all requests of the acquisition were sent before the reply to any of them was here, a create and a list among
/// them. Heartbeats of the session pass in between; they concern other nodes.
fn one_round_trip(passed: &[Passed], directory: &str) {
    let mut requests = Vec::new();
    let (mut first_reply, mut last_request) = (None, 0);
    for (place, event) in passed.iter().enumerate() {
        match event {
            Passed::Request { xid, operation, path } if path.starts_with(directory) => {
                requests.push((*xid, *operation));
                last_request = place;
            }
            Passed::Reply { xid } if first_reply.is_none() && requests.iter().any(|request| request.0 == *xid) => {
                first_reply = Some(place);
            }
            Passed::Request { .. } | Passed::Reply { .. } => {}
        }
    }
    let first_reply = first_reply.expect("the acquisition got a reply");
    let sent = |operations: [i32; 2]| requests.iter().any(|(_, operation)| operations.contains(operation));
    assert!(sent(CREATE) && sent(LIST), "not a create and a list: {passed:?}");
    assert!(last_request < first_reply, "a request of the acquisition waited for a reply: {passed:?}");
}
