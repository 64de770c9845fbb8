//! The example program with metrics, on real servers, before a real Prometheus that is asked what the dashboard and the alert
//! rules ask.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lock::Clock;
use lock_lab::servers::{Prometheus, Redis, RedisNodes, ZooKeeper, free_port};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// Generous: it only ends a test that has failed.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at what a server says.
const PAUSE: Duration = Duration::from_millis(100);

fn docs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/observability").join(file)
}

/// The example with locks of `url` and metrics on `port`.
fn start(url: &str, port: u16) -> Child {
    let mut command = Command::new(crate::example::program("metrics"));
    command.arg(url).arg(format!("127.0.0.1:{port}")).stdout(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    command.spawn().expect("the example runs")
}

/// Ends the example as Ctrl-C does.
async fn interrupt(mut example: Child) {
    let pid = Pid::from_raw(example.id().expect("it runs").cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(Clock::boot().timeout(LIMIT, example.wait()).await.expect("it ends in time").unwrap().success());
}

/// Every query of the dashboard, with all backends chosen.
fn dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(docs("dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$backend", ".*")).collect()
}

/// The metrics that a query names.
fn metrics_of(query: &str) -> impl Iterator<Item = &str> {
    query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("lock_"))
}

/// Waits until `query` has a number: a quotient of rates has one when both have risen.
async fn wait_for_data(prometheus: &Prometheus, query: &str) {
    let has_data = async {
        loop {
            let series = prometheus.query(query).await.unwrap();
            if series.iter().any(|series| series["value"][1].as_str().is_some_and(|value| value != "NaN")) {
                return;
            }
            Clock::boot().sleep(PAUSE).await;
        }
    };
    Clock::boot().timeout(LIMIT, has_data).await.unwrap_or_else(|| panic!("no data: {query}"));
}

#[tokio::test]
async fn a_prometheus_has_data_for_each_query_of_the_dashboard_and_of_the_alert_rules() {
    let checked = Command::new("promtool").args(["check", "rules"]).arg(docs("alerts.yml")).output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let (mut redis, nodes) = (Redis::start().await.unwrap(), RedisNodes::start(3).await.unwrap());
    let zookeeper = ZooKeeper::start(1).await.unwrap();
    // Short leases are renewed often, and none ends on a machine that stands still. Nobody gives up waiting for Redis.
    let urls = [
        format!("{}?ttl=6s&response_timeout=20s&outage_timeout=1h", redis.url()),
        format!("{}?ttl=6s&node_timeout=20s", nodes.url()),
        zookeeper.url(),
    ];
    let ports = urls.each_ref().map(|_| free_port());
    let examples: Vec<Child> = urls.iter().zip(ports).map(|(url, port)| start(url, port)).collect();
    let prometheus = Prometheus::start(&ports, &docs("alerts.yml")).await.unwrap();

    let queries = dashboard();
    assert!(queries.len() >= 10, "{queries:?}");
    for query in &queries {
        wait_for_data(&prometheus, query).await;
    }
    for backend in ["redis", "redlock", "zk"] {
        for metric in ["lock_acquisitions_total", "lock_validity_left_seconds_bucket", "lock_held"] {
            wait_for_data(&prometheus, &format!("{metric}{{backend=\"{backend}\"}} > 0")).await;
        }
    }
    wait_for_data(&prometheus, "lock_quorum_nodes{backend=\"redlock\", state=\"answering\"} == 3").await;

    // Each rule is evaluated without an error, whether it fires or not, and all that it looks at is there.
    let evaluated = async {
        loop {
            let rules = prometheus.alert_rules().await.unwrap();
            if !rules.is_empty() && rules.iter().all(|[.., health]| health == "ok") {
                return rules;
            }
            assert!(rules.iter().all(|[.., health]| health != "err"), "{rules:?}");
            Clock::boot().sleep(PAUSE).await;
        }
    };
    let rules = Clock::boot().timeout(LIMIT, evaluated).await.expect("each rule is evaluated");
    assert_eq!(rules.len(), 8);
    for [name, query, _] in &rules {
        prometheus.query(query).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        for metric in metrics_of(query) {
            wait_for_data(&prometheus, metric).await;
        }
    }

    // A lock that somebody deletes is a loss that the first rule sees.
    redis.ask::<String>("FLUSHALL", &[]).await.unwrap();
    wait_for_data(&prometheus, "sum by (reason) (increase(lock_losses_total{backend=\"redis\"}[5m])) > 0").await;

    // A server that is down shows at once, although those who wait bridge the outage and none of them has failed.
    let unavailable = rules.iter().find(|[name, ..]| name == "LockBackendUnavailable");
    let [_, query, _] = unavailable.expect("there is a rule for it");
    // Of the others, one may have been late on a machine that stood still.
    let of_redis = format!("({query}) and on (backend) lock_held{{backend=\"redis\"}}");
    assert!(prometheus.query(&of_redis).await.unwrap().is_empty(), "Redis is up");
    redis.kill();
    wait_for_data(&prometheus, &of_redis).await;
    redis.restart().await.unwrap();
    for example in examples {
        interrupt(example).await;
    }
}
