//! Who belongs to a deployment: clients that disagree, servers that forget, addresses that lead elsewhere.

use crate::deployment;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use crate::deployment::{LIMIT, command, config, connect, connect_to, eventually, get, marked, marked_as, until_free};
use crate::simulation::simulated;
use lock_core::{Error, Guard, Locks};
use lock_lab::{
    proxy::Proxy,
    servers::{Redis, RedisNodes, RedisOptions},
};
use lock_redlock::{InitOptions, Redlock};
use lock_sim::redis::Reply;
use tokio::net::{TcpListener, TcpStream};

const NEW: InitOptions = InitOptions::new().with_no_holders();

/// How often clients contend that must not both hold; `REDLOCK_TRIES` asks for more.
fn tries() -> u32 {
    std::env::var("REDLOCK_TRIES").map_or(30, |tries| tries.parse().expect("REDLOCK_TRIES is a number"))
}

fn refused(result: Result<Arc<Redlock>, Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    error.to_string()
}

/// Tries to hold `name` by both at once, and fails if both do.
async fn contend(one: &Locks, other: &Locks, name: &str) -> u32 {
    let (first, second) = (one.mutex(name), other.mutex(name));
    let (first, second) = tokio::join!(first.try_lock(), second.try_lock());
    let held: Vec<Guard> = [first, second].into_iter().filter_map(|tried| tried.ok().flatten()).collect();
    assert!(held.iter().filter(|guard| guard.is_valid()).count() < 2, "two hold {name}");
    let count = u32::try_from(held.len()).unwrap();
    for guard in held {
        guard.release().await.unwrap();
    }
    count
}

/// A port that leads to one server and later, connections of before included, to another.
struct Detour {
    port: u16,
    target: Arc<AtomicU16>,
}

impl Detour {
    async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Arc::new(AtomicU16::new(target));
        let leads_to = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let target = leads_to.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", target)).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { port, target }
    }

    /// From now on connections lead to that port; those to the server of before are broken.
    async fn lead_to(&self, target: u16, before: &Redis) {
        self.target.store(target, Ordering::SeqCst);
        command(before, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_another_list_of_servers_is_refused_with_the_members() {
    let nodes = marked(3).await;
    let other = Redis::start().await.unwrap();
    let mut ports = nodes.ports();
    ports[2] = other.port();
    let error = refused(Redlock::connect(config(&ports, &[])).await);
    assert!(error.contains(&format!("127.0.0.1:{}", other.port())), "{error}");
    assert!(error.contains(&format!("127.0.0.1:{}", nodes.ports()[2])), "{error}");
    // Nor can its list be made a deployment beside the one that is there.
    let error = lock_redlock::init(&config(&ports, &[]), NEW).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let longer: Vec<u16> = nodes.ports().into_iter().chain([other.port(), 1]).collect();
    let error = refused(Redlock::connect(config(&longer, &[])).await);
    assert!(error.contains("host"), "{error}");
    // A member of another deployment is none of this one.
    let others = marked(3).await;
    ports[2] = others.ports()[0];
    let error = refused(Redlock::connect(config(&ports, &[])).await);
    assert!(error.contains("one deployment"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_no_member_has_no_vote_when_it_comes_later() {
    let nodes = marked(3).await;
    let mut other = Redis::start().await.unwrap();
    let mut ports = nodes.ports();
    ports[2] = other.port();
    other.kill();
    // While it is down, nothing tells that it is another than the third member.
    let stranger = connect_to(&ports, &[]).await;
    let member = connect(&nodes, &[]).await;
    other.restart().await.unwrap();
    let mut granted = 0;
    for index in 0..tries() {
        granted += contend(&stranger, &member, &format!("pair/{index}")).await;
    }
    assert!(granted > 0, "nobody was ever granted the lock");
    // With one of the two members that it has down, it has no majority.
    nodes.nodes()[0].stop().unwrap();
    let error = stranger.mutex("alone").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("never marked as a member"), "{error}");
    nodes.nodes()[0].cont().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_other_limits_is_refused_and_one_that_names_none_has_the_deployments() {
    let nodes = marked_as(3, &[("max_ttl", "10s")]).await;
    let error = refused(Redlock::connect(config(&nodes.ports(), &[("max_ttl", "1s")])).await);
    assert!(error.contains("max_ttl") && error.contains("\"1s\"") && error.contains("10s"), "{error}");
    let error = refused(Redlock::connect(config(&nodes.ports(), &[("restart_quarantine", "off")])).await);
    assert!(error.contains("restart_quarantine") && error.contains("on,"), "{error}");
    let error = refused(Redlock::connect(config(&nodes.ports(), &[("ttl", "20s")])).await);
    assert!(error.contains("ttl") && error.contains("10s"), "{error}");
    let locks = connect(&nodes, &[]).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let remaining: u64 = nodes.nodes()[0].ask("PTTL", &["{lock:a}"]).await.unwrap();
    assert!(remaining <= 10_000, "{remaining}");
    guard.release().await.unwrap();
    let error = lock_redlock::init(&config(&nodes.ports(), &[("max_ttl", "1m")]), NEW).await.unwrap_err();
    assert!(error.to_string().contains("10s"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_no_deployment_are_refused_with_what_to_do() {
    let nodes = RedisNodes::start_unmarked(3).await.unwrap();
    let error = refused(Redlock::connect(config(&nodes.ports(), &[])).await);
    assert!(error.contains("lock redlock init"), "{error}");
    assert_eq!(get(&nodes.nodes()[0], "redlock:member").await, None, "asking changes nothing");
    lock_redlock::init(&config(&nodes.ports(), &[]), NEW).await.unwrap();
    let locks = connect(&nodes, &[]).await;
    locks.mutex("new").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_addresses_is_refused() {
    let nodes = marked(3).await;
    let proxy = Proxy::start(nodes.ports()[0]).await.unwrap();
    let twice = [nodes.ports()[0], nodes.ports()[1], proxy.port()];
    let error = refused(Redlock::connect(config(&twice, &[])).await);
    assert!(error.contains("one and the same"), "{error}");
    let error = lock_redlock::init(&config(&twice, &[]), NEW).await.unwrap_err();
    assert!(error.to_string().contains("one and the same"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_a_second_address_comes_to_lead_to_has_one_vote() {
    let nodes = marked(3).await;
    let [a, b, c] = nodes.nodes() else { unreachable!() };
    // One client reaches the third member by an address that will lead to the first one.
    let detour = Detour::to(c.port()).await;
    let misled = connect_to(&[a.port(), b.port(), detour.port], &[]).await;
    let member = connect(&nodes, &[]).await;
    let guard = misled.mutex("held").lock().await.unwrap();
    eventually("all have it", || async { deployment::count(&nodes, "held").await == 3 }).await;
    detour.lead_to(a.port(), c).await;
    let mut granted = 0;
    for index in 0..tries() {
        granted += contend(&misled, &member, &format!("pair/{index}")).await;
    }
    assert!(granted > 0, "nobody was ever granted the lock");
    // The first member alone, under both of its addresses, is no majority; nor does it keep a lease alive.
    b.stop().unwrap();
    let error = misled.mutex("alone").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    b.cont().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_on_a_deployment_that_lost_everything_pardons_nobody() {
    let settings = [("max_ttl", "1h")];
    let mut nodes = marked_as(3, &settings).await;
    let holder = connect(&nodes, &[("ttl", "1h")]).await;
    let guard = holder.mutex("lost").lock().await.unwrap();
    for node in 0..3 {
        nodes.nodes_mut()[node].restart_empty().await.unwrap();
    }
    let absence = lock_redlock::init(&config(&nodes.ports(), &settings), InitOptions::default()).await.unwrap();
    assert_eq!(absence, Duration::from_secs(3_600));
    let next = connect(&nodes, &[]).await;
    for _ in 0..tries() {
        let tried = next.mutex("lost").try_lock().await;
        assert!(!guard.is_valid() || !matches!(tried, Ok(Some(_))), "two hold it");
        let error = tried.unwrap_err();
        assert!(error.to_string().contains("quarantine"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_on_a_live_deployment_changes_nothing() {
    let nodes = marked(3).await;
    let before = get(&nodes.nodes()[0], "redlock:member").await;
    let (one, other) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    for index in 0..tries() {
        let contended = async { contend(&one, &other, &format!("pair/{index}")).await };
        let marked = config(&nodes.ports(), &[]);
        let (_, absence) = tokio::join!(contended, lock_redlock::init(&marked, NEW));
        assert_eq!(absence.unwrap(), Duration::ZERO);
    }
    assert_eq!(get(&nodes.nodes()[0], "redlock:member").await, before);
    assert_eq!(get(&nodes.nodes()[0], "redlock:quarantine").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_makes_a_member_again_of_one_that_forgot_and_does_not_pardon_it() {
    let mut nodes = marked(3).await;
    let before = get(&nodes.nodes()[1], "redlock:member").await.unwrap();
    nodes.nodes_mut()[1].restart_empty().await.unwrap();
    let absence = lock_redlock::init(&config(&nodes.ports(), &[]), NEW).await.unwrap();
    assert_eq!(absence, Duration::ZERO, "the others are a majority");
    assert_eq!(get(&nodes.nodes()[1], "redlock:member").await, Some(before));
    assert!(get(&nodes.nodes()[1], "redlock:quarantine").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_flushed_is_one_again_and_grants_nothing_for_a_while() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let flushed = &nodes.nodes()[1];
    let before = get(flushed, "redlock:member").await.unwrap();
    command(flushed, &["FLUSHALL"]).await;
    let again = || async {
        locks.mutex("flushed").lock().await.unwrap().release().await.unwrap();
        get(flushed, "redlock:member").await == Some(before.clone())
    };
    eventually("it is a member again", again).await;
    assert!(get(flushed, "redlock:quarantine").await.is_some());
    nodes.nodes()[0].stop().unwrap();
    let error = locks.mutex("flushed").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("quarantine"), "{error}");
    nodes.nodes()[0].cont().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_a_proxy_hides_is_seen_by_the_next_vote() {
    // A name that has a counter, and one that has none.
    for name in ["known", "new"] {
        let nodes = marked(3).await;
        let locks = connect(&nodes, &[]).await;
        locks.mutex("known").lock().await.unwrap().release().await.unwrap();
        until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "known").await;
        nodes.nodes()[0].stop().unwrap();
        // As if the others were processes that were started with an old copy of the data, behind connections that stay.
        for node in &nodes.nodes()[1..] {
            command(node, &["SET", "redlock:run", "of the process before"]).await;
        }
        let error = locks.mutex(name).try_lock().await.unwrap_err();
        assert!(error.to_string().contains("quarantine"), "{error}");
        nodes.nodes()[0].cont().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_forget_nothing_vote_again_at_once() {
    let mut nodes =
        RedisNodes::start_as(3, RedisOptions::default().with_durable(true), &[("restart_quarantine", "off")])
            .await
            .unwrap();
    for node in 0..2 {
        nodes.nodes_mut()[node].kill();
        nodes.nodes_mut()[node].restart().await.unwrap();
    }
    let locks = connect(&nodes, &[]).await;
    nodes.nodes()[2].stop().unwrap();
    locks.mutex("durable").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
    nodes.nodes()[2].cont().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_publish_releases_all_the_same_while_others_wait() {
    let nodes = marked(3).await;
    let rights = ["ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "resetchannels"];
    for node in nodes.nodes() {
        command(node, &rights).await;
    }
    let mut mute = config(&nodes.ports(), &[]);
    for node in &mut mute.nodes {
        (node.username, node.password) = (Some("mute".to_owned()), Some("secret".into()));
    }
    let mute = Locks::new(Redlock::connect(mute).await.unwrap());
    let other = connect(&nodes, &[]).await;
    let guard = mute.mutex("mute").lock().await.unwrap();
    let waiting = other.mutex("mute");
    let next = tokio::spawn(async move { waiting.lock().await });
    let lined_up =
        || async { command(&nodes.nodes()[0], &["EXISTS", "{lock:mute}:waiters"]).await == redis::Value::Int(1) };
    eventually("it waits", lined_up).await;
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[test]
fn clients_of_servers_that_all_lost_their_data_go_on_with_what_the_operator_makes_of_them() {
    const SETTINGS: &[(&str, &str)] = &[("max_ttl", "2s")];
    simulated(3, SETTINGS, |nodes| async move {
        let (holder, other) = (nodes.connect(&[]).await, nodes.connect_from(1, &[]).await);
        let guard = holder.mutex("lost").lock().await.unwrap();
        for node in 0..3 {
            nodes.restart_empty(node).await;
        }
        nodes.init(SETTINGS, InitOptions::default()).await.unwrap();
        let next = nodes.until_granted(&other, "lost").await;
        assert!(!guard.is_valid() && next.token() > guard.token(), "two hold it");
        next.release().await.unwrap();
        let next = nodes.until_granted(&holder, "lost").await;
        assert!(!guard.is_valid() && next.token() > guard.token(), "two hold it");
        next.release().await.unwrap();
    });
}

#[test]
fn a_reset_ends_the_leases_of_before_and_grants_nothing_until_they_are_over() {
    simulated(3, &[("max_ttl", "3s")], |nodes| async move {
        let before = nodes.connect(&[("ttl", "3s")]).await;
        let guard = before.mutex("reset").lock().await.unwrap();
        let limits = [("max_ttl", "2s")];
        let absence = nodes.init(&limits, InitOptions::default().with_reset()).await.unwrap();
        assert_eq!(absence, Duration::from_secs(3), "the longer one of both");
        let after = nodes.connect_from(1, &limits).await;
        let next = nodes.until_granted(&after, "reset").await;
        assert!(!guard.is_valid() && next.token() > guard.token(), "two hold it");
        next.release().await.unwrap();
        let error = before.mutex("other").try_lock().await.unwrap_err();
        assert!(error.to_string().contains("another member"), "{error}");
    });
}

#[test]
fn a_majority_that_lost_its_data_grants_nothing_until_it_was_marked_and_all_leases_are_over() {
    simulated(3, &[("max_ttl", "2s")], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "2s")]).await;
        let guard = locks.mutex("lost").lock().await.unwrap();
        nodes.until("all have it", || nodes.count("lost") == 3).await;
        for node in 0..2 {
            nodes.restart_empty(node).await;
        }
        let error = Redlock::connect_in(nodes.config(1, &[]), nodes.context(1)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("lock redlock init"), "{error}");
        // A client that knew the servers before asks what they are, and does not make them members again either.
        for _ in 0..10 {
            assert!(locks.mutex("other").try_lock().await.is_err());
            nodes.clock().sleep(Duration::from_millis(100)).await;
        }
        assert_eq!([0, 1].map(|node| nodes.get(node, "redlock:member")), [None, None]);
        let absence = nodes.init(&[], NEW).await.unwrap();
        assert_eq!(absence, Duration::from_secs(2));
        let next = nodes.connect_from(1, &[]).await;
        let next = nodes.until_granted(&next, "lost").await;
        assert!(!guard.is_valid() && next.token() > guard.token(), "two hold it");
        next.release().await.unwrap();
    });
}

#[test]
fn a_server_that_a_broken_off_init_has_marked_becomes_a_member_by_the_next_one_and_votes_when_leases_are_over() {
    simulated(3, &[("max_ttl", "2s")], |nodes| async move {
        let member = nodes.get(2, "redlock:member");
        // As a request does that arrives when the operator has begun anew.
        nodes.command(2, &["SET", "redlock:member", "of-the-broken-off 1 3"]);
        nodes.command(2, &["HSET", "redlock:deployment", "id", "of-the-broken-off", "max_ttl", "5000"]);
        let refused = refused(Redlock::connect_in(nodes.config(1, &[]), nodes.context(1)).await);
        assert!(refused.contains("one deployment"), "{refused}");
        assert_eq!(nodes.init(&[], NEW).await.unwrap(), Duration::ZERO, "the others are a majority");
        assert_eq!(nodes.get(2, "redlock:member"), member);
        let Reply::Int(quarantine) = nodes.command(2, &["PTTL", "redlock:quarantine"]) else { panic!("no number") };
        assert!((2_001..=5_000).contains(&quarantine), "the longer one of both: {quarantine} ms");
        let locks = nodes.connect(&[]).await;
        locks.mutex("now").lock().await.unwrap().release().await.unwrap();
        nodes.stop(0).await;
        let error = locks.mutex("then").try_lock().await.unwrap_err();
        assert!(error.to_string().contains("quarantine"), "{error}");
        nodes.until_granted(&locks, "then").await.release().await.unwrap();
        nodes.cont(0).await;
    });
}
