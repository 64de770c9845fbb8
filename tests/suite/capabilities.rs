//! docs/capabilities.md is what the backends say of themselves: it is written from `capabilities()`, on running servers,
//! and this test fails when the two differ.

use std::{fmt::Write, fs, path::PathBuf, time::Duration};

use lock::{Capabilities, Feature};
use lock_lab::deployment::Deployment;

/// Set to write the file instead of comparing it: `cargo xtask capabilities` does.
const WRITE: &str = "LOCK_WRITE_CAPABILITIES";

/// A backend in one way to use it.
struct Column {
    title: &'static str,
    capabilities: Capabilities,
}

/// Every backend of the facade, in every way that changes what it promises.
async fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    for deployment in Deployment::all() {
        let Some(title) = deployment.column else { continue };
        let running = deployment.start().await.unwrap_or_else(|error| panic!("{deployment}: {error}"));
        let locks = lock::connect(&running.plain_url()).await.unwrap_or_else(|error| panic!("{title}: {error}"));
        let capabilities = locks.capabilities();
        locks.close(Duration::from_secs(5)).await.unwrap_or_else(|error| panic!("{title}: {error}"));
        columns.push(Column { title, capabilities });
    }
    columns
}

/// What each feature means to a program, in a line.
fn meaning(feature: Feature) -> &'static str {
    match feature {
        Feature::Fifo => "whoever asked first is granted first",
        Feature::Queue => "`inspect` shows who waits, and where in line",
        Feature::Ttl => "`mutex(n).ttl(t)`: how long the server keeps this lock without a renewal",
        Feature::Expiry => "a holder that was killed, stopped or cut off loses the lock by itself",
        Feature::ReadWrite => "`rwlock(n)`: readers share, writers are not starved",
        Feature::Downgrade => "a writer goes on as a reader, and no other writer comes between",
        Feature::Semaphore => "`semaphore(n, permits)`",
        Feature::LockDelay => "`mutex(n).lock_delay(t)`: closed for a while after a holder was lost",
        Feature::ClocklessToken => {
            "fencing tokens rise even if the servers lost their memory and their clocks are wrong"
        }
        Feature::Listing => "`locks.list(prefix)`: the names that are held",
        Feature::ForcedRelease => "`locks.revoke(name, token)`: ends that one grant, whoever holds it",
        other => panic!("{other} has no line here"),
    }
}

fn document(columns: &[Column]) -> String {
    let mut text = String::from(
        "# What each backend can do\n\nThis file is written by `cargo xtask capabilities` from what the backends say of \
         themselves, and a test compares the two.\nWhat is a **no** here is refused with `Error::Unsupported`, which names \
         the feature and the backend; a program can ask\nbeforehand with `locks.require(Feature::...)`. Each yes has its cases \
         in the conformance suite, on real servers, and\neach no has one that checks the refusal.\n\n",
    );
    let titles: Vec<_> = columns.iter().map(|column| column.title).collect();
    let _ = writeln!(text, "| feature | {} | what it means |", titles.join(" | "));
    let _ = writeln!(text, "|---|{}---|", ":-:|".repeat(columns.len()));
    for feature in Feature::ALL {
        let cells: Vec<_> = columns
            .iter()
            .map(|column| if column.capabilities.supports(*feature) { "yes" } else { "**no**" })
            .collect();
        let _ = writeln!(text, "| {feature} | {} | {} |", cells.join(" | "), meaning(*feature));
    }
    text.push_str("\nThe ttls that a single lock may ask for:\n\n");
    for column in columns {
        let range = column.capabilities.ttl.as_ref().map_or_else(
            || "none: it has no ttl of its own".to_owned(),
            |range| format!("{:?} to {:?}", range.start(), range.end()),
        );
        let _ = writeln!(text, "* {}: {range}", column.title);
    }
    text.push_str(
        "\nEverything else is written once, on top of what every backend has, and is the same on all of them: mutexes with \
         and\nwithout waiting, wait limits, cancellation at any await, fencing tokens with an era, validity by the holder's \
         own clock,\nre-entrant locks, locks of several names, elections, guarded operations, and a maximum holding time.\n",
    );
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_capabilities_says_what_the_backends_say() {
    let columns = columns().await;
    for scheme in lock::registry().schemes() {
        let shown = columns.iter().any(|column| column.capabilities.backend == scheme.name);
        assert!(shown, "the backend {} has no column", scheme.name);
    }
    let (file, now) = (PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/capabilities.md"), document(&columns));
    if std::env::var_os(WRITE).is_some() {
        fs::write(&file, now).unwrap();
        return;
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == now,
        "docs/capabilities.md is not what the backends say; run: cargo xtask capabilities\n\n{now}"
    );
}
