//! A program whose locks Prometheus sees: it takes locks until Ctrl-C, and serves `/metrics`.
//!
//! ```text
//! cargo run --features metrics --example metrics -- redis://127.0.0.1:6379 127.0.0.1:9000
//! curl http://127.0.0.1:9000/metrics
//! ```
//!
//! `docs/observability.md` lists the metrics; beside it are rules for alerts and a dashboard.

use std::{env, error::Error, net::SocketAddr, time::Duration};

use lock::{Clock, Locks};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

/// The upper bounds of the buckets of every histogram, in seconds: from a round trip in one data centre to a ttl.
const BUCKETS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

/// How many tasks contend for each lock.
const CONTENDERS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, address] = arguments.as_slice() else { return Err("usage: metrics URL ADDRESS".into()) };
    let address: SocketAddr = address.parse()?;
    // Before the first connection: what happens earlier is not counted. Without buckets the exporter makes summaries of
    // histograms, which cannot be added up over several processes.
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install()?;
    let locks = lock::connect(url).await?;
    println!("metrics at http://{address}/metrics");
    let (locking, holding) = (locks.clone(), locks.clone());
    tokio::select! {
        done = lock_and_release(locking) => done?,
        done = hold(holding) => done?,
        ended = tokio::signal::ctrl_c() => ended?,
    }
    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// Contends for one lock with itself, for as long as it may.
async fn lock_and_release(locks: Locks) -> Result<(), lock::Error> {
    let contenders = (0..CONTENDERS).map(|_| async {
        loop {
            let work = async {
                let guard = locks.mutex("examples/metrics/contended").lock().await?;
                Clock::boot().sleep(Duration::from_millis(5)).await;
                guard.release().await
            };
            try_again(work.await).await?;
        }
    });
    futures::future::try_join_all(contenders).await.map(|_: Vec<()>| ())
}

/// Holds a lock for as long as it may, so that there is something to renew.
async fn hold(locks: Locks) -> Result<(), lock::Error> {
    loop {
        let work = async {
            let guard = locks.mutex("examples/metrics/held").lock().await?;
            guard.lost().await;
            guard.release().await
        };
        try_again(work.await).await?;
    }
}

/// Goes on after what may be better later: an outage, or a lock that was lost.
async fn try_again(done: Result<(), lock::Error>) -> Result<(), lock::Error> {
    match done {
        Err(error) if error.is_temporary() => {
            eprintln!("{error}");
            Clock::boot().sleep(Duration::from_millis(100)).await;
            Ok(())
        }
        done => done,
    }
}
