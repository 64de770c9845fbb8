//! What holds when the primary is another server all of a sudden.

use crate::common;
use crate::common::guide;

use std::time::Duration;

use crate::common::{LIMIT, connect, connect_bridging, keys, passed_on, soon};
use guide::{FalseSentinel, SERVICE};
use lock_core::{Clock, Context, Error, Locks, Loss};
use lock_lab::{
    proxy::{Proxy, answered_in_a_standstill},
    servers::{self, RedisOptions},
    wait::renewed,
};
use lock_redis::{Config, Redis, Sentinel, node::Address, token::MAX_LEAD};

const TTL: Duration = Duration::from_secs(6);

/// A primary and a replica of which the only guide is told what to say.
struct Pair {
    servers: [servers::Redis; 2],
    guide: FalseSentinel,
}

impl Pair {
    async fn start() -> Self {
        let start =
            async || servers::Redis::start_with(&["--save", "", "--repl-diskless-sync-delay", "0"]).await.unwrap();
        Self::of([start().await, start().await]).await
    }

    /// With clocks that are ahead of the clients' by more than what is made up for by a client that is ahead.
    async fn with_clocks_ahead() -> Self {
        let start = async || {
            let server = servers::Redis::start_as_told(RedisOptions::default().with_own_clock(true)).await.unwrap();
            server.set_clock_ahead(10 * MAX_LEAD).unwrap();
            () = server.ask("CONFIG SET", &["repl-diskless-sync-delay", "0"]).await.unwrap();
            server
        };
        Self::of([start().await, start().await]).await
    }

    async fn of(servers: [servers::Redis; 2]) -> Self {
        let pair = Self { guide: FalseSentinel::naming(servers[0].port()).await, servers };
        pair.follow(1, 0).await;
        pair
    }

    fn port(&self, server: usize) -> u16 {
        self.servers[server].port()
    }

    /// Makes one a replica of the other, and waits until it has what the other has.
    async fn follow(&self, replica: usize, primary: usize) {
        let port = self.port(primary).to_string();
        () = self.servers[replica].ask("REPLICAOF", &["127.0.0.1", &port]).await.unwrap();
        soon(async {
            let follows =
                async || self.servers[replica].info("replication").await.unwrap()["master_link_status"] == "up";
            while !follows().await {}
        })
        .await;
    }

    /// Waits until the replica has what the primary had.
    async fn replicated(&self, primary: usize) {
        let offset = async |server: usize, key| -> u64 {
            self.servers[server].info("replication").await.unwrap()[key].parse().unwrap()
        };
        let written = offset(primary, "master_repl_offset").await;
        soon(async { while offset(1 - primary, "slave_repl_offset").await < written {} }).await;
    }

    /// Makes the other one the primary. Nobody's connection is closed by that.
    async fn promote(&self, primary: usize) {
        self.replicated(1 - primary).await;
        () = self.servers[primary].ask("REPLICAOF", &["NO", "ONE"]).await.unwrap();
        self.follow(1 - primary, primary).await;
    }

    /// Its servers always answer, if late.
    fn config(&self) -> Config {
        led_by(&[&self.guide]).with_response_timeout(LIMIT)
    }

    async fn holder(&self, server: usize, name: &str) -> Option<String> {
        common::holder_in(self.servers[server].ask("GET", &[keys(name).lock()]).await.unwrap())
    }
}

fn led_by(guides: &[&FalseSentinel]) -> Config {
    let sentinel = Sentinel::new(SERVICE, guides.iter().map(|guide| guide.address()));
    Config::sentinel(sentinel).with_ttl(TTL)
}

/// A client of real sentinels.
fn config_of(servers: &servers::Sentinel) -> Config {
    let at = servers.sentinels().iter().map(|sentinel| Address::new("127.0.0.1", sentinel.port()));
    Config::sentinel(Sentinel::new(servers::Sentinel::NAME, at)).with_ttl(TTL)
}

async fn client_of(servers: &servers::Sentinel) -> Locks {
    connect(config_of(servers)).await
}

/// Waits until every server has the lock: a failover before that may lose it, as replication is asynchronous.
async fn known_to_all(servers: &servers::Sentinel, name: &str) {
    let lock = keys(name);
    for node in servers.nodes() {
        soon(async { while node.ask::<Option<Vec<u8>>>("GET", &[lock.lock()]).await.unwrap().is_none() {} }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_and_those_who_wait_get_over_a_failover() {
    let servers = servers::Sentinel::start().await.unwrap();
    let (holder, waiter) = (client_of(&servers).await, client_of(&servers).await);
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    known_to_all(&servers, "a").await;
    let primary = servers.failover().await.unwrap();
    let next = passed_on(guard, waiting).await;
    let kept: Option<Vec<u8>> = servers.nodes()[primary].ask("GET", &[keys("a").lock()]).await.unwrap();
    assert!(kept.is_some(), "the new primary keeps nothing");
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_costs_neither_the_holder_nor_those_who_wait_for_it() {
    let mut servers = servers::Sentinel::start().await.unwrap();
    // A failover takes two or three seconds, and twice as long on a machine that stands still in it.
    let lasting = config_of(&servers).with_ttl(Duration::from_secs(12));
    let (holder, waiter) = (connect(lasting.clone()).await, connect(lasting).await);
    let guard = holder.mutex("a").lock().await.unwrap();
    renewed([guard.validity()]).await;
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    known_to_all(&servers, "a").await;
    servers.kill(0);
    servers.promoted(Some(0)).await.unwrap();
    renewed([guard.validity()]).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_sentinel_that_names_a_replica_is_not_believed() {
    let pair = Pair::start().await;
    pair.guide.name(pair.port(1));
    let error = Redis::connect(pair.config()).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("is none")), "{error}");
    // One that is right is enough, whoever answers first.
    let right = FalseSentinel::naming(pair.port(0)).await;
    let locks = connect(led_by(&[&pair.guide, &right])).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let sent = pair.servers[1].info("commandstats").await.unwrap();
    assert!(!sent.contains_key("cmdstat_evalsha") && !sent.contains_key("cmdstat_subscribe"), "{sent:?}");
}

#[tokio::test]
async fn the_primary_of_the_highest_epoch_is_used_although_its_predecessor_answers_first_and_calls_itself_one() {
    let pair = Pair::start().await;
    // The old one was cut off from the others and does not know of it.
    () = pair.servers[1].ask("REPLICAOF", &["NO", "ONE"]).await.unwrap();
    let (at_once, late) = (Duration::ZERO, Duration::from_millis(10));
    let [old, new] = [0, 1].map(|server| pair.port(server));
    let cut_off = FalseSentinel::naming(old).await.under(1, at_once);
    let others = [FalseSentinel::naming(new).await.under(2, late), FalseSentinel::naming(new).await.under(2, late)];
    let locks = connect(led_by(&[&cut_off, &others[0], &others[1]])).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(pair.holder(1, "a").await.is_some() && pair.holder(0, "a").await.is_none());
    guard.release().await.unwrap();
    // As long as only one of them has heard of it, it is right all the same.
    let locks = connect(led_by(&[&cut_off, &FalseSentinel::naming(old).await.under(1, at_once), &others[0]])).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(pair.holder(1, "a").await.is_some() && pair.holder(0, "a").await.is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn sentinels_that_answer_in_a_standstill_name_the_primary() {
    let pair = Pair::start().await;
    let [first, second, third] = [(); 3].map(|()| FalseSentinel::naming(pair.port(0)));
    let sentinels = [first.await, second.await, third.await];
    let mut ways = Vec::new();
    for sentinel in &sentinels {
        ways.push(Proxy::start(sentinel.address().port).await.unwrap());
    }
    let at = ways.iter().map(|way| Address::new("127.0.0.1", way.port()));
    let config = Config::sentinel(Sentinel::new(SERVICE, at)).with_connect_timeout(LIMIT);
    let context = Context::current().with_clock(Clock::runtime());
    // The sentinels have half of the time for the connection.
    answered_in_a_standstill(&ways, LIMIT / 2, Redis::connect_in(config, context)).await.unwrap();
}

#[tokio::test]
async fn fewer_than_half_of_the_sentinels_are_not_believed() {
    let pair = Pair::start().await;
    let gone = || async {
        let sentinel = FalseSentinel::naming(pair.port(0)).await;
        sentinel.address()
    };
    let sentinel = |at: Vec<Address>| Config::sentinel(Sentinel::new(SERVICE, at));
    let error = Redis::connect(sentinel(vec![pair.guide.address(), gone().await, gone().await])).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("1 of 3 sentinels")), "{error}");
    Redis::connect(sentinel(vec![pair.guide.address(), gone().await])).await.unwrap();
}

#[tokio::test]
async fn a_service_that_no_sentinel_knows_is_an_error_that_names_it() {
    let servers = servers::Sentinel::start().await.unwrap();
    let at = servers.sentinels().iter().map(|sentinel| Address::new("127.0.0.1", sentinel.port()));
    let error = Redis::connect(Config::sentinel(Sentinel::new("unheard-of", at))).await.unwrap_err();
    assert!(error.to_string().contains("unheard-of"), "{error}");
}

#[tokio::test]
async fn a_demoted_primary_grants_nothing_and_its_successor_is_found() {
    let pair = Pair::start().await;
    // Not renewed before the try.
    let locks = connect(pair.config().with_ttl(Duration::from_secs(15))).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    pair.promote(1).await;
    // Nobody has told the client: its connection leads to the old one, which is a replica by now.
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("READONLY")), "{error}");
    pair.guide.name(pair.port(1));
    let next = soon(locks.mutex("a").lock()).await.unwrap();
    assert_eq!(pair.holder(1, "a").await.map(|value| value.len()), Some(32));
    renewed([guard.validity()]).await;
    next.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn one_who_waits_goes_on_at_the_successor_of_a_demoted_primary() {
    let pair = Pair::start().await;
    // So long that nobody would look by himself.
    let config = pair.config().with_ttl(3 * LIMIT);
    let (holder, waiter) = (connect(config.clone()).await, connect(config).await);
    soon(async {
        while pair.guide.listeners() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    soon(async { while listeners(&pair.servers[0]).await == 0 {} }).await;
    pair.promote(1).await;
    pair.guide.name(pair.port(1));
    pair.guide.say_switched(pair.port(0), pair.port(1));
    // It listens where releases are published from now on, long before the holder's ttl is over.
    soon(async { while listeners(&pair.servers[1]).await == 0 {} }).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

async fn listeners(server: &servers::Redis) -> u64 {
    let channels: Vec<String> = server.ask("PUBSUB CHANNELS", &["lock:grants:*"]).await.unwrap();
    channels.len() as u64
}

#[tokio::test]
async fn a_lock_that_the_new_primary_does_not_have_is_lost() {
    let pair = Pair::start().await;
    let locks = connect(pair.config()).await;
    () = pair.servers[1].ask("REPLICAOF", &["NO", "ONE"]).await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    pair.guide.name(pair.port(1));
    pair.follow(0, 1).await;
    let after = soon(locks.mutex("a").lock()).await.unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Revoked);
    assert!(after.is_valid() && after.token() > guard.token(), "{after:?} after {guard:?}");
}

#[tokio::test]
async fn tokens_rise_over_a_failover_that_lost_the_latest_although_the_clients_clock_is_behind() {
    let pair = Pair::with_clocks_ahead().await;
    let token = async || {
        // Each time another client: one knows what it was given itself.
        let locks = connect(pair.config()).await;
        let guard = soon(locks.mutex("a").lock()).await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    // With a lock delay it takes the long way, the next one finds that the delay is over, and all further ones are short.
    let locks = connect(pair.config()).await;
    soon(locks.mutex("a").lock_delay(Duration::from_millis(1)).lock()).await.unwrap().release().await.unwrap();
    token().await;
    let known_to_both = token().await;
    pair.replicated(0).await;
    () = pair.servers[1].ask("REPLICAOF", &["NO", "ONE"]).await.unwrap();
    let mut latest = known_to_both;
    for _ in 0..3 {
        latest = token().await;
    }
    pair.guide.name(pair.port(1));
    pair.follow(0, 1).await;
    let next = token().await;
    assert!(next > latest, "{next:?} after {latest:?}, with the counter at {known_to_both:?}");
}

#[tokio::test]
async fn an_outage_that_outlasts_the_limit_ends_a_wait() {
    let mut pair = Pair::start().await;
    let locks = connect_bridging(pair.config(), Duration::from_millis(500)).await;
    pair.servers[0].kill();
    let error = soon(locks.mutex("a").lock()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    pair.servers[0].restart().await.unwrap();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    locks.close(LIMIT).await.unwrap();
}
