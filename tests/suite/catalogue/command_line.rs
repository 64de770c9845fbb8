//! The part of the catalogue that concerns the program `lock`. The package of the program builds it, with its own tests.

use crate::common::{
    Running, output,
    services::{Service, on_each_service},
    within,
};

on_each_service! {
    a_lock_that_is_lost_in_silence_ends_the_command_and_all_that_it_started,
}

#[tokio::test]
async fn a_waiter_that_is_stopped_beyond_its_session_does_not_run_beside_the_next_holder() {
    let service = Service::zookeeper().await;
    stopped_waiter(&service.url()).await;
}

#[tokio::test]
async fn a_waiter_that_is_stopped_beyond_its_turn_on_redis_does_not_run_beside_the_next_holder() {
    let service = Service::redis().await;
    stopped_waiter(&service.url()).await;
}

/// Ends when its input does.
const UNTIL_EOF: &str = "echo held; cat >/dev/null";

/// A command that follows SIGTERM at once, and one that it has started, which does not, and is there for two minutes.
const STUBBORN: &str = "sh -c 'trap \"\" TERM; echo deep; for second in $(seq 120); do sleep 1; done' & wait";

/// A waiter is stopped while it waits. The lock comes free, its turn comes and passes, and the one behind it holds the lock
/// by the time that it goes on.
async fn stopped_waiter(url: &str) {
    let hold = ["run", "a", "--", "sh", "-c", UNTIL_EOF];
    let mut first = Running::start(url, &hold);
    first.expect("held").await;
    let mut stopped = Running::start(url, &hold);
    waits(url, &stopped).await;
    let mut next = Running::start(url, &hold);
    waits(url, &next).await;
    // So shortly before the release that it still counts as alive: the news that it holds the lock wait for it.
    stopped.signal("STOP");
    first.close_stdin();
    assert_eq!(first.end().await.code(), Some(0));
    next.expect("held").await;

    stopped.signal("CONT");
    // Its own turn is over, as it finds out: it goes on waiting, until the other one has ended.
    waits(url, &stopped).await;
    next.close_stdin();
    assert_eq!(next.end().await.code(), Some(0));
    stopped.expect("held").await;
    stopped.close_stdin();
    assert_eq!(stopped.end().await.code(), Some(0), "{}", stopped.stderr().await);
}

/// Waits until that waiter stands in line.
async fn waits(url: &str, waiter: &Running) {
    let pid = format!("pid={}", waiter.pid());
    let is_waiting = |status: &str| status.lines().any(|line| line.contains("  waits ") && line.contains(&pid));
    within(async { while !is_waiting(&output(url, &["status", "a"]).await.stdout) {} }).await;
}

/// The servers are frozen: the connection stays open, and no answer says that the lock is lost. The command, its shell, and
/// what that has started in the background are ended all the same, while the servers are still silent.
async fn a_lock_that_is_lost_in_silence_ends_the_command_and_all_that_it_started(service: Service) {
    let mut holder = Running::start(&service.url(), &["run", "a", "--kill-after", "200ms", "--", "sh", "-c", STUBBORN]);
    holder.expect("deep").await;
    service.freeze();
    // Nobody has the output open any more.
    holder.all_end().await;
    assert_eq!(holder.end().await.code(), Some(76));
}
