//! What the queue promises while the server is well: the order of arrival, one that wakes for each release, and what
//! others see of the line.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::common::{LIMIT, Server, connect, in_line, server, soon};
use lock_core::{Feature, LockName, Locks, Mode};
use tokio::{sync::mpsc, task::JoinSet};

/// Counts of commands, those that scripts call included.
async fn counts(server: &Server) -> BTreeMap<String, u64> {
    let stats = server.redis.info("commandstats").await.unwrap();
    let calls = |stat: &str| stat.strip_prefix("calls=")?.split(',').next()?.parse().ok();
    let named = |(name, stat): (&String, &String)| Some((name.strip_prefix("cmdstat_")?.to_owned(), calls(stat)?));
    stats.iter().filter_map(named).collect()
}

/// How many messages were published.
async fn published(server: &Server) -> u64 {
    counts(server).await.get("publish").copied().unwrap_or(0)
}

/// How many scripts ran that were not beats: each of those calls `ZADD` with `XX` and asks for one `ZRANK`; nothing else does
/// while nobody enters.
async fn scripts_without_beats(server: &Server) -> u64 {
    let counts = counts(server).await;
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    count("evalsha") + count("eval") - count("zrank")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_waiters_each_release_wakes_exactly_one_in_the_order_of_their_arrival() {
    const WAITERS: usize = 64;
    let mut server = server().await;
    let holder = server.locks().await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let (grants, mut granted) = mpsc::unbounded_channel();
    let mut waiters = JoinSet::new();
    for place in 0..WAITERS {
        let (client, grants) = (server.locks().await, grants.clone());
        waiters.spawn(async move {
            let guard = client.mutex("a").lock().await.unwrap();
            grants.send((place, guard.token())).unwrap();
            guard.release().await.unwrap();
        });
        in_line(&holder, "a", place + 1).await;
    }
    // Each listens on a channel of its own, and to nothing else.
    soon(async { while server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS", "*"]).await.len() < WAITERS {} }).await;
    let channels: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", "*"]).await;
    assert!(channels.iter().all(|channel| channel.starts_with("lock:grants:")), "{channels:?}");
    for channel in &channels {
        assert_eq!(server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).await.1, 1, "{channel}");
    }
    let before = (scripts_without_beats(&server).await, published(&server).await);
    guard.release().await.unwrap();
    let mut last = None;
    for place in 0..WAITERS {
        let (next, token) = soon(granted.recv()).await.unwrap();
        assert_eq!(next, place);
        assert!(Some(token) > last, "tokens rise with the grants");
        last = Some(token);
    }
    while let Some(waiter) = waiters.join_next().await {
        waiter.unwrap();
    }
    // One message for each hand-over.
    assert_eq!(published(&server).await - before.1, WAITERS as u64);
    // A release each, and a renewal at most, of whoever has little left of a claim: each that had woken beside would have asked for
    // something.
    let scripts = scripts_without_beats(&server).await - before.0;
    assert!((1 + WAITERS as u64..=1 + 2 * WAITERS as u64).contains(&scripts), "{scripts}");
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_try_is_refused_while_somebody_waits_even_if_nobody_holds_it() {
    let mut server = server().await;
    let [holder, waiter, other] = [server.locks().await, server.locks().await, server.locks().await];
    let _lost = holder.mutex("a").lock().await.unwrap();
    let waiting = spawn_lock(&waiter, "a");
    in_line(&holder, "a", 1).await;
    server.ask::<()>(&["DEL", "{lock:a}"]).await;
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    soon(waiting).await.unwrap().release().await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_line_at_once() {
    let server = server().await;
    let [holder, waiter, other] = [server.locks().await, server.locks().await, server.locks().await];
    let guard = holder.mutex("a").lock().await.unwrap();
    let giving_up = tokio::spawn({
        let mutex = waiter.mutex("a").timeout(Duration::from_millis(50));
        async move { mutex.lock().await }
    });
    let patient = spawn_lock(&other, "a");
    assert!(soon(giving_up).await.unwrap().is_err());
    in_line(&holder, "a", 1).await;
    guard.release().await.unwrap();
    soon(patient).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_look_shows_the_line_in_its_order_with_who_and_since_when() {
    let server = server().await;
    let holder = server.locks().await;
    assert!(holder.capabilities().supports(Feature::Fifo) && holder.capabilities().supports(Feature::Queue));
    let guard = holder.mutex("a").payload(b"holder".as_slice()).lock().await.unwrap();
    let mut waiting = Vec::new();
    for place in 0..3 {
        let mutex = holder.mutex("a").payload(format!("waiter \0 {place}").into_bytes());
        waiting.push(tokio::spawn(async move { mutex.lock().await }));
        in_line(&holder, "a", place + 1).await;
    }
    let seen = server.locks().await.inspect("a").await.unwrap();
    assert_eq!(
        (seen.holders[0].payload.as_slice(), seen.holders[0].mode),
        (b"holder".as_slice(), Some(Mode::Exclusive))
    );
    assert_eq!(seen.holders[0].token, Some(guard.token().number));
    let payloads: Vec<_> = seen.queue.iter().map(|waiter| String::from_utf8_lossy(&waiter.payload)).collect();
    assert_eq!(payloads, ["waiter \0 0", "waiter \0 1", "waiter \0 2"]);
    let since: Vec<_> = seen.holders.iter().chain(&seen.queue).map(|one| one.since.unwrap()).collect();
    assert!(since.is_sorted(), "{since:?}");
}

#[tokio::test]
async fn a_client_that_may_not_subscribe_is_granted_by_its_heartbeats() {
    let mut server = server().await;
    server.ask::<()>(&["ACL", "SETUSER", "deaf", "on", ">p", "~*", "+@all", "resetchannels"]).await;
    let config = server.patient().with_ttl(Duration::from_secs(2));
    let deaf = connect(config.with_credentials(Some("deaf".into()), "p")).await;
    let holder = server.locks().await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = spawn_lock(&deaf, "a");
    in_line(&holder, "a", 1).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn waiters_of_many_names_are_told_each_of_their_own_grant() {
    const NAMES: usize = 50;
    let mut server = server().await;
    let (holder, waiter) = (server.locks().await, server.locks().await);
    let names: Arc<Vec<String>> = Arc::new((0..NAMES).map(|at| format!("name {at}")).collect());
    let mut guards = Vec::new();
    let mut waiting = JoinSet::new();
    for name in names.iter() {
        guards.push(holder.mutex(name.as_str()).lock().await.unwrap());
        let mutex = waiter.mutex(name.as_str());
        let expected = LockName::new(name.as_str()).unwrap();
        waiting.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            assert_eq!(guard.name(), &expected);
            guard.release().await.unwrap();
        });
    }
    for name in names.iter() {
        in_line(&holder, name, 1).await;
    }
    for guard in guards.into_iter().rev() {
        guard.release().await.unwrap();
    }
    while let Some(waiter) = soon(waiting.join_next()).await {
        waiter.unwrap();
    }
    holder.close(LIMIT).await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

/// Waits for the lock in a task of its own.
fn spawn_lock(locks: &Locks, name: &str) -> impl Future<Output = Result<lock_core::Guard, lock_core::Error>> {
    let mutex = locks.mutex(name);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    async move { waiting.await.unwrap() }
}
