//! An uncontended acquisition is one round trip: told by what passes a proxy, not by the time it takes. The proxy before
//! Redis delays each direction by 5 ms and counts; the one before ZooKeeper holds back replies.

mod frames;

use std::time::Duration;

use lock::{Clock, LockName, Locks};
use lock_lab::{
    proxy::{Proxy, Traffic},
    servers::{Cluster, Redis, RedisNodes, RedisOptions, Sentinel, ZooKeeper},
};

use self::frames::{CREATE, FrameProxy, LIST, Request};

const EACH_WAY: Duration = Duration::from_millis(5);

/// How many acquisitions are counted, after the first, which brings the script to the server or makes the directory.
const ACQUISITIONS: u64 = 10;

/// Longer than anything here takes, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);

/// Far longer than a test, so that no renewal is counted.
const TTL: &str = "60s";

/// How late an answer may be, so that none is asked for again where the machine stands still.
const LATE: &str = "20s";

struct Passing {
    requests: Traffic,
    replies: Traffic,
}

impl Passing {
    fn through(proxy: &Proxy) -> Self {
        Self { requests: proxy.requests(), replies: proxy.replies() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_on_redis() {
    let server = Redis::start().await.unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let locks =
        lock::connect(&format!("redis://127.0.0.1:{}/?ttl={TTL}&response_timeout={LATE}", proxy.port())).await.unwrap();
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    proxy.delay(EACH_WAY);
    for acquisition in 0..ACQUISITIONS {
        one_burst_each_way(&locks, &format!("fresh-{acquisition}"), std::slice::from_ref(&proxy)).await;
    }
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_to_the_primary_that_sentinels_name() {
    let servers = Sentinel::start().await.unwrap();
    let (proxies, detours) = detours(servers.nodes()).await;
    let locks = lock::connect(&format!("{}?ttl={TTL}&response_timeout={LATE}&address_map={detours}", servers.url()))
        .await
        .unwrap();
    let before = commands(servers.nodes()).await;
    for acquisition in 0..ACQUISITIONS {
        one_burst_to(&locks, &format!("fresh-{acquisition}"), &proxies, 0).await;
    }
    assert_eq!(
        commands(servers.nodes()).await - before,
        2 * ACQUISITIONS,
        "an acquisition and a release are a command each"
    );
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_to_the_primary_of_its_slot_in_a_cluster() {
    let servers = Cluster::start().await.unwrap();
    let (proxies, detours) = detours(servers.nodes()).await;
    let locks = lock::connect(&format!("{}/?ttl={TTL}&response_timeout={LATE}&address_map={detours}", servers.url()))
        .await
        .unwrap();
    let before = commands(servers.nodes()).await;
    for acquisition in 0..ACQUISITIONS {
        let name = format!("fresh-{acquisition}");
        let primary = servers.primary(&format!("{{lock:{name}}}")).await.unwrap().unwrap();
        one_burst_to(&locks, &name, &proxies, primary).await;
    }
    assert_eq!(
        commands(servers.nodes()).await - before,
        2 * ACQUISITIONS,
        "an acquisition and a release are a command each"
    );
    locks.close(LIMIT).await.unwrap();
}

/// A slow proxy before each server, and the setting by which clients who are told of the servers use these.
async fn detours(servers: &[Redis]) -> (Vec<Proxy>, String) {
    let mut proxies = Vec::new();
    for server in servers {
        let proxy = Proxy::start(server.port()).await.unwrap();
        proxy.delay(EACH_WAY);
        proxies.push(proxy);
    }
    let detour = |(server, proxy): (&Redis, &Proxy)| format!("127.0.0.1:{}=127.0.0.1:{}", server.port(), proxy.port());
    let detours: Vec<_> = servers.iter().zip(&proxies).map(detour).collect();
    (proxies, detours.join(","))
}

/// Locks and releases `name`, and sees that each is one request and one reply, and that no other server is asked.
async fn one_burst_to(locks: &Locks, name: &str, proxies: &[Proxy], server: usize) {
    let asked = || proxies.iter().map(|proxy| proxy.requests().bursts).sum::<u64>();
    let before = asked();
    one_burst_each_way(locks, name, std::slice::from_ref(&proxies[server])).await;
    assert_eq!(asked() - before, 2, "somebody else was asked, too");
}

/// How many scripts the servers have run. Sentinels send them other commands all the time.
async fn commands(servers: &[Redis]) -> u64 {
    let mut sum = 0;
    for server in servers {
        let stats = server.info("commandstats").await.unwrap();
        let calls = |script: &str| stats.get(script)?.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok();
        sum += ["cmdstat_eval", "cmdstat_evalsha"].into_iter().filter_map(calls).sum::<u64>();
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_to_each_node_of_redlock() {
    let nodes = RedisNodes::start_with(5, RedisOptions::default().with_own_clock(true)).await.unwrap();
    // A node that is asked a quarter of a second late gives a number by its own clock, which costs a round. By clocks that stand
    // still none is, also where the machine stands still.
    for node in nodes.nodes() {
        let (seconds, _): (u64, u64) = node.ask("TIME", &[]).await.unwrap();
        node.stop_clock_at(Duration::from_secs(seconds)).unwrap();
    }
    let mut proxies = Vec::new();
    for port in nodes.ports() {
        proxies.push(Proxy::start(port).await.unwrap());
    }
    let hosts: Vec<_> = proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
    let url = format!("redlock://{}/?ttl={TTL}&node_timeout={LATE}", hosts.join(","));
    let locks = lock::connect(&url).await.unwrap();
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    // The release did not wait for its slowest nodes, whose late answers would be counted with what comes next. This waits
    // for every node, and comes behind those answers on each connection.
    locks.inspect("warm").await.unwrap();
    for proxy in &proxies {
        proxy.delay(EACH_WAY);
    }
    for acquisition in 0..ACQUISITIONS {
        one_burst_each_way(&locks, &format!("fresh-{acquisition}"), &proxies).await;
    }
    locks.close(LIMIT).await.unwrap();
}

/// Locks and releases `name`, and sees that each, through every proxy, is one request and one reply.
async fn one_burst_each_way(locks: &Locks, name: &str, proxies: &[Proxy]) {
    let before: Vec<_> = proxies.iter().map(Passing::through).collect();
    let guard = locks.mutex(name).lock().await.unwrap();
    passed_once(proxies, &before, "the acquisition").await;
    let before: Vec<_> = proxies.iter().map(Passing::through).collect();
    guard.release().await.unwrap();
    passed_once(proxies, &before, "the release").await;
}

/// Waits until every proxy has forwarded a reply (a quorum does not wait for its slowest node, nor for the proxy's
/// counter), and sees that nothing more has passed.
async fn passed_once(proxies: &[Proxy], before: &[Passing], what: &str) {
    for (proxy, before) in proxies.iter().zip(before) {
        let answered = Clock::boot().timeout(LIMIT, async {
            while proxy.replies().bursts == before.replies.bursts {
                Clock::boot().sleep(EACH_WAY).await;
            }
        });
        answered.await.unwrap_or_else(|| panic!("{what} got no reply"));
    }
    for (proxy, before) in proxies.iter().zip(before) {
        let after = Passing::through(proxy);
        assert_eq!(after.requests.bursts - before.requests.bursts, 1, "requests of {what}");
        assert_eq!(after.replies.bursts - before.replies.bursts, 1, "replies to {what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquisition_is_one_round_trip_on_zookeeper_create_and_list_in_flight_together() {
    let servers = ZooKeeper::start(1).await.unwrap();
    let proxy = FrameProxy::start(servers.ports()[0]).await.unwrap();
    let tick = ZooKeeper::TICK.as_millis();
    let url = format!("zk://127.0.0.1:{}/?session_timeout=10s&tick_time={tick}ms", proxy.port);
    let locks = lock::connect(&url).await.unwrap();
    let name = LockName::new("round trips").unwrap();
    let directory = format!("/locks/{}", name.to_component());
    locks.mutex(name.as_str()).lock().await.unwrap().release().await.unwrap();
    for _ in 0..ACQUISITIONS {
        let before = proxy.requests().len();
        proxy.answer_nothing_new();
        let mutex = locks.mutex(name.as_str());
        let acquiring = tokio::spawn(async move { mutex.lock().await });
        let both = proxy.asked(|requests| {
            let sent = |operations| asked(&requests[before..], &directory, operations);
            sent(CREATE) && sent(LIST)
        });
        within("a create and a list without an answer to either", &proxy, both).await;
        // Both are answered, and nothing that is asked after that.
        proxy.answer_nothing_new();
        let guard = within("a grant by these two answers", &proxy, acquiring).await.unwrap().unwrap();
        proxy.answer_all();
        guard.release().await.unwrap();
    }
    locks.close(LIMIT).await.unwrap();
}

/// Whether one of `operations` was asked of what is below `directory`, or of that itself.
fn asked(requests: &[Request], directory: &str, operations: [i32; 2]) -> bool {
    requests.iter().any(|request| request.path.starts_with(directory) && operations.contains(&request.operation))
}

async fn within<T>(what: &str, proxy: &FrameProxy, future: impl Future<Output = T>) -> T {
    let output = Clock::boot().timeout(LIMIT, future).await;
    output.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}; asked was {:?}", proxy.requests()))
}
