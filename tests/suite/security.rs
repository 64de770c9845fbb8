//! Encrypted connections and users, on real servers: what is refused, in which words, and what changes while a program runs.

use std::{error::Error as _, fs, path::Path, time::Duration};

use lock::{Error, Locks, Loss};
use lock_core::Clock;
use lock_lab::{
    deployment::{Deployment, Running, StartOptions},
    servers::{
        Certificates, ClientCertificate, Redis, RedisNodes, RedisOptions, ServerCertificate, ZooKeeper,
        ZooKeeperOptions,
    },
    wait::renewed,
};

/// Longer than anything that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// What a server shows, whom a client is taken for, and what is said of it: on Redis, and on ZooKeeper and etcd, whose Java and Go
/// have other alerts for what a client shows.
const REFUSED: [(ServerCertificate, ClientCertificate, &str, &str); 5] = [
    (ServerCertificate::Expired, ClientCertificate::Good, "server's certificate has expired", ""),
    (ServerCertificate::OfAnotherName, ClientCertificate::Good, "not for \"127.0.0.1\" but for", ""),
    (
        ServerCertificate::OfAnotherAuthority,
        ClientCertificate::Good,
        "authority that is not trusted: see `ca_file`",
        "",
    ),
    (
        ServerCertificate::Good,
        ClientCertificate::Missing,
        "asks for a client certificate: set `cert_file`",
        "want of a client certificate",
    ),
    (
        ServerCertificate::Good,
        ClientCertificate::OfAnotherAuthority,
        "does not trust the authority of this program's certificate (`cert_file`)",
        "refuses this program's certificate (`cert_file`)",
    ),
];

/// Why nobody can connect, said at once: that a service may come back is not waited for.
async fn refused_at_once(url: &str) -> String {
    match within(lock::connect(url)).await {
        Err(error @ Error::Refused { .. }) => whole(&error),
        other => panic!("not refused: {url}: {other:?}"),
    }
}

/// An error with all its causes.
fn whole(error: &Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

async fn refused(url: &str) -> String {
    match within(lock::connect(url)).await {
        Ok(_) => panic!("connected: {url}"),
        Err(error) => whole(&error),
    }
}

async fn within<F: Future>(future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.expect("it takes too long")
}

async fn tls_redis(certificate: ServerCertificate) -> Redis {
    Redis::start_as_told(RedisOptions::default().with_tls(Some(certificate))).await.unwrap()
}

fn rediss(server: &Redis, settings: &str) -> String {
    // It always answers, if late.
    format!("rediss://127.0.0.1:{}?response_timeout=20s&{settings}", server.client_port())
}

fn settings(client: ClientCertificate) -> String {
    Certificates::shared().unwrap().settings(client)
}

#[tokio::test]
async fn redis_says_which_certificate_is_wrong_and_how() {
    for (server, client, what, _) in REFUSED {
        let redis = tls_redis(server).await;
        let error = refused_at_once(&rediss(&redis, &settings(client))).await;
        assert!(error.contains(what) && error.contains("rediss://127.0.0.1"), "{server:?} {client:?}: {error}");
    }
}

#[tokio::test]
async fn a_majority_of_servers_is_verified_as_one_is() {
    let ca = Certificates::shared().unwrap().ca_file();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(tls_redis(ServerCertificate::OfAnotherAuthority).await);
    }
    let ports = hosts.iter().map(|redis| format!("127.0.0.1:{}", redis.client_port())).collect::<Vec<_>>().join(",");
    let error = refused_at_once(&format!("redlocks://{ports}?ca_file={}", ca.display())).await;
    assert!(error.contains("authority that is not trusted") && error.contains("redlocks://"), "{error}");
}

#[tokio::test]
async fn a_minority_whose_certificates_have_expired_costs_no_lock() {
    let nodes =
        RedisNodes::start_as(3, RedisOptions::default().with_tls(Some(ServerCertificate::Good)), &[]).await.unwrap();
    let (certificate, key) = Certificates::shared().unwrap().server(ServerCertificate::Expired);
    let expire = async |node: usize| {
        let files = ["tls-cert-file", certificate.to_str().unwrap(), "tls-key-file", key.to_str().unwrap()];
        nodes.nodes()[node].ask::<()>("CONFIG SET", &files).await.unwrap();
        disconnect(&nodes.nodes()[node]).await;
    };
    let hosts = nodes.client_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",");
    let url =
        format!("redlocks://{hosts}?ttl=6s&node_timeout=5s&outage_timeout=0s&{}", settings(ClientCertificate::Good));
    let before = within(lock::connect(&url)).await.unwrap();
    let held = within(before.mutex("held").lock()).await.unwrap();
    expire(0).await;
    let after = within(lock::connect(&url)).await.unwrap();
    for locks in [&before, &after] {
        for _ in 0..3 {
            within(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
        }
    }
    // It is renewed by those that are left.
    renewed([held.validity()]).await;
    held.release().await.unwrap();
    expire(1).await;
    assert!(refused_at_once(&url).await.contains("has expired"));
}

#[tokio::test]
async fn zookeeper_says_which_certificate_is_wrong_and_how() {
    for (server, client, what, by_java) in REFUSED {
        let told = ZooKeeperOptions::default().with_tls(Some(server));
        let zookeeper = ZooKeeper::start_as_told(1, &[], told).await.unwrap();
        let url = format!("zks://127.0.0.1:{}?tick_time=100ms&{}", zookeeper.client_ports()[0], settings(client));
        let error = refused_at_once(&url).await;
        let is_said = error.contains(what) || !by_java.is_empty() && error.contains(by_java);
        assert!(is_said && error.contains("zks://127.0.0.1"), "{server:?} {client:?}: {error}");
    }
}

async fn tls_etcd(certificate: ServerCertificate) -> Running {
    let options = StartOptions { tls: Some(certificate), ..StartOptions::default() };
    Deployment::named("etcd1").unwrap().start_with(options).await.unwrap()
}

fn etcds(etcd: &Running, settings: &str) -> String {
    format!("etcds://127.0.0.1:{}?response_timeout=20s&{settings}", etcd.ports()[0])
}

#[tokio::test]
async fn etcd_says_which_certificate_is_wrong_and_how() {
    for (server, client, what, by_go) in REFUSED {
        let etcd = tls_etcd(server).await;
        let url = etcds(&etcd, &settings(client));
        let error = refused_at_once(&url).await;
        let is_said = error.contains(what) || !by_go.is_empty() && error.contains(by_go);
        assert!(is_said && error.contains("etcds://127.0.0.1"), "{server:?} {client:?}: {error}");
        // With a user the first request is that to sign in.
        let error = refused_at_once(&url.replace("127", "anna:secret@127")).await;
        let is_said = error.contains(what) || !by_go.is_empty() && error.contains(by_go);
        assert!(is_said, "{server:?} {client:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_of_etcd_with_a_wrong_certificate_is_passed_over() {
    let (good, bad) = (tls_etcd(ServerCertificate::Good).await, tls_etcd(ServerCertificate::Expired).await);
    let tls = settings(ClientCertificate::Good);
    // Which one is asked first is a matter of chance.
    for _ in 0..8 {
        let url = format!("etcds://127.0.0.1:{},127.0.0.1:{}?{tls}", bad.ports()[0], good.ports()[0]);
        let locks = within(lock::connect(&url)).await.unwrap();
        within(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_certificate_stands_for_a_user_of_etcd_by_its_common_name() {
    let options = StartOptions { tls: Some(ServerCertificate::Good), users: true, ..StartOptions::default() };
    let etcd = Deployment::named("etcd1").unwrap().start_with(options).await.unwrap();
    let url = etcds(&etcd, &settings(ClientCertificate::Good));
    let locks = within(lock::connect(&url)).await.unwrap();
    within(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    // The user may lock nowhere else.
    let locks = within(lock::connect(&url.replace("?", "/elsewhere?"))).await.unwrap();
    let error = within(locks.mutex("a").lock()).await.unwrap_err();
    assert!(whole(&error).contains("permission denied"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_and_one_with_it_are_told_apart() {
    let redis = tls_redis(ServerCertificate::Good).await;
    let tls = settings(ClientCertificate::Good);
    // It may also wait for more of what it takes for a command.
    let error = refused(&format!("rediss://127.0.0.1:{}?outage_timeout=0s&{tls}", redis.port())).await;
    assert!(error.contains("does not speak TLS"), "{error}");
    let error = refused(&format!("redis://127.0.0.1:{}?outage_timeout=0s", redis.client_port())).await;
    assert!(error.contains("as a port for TLS does"), "{error}");

    let etcd = Deployment::named("etcd1").unwrap().start().await.unwrap();
    let error = refused(&etcds(&etcd, &format!("outage_timeout=0s&{tls}"))).await;
    assert!(error.contains("during the TLS handshake"), "{error}");
    let etcd = tls_etcd(ServerCertificate::Good).await;
    let error = refused(&format!("etcd://127.0.0.1:{}?outage_timeout=0s", etcd.ports()[0])).await;
    assert!(error.contains("as a port for TLS does"), "{error}");
}

#[tokio::test]
async fn a_server_is_verified_under_another_name_if_it_is_given() {
    let redis = tls_redis(ServerCertificate::OfAnotherName).await;
    let named = format!("{}&server_name=db.example.com", settings(ClientCertificate::Good));
    let locks = within(lock::connect(&rediss(&redis, &named))).await.unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
}

/// Copies the certificate of a client to where a program has its own.
fn show(client: ClientCertificate, dir: &Path) {
    let (certificate, key) = Certificates::shared().unwrap().client(client).unwrap();
    fs::copy(certificate, dir.join("client.pem")).unwrap();
    fs::copy(key, dir.join("client.key")).unwrap();
}

/// What a URL says of a client's certificate there.
fn client_files(dir: &Path) -> String {
    let ca = Certificates::shared().unwrap().ca_file();
    let path = |name| dir.join(name).display().to_string();
    format!("ca_file={}&cert_file={}&key_file={}", ca.display(), path("client.pem"), path("client.key"))
}

async fn disconnect(redis: &Redis) {
    let _: i64 = redis.ask("CLIENT KILL", &["TYPE", "NORMAL", "SKIPME", "YES"]).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_changes_is_shown_at_the_next_connect() {
    let (redis, dir) = (tls_redis(ServerCertificate::Good).await, tempfile::tempdir().unwrap());
    show(ClientCertificate::Good, dir.path());
    let locks = within(lock::connect(&rediss(&redis, &client_files(dir.path())))).await.unwrap();
    within(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    show(ClientCertificate::OfAnotherAuthority, dir.path());
    disconnect(&redis).await;
    let error = whole(&refused_lock(&locks).await);
    assert!(error.contains("does not trust the authority of this program's certificate"), "{error}");
    show(ClientCertificate::Good, dir.path());
    lock_again(&locks).await;
}

#[tokio::test]
async fn a_certificate_of_etcd_that_changes_is_shown_at_the_next_connect() {
    let (mut etcd, dir) = (tls_etcd(ServerCertificate::Good).await, tempfile::tempdir().unwrap());
    let url = etcds(&etcd, &client_files(dir.path()));
    show(ClientCertificate::Good, dir.path());
    let locks = within(lock::connect(&url)).await.unwrap();
    within(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    show(ClientCertificate::OfAnotherAuthority, dir.path());
    etcd.restart(0).await.unwrap();
    let error = whole(&refused_lock(&locks).await);
    assert!(error.contains("refuses this program's certificate"), "{error}");
    show(ClientCertificate::Good, dir.path());
    lock_again(&locks).await;
}

/// The first refusal that comes.
async fn refused_lock(locks: &Locks) -> Error {
    within(async {
        loop {
            match locks.mutex("a").lock().await {
                // The end of its connection was not seen yet.
                Ok(guard) => drop(guard.release().await),
                Err(error) => return error,
            }
        }
    })
    .await
}

async fn lock_again(locks: &Locks) {
    within(async { while locks.mutex("a").lock().await.is_err() {} }).await;
}

#[tokio::test]
async fn a_password_that_changes_is_read_at_the_next_connect_and_a_refused_one_is_the_reason_of_a_loss() {
    let (redis, dir) = (Redis::start().await.unwrap(), tempfile::tempdir().unwrap());
    let file = dir.path().join("password");
    let user = |password: &'static str| {
        let rules = ["program", "reset", "on", password, "~*", "&*", "+@all"];
        let redis = &redis;
        async move { redis.ask::<()>("ACL SETUSER", &rules).await.unwrap() }
    };
    user(">before").await;
    fs::write(&file, "before\n").unwrap();
    let url = format!("redis://program@127.0.0.1:{}?ttl=6s&password_file={}", redis.port(), file.display());
    let locks = within(lock::connect(&url)).await.unwrap();
    let guard = within(locks.mutex("held").lock()).await.unwrap();
    user(">after").await;
    disconnect(&redis).await;
    assert_eq!(within(guard.lost()).await, Loss::Denied);
    let error = whole(&refused_lock(&locks).await);
    assert!(error.contains("authentication failed") && !error.contains("before"), "{error}");
    fs::write(&file, "after\n").unwrap();
    lock_again(&locks).await;
}

#[tokio::test]
async fn what_a_user_of_zookeeper_creates_is_its_own_unless_told_otherwise() {
    let zookeeper = ZooKeeper::start(1).await.unwrap();
    let port = zookeeper.ports()[0];
    let url = |user: &str, more: &str| format!("zk://{user}127.0.0.1:{port}/locks?tick_time=100ms{more}");
    let anna = within(lock::connect(&url("anna:secret@", ""))).await.unwrap();
    let guard = within(anna.mutex("a").lock()).await.unwrap();
    for other in ["", "anna:guess@", "bert:secret@"] {
        let locks = within(lock::connect(&url(other, ""))).await.unwrap();
        for refused in [within(locks.mutex("a").lock()).await, within(locks.mutex("new").lock()).await] {
            let error = whole(&refused.unwrap_err());
            assert!(error.contains("not authorized") && !error.contains("secret"), "{error}");
        }
    }
    let same = within(lock::connect(&url("anna:secret@", ""))).await.unwrap();
    assert!(within(same.mutex("a").try_lock()).await.unwrap().is_none());
    guard.release().await.unwrap();
    // Where everybody may look, and where everybody may lock.
    let shown = url("anna:secret@", "&acl=creator_all_anyone_read").replace("/locks", "/shown");
    let shown = within(lock::connect(&shown)).await.unwrap();
    let held = within(shown.mutex("a").lock()).await.unwrap();
    let nobody = within(lock::connect(&url("", "").replace("/locks", "/shown"))).await.unwrap();
    assert_eq!(within(nobody.inspect("a")).await.unwrap().holders.len(), 1);
    assert!(within(nobody.mutex("a").lock()).await.is_err());
    held.release().await.unwrap();
    let open = url("anna:secret@", "&acl=anyone_all").replace("/locks", "/open");
    let open = within(lock::connect(&open)).await.unwrap();
    within(open.mutex("a").lock()).await.unwrap().release().await.unwrap();
    let nobody = within(lock::connect(&url("", "").replace("/locks", "/open"))).await.unwrap();
    within(nobody.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_user_that_the_servers_of_zookeeper_know_signs_in_by_sasl_and_nobody_else() {
    let told = ZooKeeperOptions::default().with_user("anna", "secret").with_tls(Some(ServerCertificate::Good));
    let zookeeper = ZooKeeper::start_as_told(1, &[], told).await.unwrap();
    let (clear, encrypted) = (zookeeper.ports()[0], zookeeper.client_ports()[0]);
    let tls = settings(ClientCertificate::Good);
    for (user, refusal) in [("anna:secret@", None), ("anna:guess@", Some("uth")), ("bert:secret@", Some("uth"))] {
        let limits = "tick_time=100ms&sign_in=sasl&connect_timeout=5s";
        for url in [
            format!("zk://{user}127.0.0.1:{clear}?{limits}"),
            format!("zks://{user}127.0.0.1:{encrypted}?{limits}&{tls}"),
        ] {
            let locked = within(async { lock::connect(&url).await?.mutex("a").lock().await }).await;
            match (locked, refusal) {
                (Ok(guard), None) => {
                    // What it creates is that user's, and nobody else's.
                    let other = format!("zk://127.0.0.1:{clear}?tick_time=100ms");
                    let other = within(lock::connect(&other)).await.unwrap();
                    let error = whole(&within(other.mutex("a").lock()).await.unwrap_err());
                    assert!(error.contains("not authorized"), "{error}");
                    guard.release().await.unwrap();
                }
                (Ok(_), Some(_)) => panic!("signed in: {user}"),
                (Err(error), None) => panic!("{}", whole(&error)),
                (Err(error), Some(said)) => {
                    let error = whole(&error);
                    assert!(error.contains(said) && !error.contains("guess"), "{error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_laboratory_is_secured_by_tls_wherever_there_is_a_scheme_with_it() {
    let running = Deployment::named("redis").unwrap();
    let running = running
        .start_with(StartOptions { tls: Some(ServerCertificate::Good), users: true, ..StartOptions::default() })
        .await
        .unwrap();
    let url = running.plain_url();
    assert!(url.starts_with("rediss://program:secret@") && url.contains("cert_file="), "{url}");
    // Without a certificate, and in clear text, nobody comes in at that port.
    let (bare, _) = url.split_once("&cert_file").unwrap();
    assert!(refused(bare).await.contains("client certificate"));
    assert!(!refused(&url.replacen("rediss", "redis", 1)).await.is_empty());
}
