//! etcd with users: who is not let in, or may not do something, is refused at once.

use std::{fs, time::Duration};

use etcd_client::{Client, ConnectOptions, DeleteOptions, GetOptions};
use lock_core::{Clock, Context, Error, Finding, Locks, LocksOptions, Password};
use lock_lab::{
    deployment::{Deployment, Running, StartOptions},
    proxy::{Proxy, answered_in_a_standstill},
};

use crate::{Config, Etcd, diagnose::diagnose};

/// A server with the users of docs/rights.md, and how that page's program connects.
async fn etcd() -> (Running, Config) {
    let deployment: Deployment = "etcd1".parse().unwrap();
    let running = deployment.start_with(StartOptions { users: true, ..StartOptions::default() }).await.unwrap();
    let mut config = Config::new([("127.0.0.1", running.ports()[0])]);
    config.user = Some(("program".to_owned(), Password::Text("secret".into())));
    config.response_timeout = Duration::from_secs(60);
    (running, config)
}

fn keys(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.key).collect()
}

#[tokio::test]
async fn who_is_not_let_in_is_refused_and_not_waited_for() {
    let (_running, program) = etcd().await;
    let well = diagnose(&program, &Context::current()).await.unwrap();
    assert!(well.is_reached() && well.findings.is_empty(), "{well:?}");
    let without: Deployment = "etcd1".parse().unwrap();
    let without = without.start().await.unwrap();

    let mut wrong = program.clone();
    wrong.user = Some(("program".to_owned(), Password::Text("wrong".into())));
    let unknown = Config { servers: vec![("127.0.0.1".to_owned(), without.ports()[0])], ..program };
    for refused in [wrong, unknown] {
        let error = Etcd::connect(refused.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        let found = diagnose(&refused, &Context::current()).await.unwrap();
        assert_eq!(keys(&found.findings), ["wrong-credentials"], "{found:?}");
    }
}

#[tokio::test]
async fn a_sign_in_that_is_answered_in_a_standstill_is_one() {
    let (running, mut program) = etcd().await;
    let way = Proxy::start(running.ports()[0]).await.unwrap();
    program.servers = vec![("127.0.0.1".to_owned(), way.port())];
    let (limit, context) = (program.connect_timeout, Context::current().with_clock(Clock::runtime()));
    answered_in_a_standstill(&[way], limit, Etcd::connect_in(program, context)).await.unwrap();
}

#[tokio::test]
async fn who_may_not_lock_is_refused_and_has_nothing_to_clean_up() {
    let (_running, program) = etcd().await;
    let elsewhere = Config { path: "/elsewhere".to_owned(), ..program.clone() };
    // etcd begins a session for anybody.
    let nobody = Config { user: None, ..program };
    for refused in [elsewhere, nobody] {
        let found = diagnose(&refused, &Context::current()).await.unwrap();
        assert_eq!(keys(&found.findings), ["no-look"], "{found:?}");
        let locks = Locks::new(Etcd::connect(refused).await.unwrap());
        for _ in 0..3 {
            let error = locks.mutex("a").lock().await.unwrap_err();
            assert!(matches!(error, Error::Refused { .. }), "{error:?}");
        }
        locks.close(Duration::from_secs(30)).await.unwrap();
    }
}

/// The administrator of docs/rights.md.
async fn administrator(config: &Config) -> Client {
    let options = ConnectOptions::new().with_user("root", "administrator");
    // The library's futures are of some 20 KiB each.
    Box::pin(Client::connect(config.addresses(), Some(options))).await.unwrap()
}

/// Locks that bridge no outage.
async fn connect(config: Config) -> Locks {
    let options = LocksOptions::default().with_outage_timeout(Duration::ZERO);
    Locks::with_options(Etcd::connect(config).await.unwrap(), options)
}

#[tokio::test]
async fn a_change_of_users_is_no_outage_for_those_who_are_there() {
    let (_running, program) = etcd().await;
    let mut administrator = administrator(&program).await;
    let locks = [connect(program.clone()).await, connect(program).await];
    for locks in &locks {
        locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    }
    administrator.user_add("another", "secret", None).await.unwrap();
    let held = locks[0].mutex("a").lock().await.unwrap();
    let mutex = locks[1].mutex("a");
    let waits = mutex.lock();
    let (_, waited) = tokio::join!(async { held.release().await.unwrap() }, waits);
    waited.unwrap().release().await.unwrap();
}

/// Else a release that finds nothing would be taken for one whose first request had done it.
#[tokio::test]
async fn what_is_refused_for_its_sign_in_was_not_sent() {
    let (_running, program) = etcd().await;
    let mut administrator = administrator(&program).await;
    let locks = connect(program).await;
    let held = locks.mutex("a").lock().await.unwrap();
    administrator.delete("/locks/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    administrator.user_add("another", "secret", None).await.unwrap();
    let released = held.release().await;
    assert!(matches!(released, Err(Error::Lost { .. })), "{released:?}");
}

#[tokio::test]
async fn a_password_that_changes_is_read_at_the_next_sign_in() {
    let (_running, mut program) = etcd().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    fs::write(&path, "secret\n").unwrap();
    program.user = Some(("program".to_owned(), Password::File { setting: "password_file", path: path.clone() }));
    let mut administrator = administrator(&program).await;
    let [locks, others] = [connect(program.clone()).await, connect(program).await];
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();

    administrator.user_change_password("program", "new").await.unwrap();
    let error = locks.mutex("a").lock().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    // Nothing was done, so there is nothing to clean up, for which it could not sign in.
    others.mutex("a").lock().await.unwrap_err();
    others.close(Duration::from_secs(30)).await.unwrap();
    fs::write(&path, "new\n").unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
}

/// Waits until so many contend for the lock `a`.
async fn contenders(config: &Config, count: i64) {
    let (clock, mut administrator) = (Clock::boot(), administrator(config).await);
    let look = async {
        let options = || GetOptions::new().with_prefix().with_count_only();
        while Box::pin(administrator.get("/locks/a/", Some(options()))).await.unwrap().count() != count {
            clock.sleep(Duration::from_millis(10)).await;
        }
    };
    clock.timeout(Duration::from_secs(30), look).await.expect("it comes to that");
}

#[tokio::test]
async fn an_acquisition_whose_answer_was_lost_is_cleaned_up_when_its_next_request_is_refused() {
    let (running, direct) = etcd().await;
    let way = Proxy::start(running.ports()[0]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    fs::write(&path, "secret\n").unwrap();
    let mut program = Config::new([("127.0.0.1", way.port())]);
    program.user = Some(("program".to_owned(), Password::File { setting: "password_file", path: path.clone() }));
    program.response_timeout = Duration::from_secs(60);
    let locks = connect(program).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();

    way.hold_replies();
    let mutex = locks.mutex("a");
    let acquisition = tokio::spawn(async move { mutex.lock().await });
    contenders(&direct, 1).await;
    administrator(&direct).await.user_change_password("program", "new").await.unwrap();
    // The answer that was held goes with its connection.
    way.cut();
    way.heal();
    let error = acquisition.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    fs::write(&path, "new\n").unwrap();
    contenders(&direct, 0).await;
    locks.close(Duration::from_secs(30)).await.unwrap();
}
