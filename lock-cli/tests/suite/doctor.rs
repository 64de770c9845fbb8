//! `lock doctor` on set-ups that are wrong, each built for real, and on some that are right.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use lock_lab::{
    deployment::{Deployment, StartOptions},
    proxy::Proxy,
    servers::{Cluster, Redis, RedisNodes, RedisOptions, Sentinel, ServerCertificate, ZooKeeper},
};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};

use crate::common::{Output, finish, lock, output, within};

/// Something has to be repaired.
const PROBLEMS: i32 = 1;
/// Nobody could be asked.
const UNAVAILABLE: i32 = 69;

/// How often the doctor is asked again because this machine stood still while it measured.
const STALLED: u32 = 5;

/// What the doctor found.
#[derive(Debug)]
struct Diagnosis {
    status: Option<i32>,
    /// Key, severity and subject of each finding.
    findings: Vec<[String; 3]>,
    /// What is said of each.
    #[expect(dead_code, reason = "a test that fails shows it")]
    whats: Vec<String>,
}

impl Diagnosis {
    fn has(&self, key: &str, severity: &str, subject: &str) -> bool {
        self.findings.iter().any(|[known, how, about]| known == key && how == severity && about.contains(subject))
    }
}

async fn doctor(url: &str) -> Diagnosis {
    let ran = output("", &["doctor", url, "--json"]).await;
    let seen: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{url}: {error}: {ran:?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = seen["findings"].as_array().unwrap().iter();
    for finding in findings.clone() {
        assert!(!text(&finding["what"]).is_empty() && !text(&finding["cure"]).is_empty(), "{finding}");
    }
    let whats = findings.clone().map(|finding| text(&finding["what"])).collect();
    let findings = findings.map(|finding| ["key", "severity", "subject"].map(|field| text(&finding[field]))).collect();
    Diagnosis { status: ran.status, findings, whats }
}

/// What the doctor finds at a moment at which this machine does not stand still, which it would say, too; or in the end, if there
/// is no such moment.
async fn calm_diagnosis(url: &str) -> Diagnosis {
    let mut seen = doctor(url).await;
    for _ in 0..STALLED {
        if !seen.findings.iter().any(|[key, ..]| ["host-stalls", "short-lease"].contains(&key.as_str())) {
            break;
        }
        seen = doctor(url).await;
    }
    seen
}

/// Asserts that the doctor finds a problem, and says so by its exit status.
async fn finds(url: &str, key: &str, subject: &str) {
    let seen = doctor(url).await;
    assert!(seen.has(key, "problem", subject), "{url}: {key} of {subject} is not in {seen:?}");
    assert!(matches!(seen.status, Some(PROBLEMS | UNAVAILABLE)), "{url}: {seen:?}");
}

/// Asserts that the doctor warns of something, and finds no problem.
async fn warns(url: &str, key: &str, subject: &str) {
    let seen = doctor(url).await;
    assert!(seen.has(key, "warning", subject), "{url}: {key} of {subject} is not in {seen:?}");
    assert_eq!(seen.status, Some(0), "{url}: {seen:?}");
}

fn at(server: &Redis) -> String {
    format!("127.0.0.1:{}", server.port())
}

async fn redis() -> Redis {
    Redis::start().await.unwrap()
}

#[tokio::test]
async fn a_server_that_is_wrong_for_what_its_url_says_is_found() {
    let (primary, replica) = (redis().await, redis().await);
    () = replica.ask("REPLICAOF", &["127.0.0.1", &primary.port().to_string()]).await.unwrap();
    finds(&replica.url(), "is-a-replica", &at(&replica)).await;
    let evicting = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]).await.unwrap();
    finds(&evicting.url(), "evicts-keys", &at(&evicting)).await;
    finds(&format!("{}?min_replicas=1", redis().await.url()), "unreachable", "127.0.0.1").await;
    let alone = redis().await;
    finds(&format!("{}?min_replicas=2", alone.url()), "too-few-replicas", &at(&alone)).await;
    finds(&format!("redis+cluster://{}", at(&alone)), "not-a-cluster-node", &at(&alone)).await;
}

#[tokio::test]
async fn whoever_listens_there_and_is_none_of_the_servers_is_found() {
    let other = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = other.local_addr().unwrap().to_string();
    let hangs_up = tokio::spawn(async move {
        loop {
            drop(other.accept().await);
        }
    });
    finds(&format!("redis://{address}"), "wrong-service", &address).await;
    finds(&format!("zk://{address}?connect_timeout=1s"), "wrong-service", &address).await;
    hangs_up.abort();
    // Who has a port and does not listen refuses all, and nobody else gets it meanwhile.
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = bound.local_addr().unwrap().to_string();
    let seen = doctor(&format!("redis://{silent}")).await;
    assert!(seen.has("unreachable", "problem", &silent) && seen.status == Some(UNAVAILABLE), "{seen:?}");
}

#[tokio::test]
async fn a_user_who_may_not_do_what_is_needed_is_found() {
    let server = redis().await;
    () = server.ask("ACL SETUSER", &["orders", "on", ">geheim", "~*", "&*", "+@all", "-evalsha"]).await.unwrap();
    let with = |password: &str| format!("redis://orders:{password}@{}", at(&server));
    finds(&with("geheim"), "missing-right", &at(&server)).await;
    finds(&with("falsch"), "wrong-credentials", &at(&server)).await;
    for password in ["geheim", "falsch"] {
        let ran = output("", &["doctor", &with(password)]).await;
        assert!(!format!("{ran:?}").contains(password), "{ran:?}");
    }
}

#[tokio::test]
async fn a_wall_clock_that_differs_is_found() {
    let server = Redis::start_as_told(RedisOptions::default().with_own_clock(true)).await.unwrap();
    server.set_clock_ahead(Duration::from_secs(600)).unwrap();
    let seen = doctor(&server.url()).await;
    assert!(seen.findings.iter().any(|[key, ..]| key == "clock-differs"), "{seen:?}");
}

#[tokio::test]
async fn a_node_of_a_cluster_behind_a_url_of_one_server_is_found() {
    let cluster = Cluster::start().await.unwrap();
    finds(&cluster.nodes()[0].url(), "cluster-node", &at(&cluster.nodes()[0])).await;
    let seen = doctor(&cluster.url()).await;
    assert_eq!(seen.status, Some(0), "{seen:?}");
}

#[tokio::test]
async fn sentinels_that_know_no_such_service_are_found() {
    let mut sentinel = Sentinel::start().await.unwrap();
    let seen = doctor(&sentinel.url()).await;
    assert_eq!(seen.status, Some(0), "{seen:?}");
    finds(&sentinel.url().replace("/lab", "/labour"), "unknown-service", "").await;
    sentinel.kill_sentinel(0);
    sentinel.kill_sentinel(1);
    finds(&sentinel.url(), "too-few-sentinels", "").await;
}

#[tokio::test]
async fn a_deployment_of_redlock_that_cannot_work_is_found() {
    let nodes = RedisNodes::start_unmarked(3).await.unwrap();
    finds(&nodes.url(), "not-initialized", "127.0.0.1").await;
    let mut nodes = RedisNodes::start(3).await.unwrap();
    let seen = doctor(&nodes.url()).await;
    assert_eq!(seen.status, Some(0), "{seen:?}");
    let [first, second, third] = [0, 1, 2].map(|node| at(&nodes.nodes()[node]));
    let twice = format!("redlock://{first},{},{third}", first.replace("127.0.0.1", "localhost"));
    finds(&twice, "same-server-twice", "localhost").await;
    finds(&format!("{}?max_ttl=5s", nodes.url()), "differs-from-deployment", "").await;
    () = nodes.nodes()[1].ask("REPLICAOF", &["127.0.0.1", &nodes.ports()[0].to_string()]).await.unwrap();
    finds(&nodes.url(), "is-a-replica", &second).await;
    () = nodes.nodes()[1].ask("REPLICAOF", &["NO", "ONE"]).await.unwrap();
    nodes.nodes_mut()[2].kill();
    finds(&nodes.url(), "unreachable", &third).await;
    nodes.nodes_mut()[2].restart().await.unwrap();
    finds(&nodes.url(), "not-initialized", &third).await;
    assert!(doctor(&nodes.url()).await.has("bare-majority", "warning", "deployment"));
    nodes.nodes_mut()[1].kill();
    finds(&nodes.url(), "no-majority", "deployment").await;
}

#[tokio::test]
async fn nodes_that_forget_and_are_said_not_to_are_found() {
    let settings = [("restart_quarantine", "off")];
    let nodes = RedisNodes::start_as(3, RedisOptions::default(), &settings).await.unwrap();
    let url = format!("{}?restart_quarantine=off", nodes.url());
    finds(&url, "forgets-without-quarantine", "127.0.0.1").await;
    let durable = RedisNodes::start_as(3, RedisOptions::default().with_durable(true), &settings).await.unwrap();
    let seen = doctor(&format!("{}?restart_quarantine=off", durable.url())).await;
    assert_eq!(seen.status, Some(0), "{seen:?}");
}

#[tokio::test]
async fn an_ensemble_that_does_not_do_what_its_url_says_is_found() {
    let short = ZooKeeper::start_with(1, &[("maxSessionTimeout", "4000")]).await.unwrap();
    let server = format!("127.0.0.1:{}", short.ports()[0]);
    warns(&format!("{}?tick_time=100ms&session_timeout=10s", short.url()), "session-timeout", &server).await;
    finds(&format!("{}?tick_time=2s&session_timeout=10s", short.url()), "session-timeout", &server).await;
    finds(&format!("{}?tick_time=50ms&session_timeout=1s", short.url()), "tick-time", &server).await;
    let other = ZooKeeper::start(1).await.unwrap();
    let two = format!("{},127.0.0.1:{}?tick_time=100ms&session_timeout=4s", short.url(), other.ports()[0]);
    finds(&two, "different-ensembles", &other.ports()[0].to_string()).await;
    assert!(doctor(&two).await.has("even-servers", "warning", "hosts"));
    // The other server grants a session that no standstill ends.
    let closed =
        format!("zk://anna:secret@127.0.0.1:{}/zookeeper2?tick_time=100ms&session_timeout=60s", other.ports()[0]);
    let made = lock::connect(&closed).await.unwrap();
    made.mutex("a").lock().await.unwrap().release().await.unwrap();
    finds(&closed.replace("anna", "bert"), "root-not-writable", "/zookeeper2").await;
}

#[tokio::test]
async fn a_service_that_is_well_has_no_problem() {
    for key in ["redis", "redlock3", "zk1", "etcd1"] {
        for secured in [false, true] {
            let tls = secured.then_some(ServerCertificate::Good);
            let options = StartOptions { tls, users: secured, ..StartOptions::default() };
            let running = Deployment::named(key).unwrap().start_with(options).await.unwrap();
            // The first handshake of a server that has just started takes its time on a busy machine.
            let url = running.plain_url();
            let separator = if url.contains('?') { '&' } else { '?' };
            let seen = calm_diagnosis(&format!("{url}{separator}connect_timeout=30s")).await;
            assert_eq!(seen.status, Some(0), "{key}, secured: {secured}: {seen:?}");
            assert!(seen.findings.iter().all(|[_, severity, _]| severity != "warning"), "{key}: {seen:?}");
        }
    }
}

/// The client library gives up a try to connect after two fifths of the session time-out.
#[tokio::test]
async fn a_server_that_is_slow_is_asked_for_as_long_as_connecting_may_take() {
    let server = ZooKeeper::start(1).await.unwrap();
    let proxy = Proxy::start(server.ports()[0]).await.unwrap();
    let url = format!("zk://127.0.0.1:{}?tick_time=100ms&session_timeout=4s&connect_timeout=60s", proxy.port());
    proxy.hold_replies();
    let (seen, ()) = tokio::join!(
        doctor(&url),
        within(async {
            // The first try was given up by the second one.
            while proxy.requests().bursts < 2 {
                lock::Clock::boot().sleep(Duration::from_millis(5)).await;
            }
            proxy.heal();
        })
    );
    assert!(seen.findings.iter().all(|[key, ..]| key != "unreachable"), "{seen:?}");
}

/// A server may accept a connection before it serves clients, and hang up.
#[tokio::test]
async fn a_server_that_hung_up_once_is_asked_again() {
    let server = ZooKeeper::start(1).await.unwrap();
    let proxy = Proxy::start(server.ports()[0]).await.unwrap();
    proxy.cut_at_reply(0);
    let seen = calm_diagnosis(&format!("zk://127.0.0.1:{}?tick_time=100ms&connect_timeout=60s", proxy.port())).await;
    assert_eq!(seen.status, Some(0), "{seen:?}");
}

#[tokio::test]
async fn it_says_for_people_what_it_says_in_json_and_refuses_wrong_settings() {
    let server = redis().await;
    let Output { status, stdout, .. } = output(&server.url(), &["doctor"]).await;
    assert!(status == Some(0) && stdout.contains("0 problems") && stdout.contains("round trip"), "{stdout}");
    let refused = output("", &["doctor", "redis://h?tll=5s"]).await;
    assert!(refused.status == Some(78) && refused.stderr.contains("`ttl`, probably"), "{refused:?}");
    let mut nobody = lock("", &["doctor"]);
    let refused = finish(nobody.env("LOCK_REQUIRE_SERVICE", "1")).await;
    assert_eq!(refused.status, Some(78), "{refused:?}");
}

#[tokio::test]
async fn the_nodes_of_redlock_are_shown_with_what_is_missing_for_a_majority() {
    let mut nodes = RedisNodes::start_as(3, RedisOptions::default(), &[("max_ttl", "1h")]).await.unwrap();
    let shown = output(&nodes.url(), &["redlock", "status"]).await;
    assert!(shown.status == Some(0) && shown.stdout.contains("3 of 3"), "{shown:?}");
    nodes.nodes_mut()[0].kill();
    nodes.nodes_mut()[1].restart().await.unwrap();
    nodes.mark_again().await.unwrap_err();
    let shown = output(&nodes.url(), &["redlock", "status"]).await;
    assert!(shown.status == Some(UNAVAILABLE) && shown.stdout.contains("no majority"), "{shown:?}");
    let json = output(&nodes.url(), &["redlock", "status", "--json"]).await;
    let _: Value = serde_json::from_str(&json.stdout).unwrap();
    // Nobody calls a lock free that nobody can be granted.
    let status = output(&nodes.url(), &["status", "a"]).await;
    assert!(status.status == Some(UNAVAILABLE) && !status.stdout.contains("free"), "{status:?}");
}

/// The keys of the findings that these sources make, each with a severity.
fn findings_of(dir: &Path, found: &mut BTreeSet<(String, &'static str)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            findings_of(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let shipped = text.split("#[cfg(test)]").next().unwrap();
        for severity in ["problem", "warning", "note"] {
            for rest in shipped.split(&format!("Finding::{severity}(")).skip(1) {
                let key = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                found.extend(key.map(|key| (key.to_owned(), severity)));
            }
        }
    }
}

#[test]
fn the_page_lists_each_kind_of_finding_with_its_severities() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut made = BTreeSet::from([("unreachable".to_owned(), "problem")]);
    for package in ["lock-core", "lock-redis", "lock-redlock", "lock-zk", "lock-etcd"] {
        findings_of(&root.join(package).join("src"), &mut made);
    }
    let page = fs::read_to_string(root.join("docs/doctor.md")).unwrap();
    let mut listed = BTreeSet::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split('|').map(str::trim);
        let key = cells.next().unwrap().trim_end_matches('`').to_owned();
        let severities = cells.next().unwrap();
        let severities = ["problem", "warning", "note"].into_iter().filter(|severity| severities.contains(severity));
        listed.extend(severities.map(|severity| (key.clone(), severity)));
    }
    let [missing, unknown] = [made.difference(&listed), listed.difference(&made)].map(Vec::from_iter);
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; nowhere else: {unknown:?}");
}
