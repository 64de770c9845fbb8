//! The transactions on a real server.

use etcd_client::Client;
use lock_lab::deployment::{Deployment, Running};

use super::*;

/// A running etcd server with a client of it and an etcd lease, for tests of the transactions.
struct TestServer {
    _running: Running,
    client: Client,
    session: i64,
}

impl TestServer {
    async fn start() -> Self {
        let deployment: Deployment = "etcd1".parse().unwrap();
        let running = deployment.start().await.unwrap();
        let mut client = Client::connect([format!("127.0.0.1:{}", running.ports()[0])], None).await.unwrap();
        let session = client.lease_grant(60, None).await.unwrap().id();
        Self { _running: running, client, session }
    }

    fn attempt(&self, number: u64) -> Attempt {
        Attempt::new("/locks", &LockName::new("a/b").unwrap(), self.session, number)
    }

    async fn does(&mut self, transaction: Txn) -> TxnResponse {
        self.client.txn(transaction).await.unwrap()
    }

    async fn enter(&mut self, attempt: &Attempt, waits: bool) -> AttemptState {
        attempt.entered(&self.does(attempt.enter(b"", waits)).await, waits)
    }

    async fn look(&mut self, attempt: &Attempt, revision: i64) -> AttemptState {
        attempt.looked(&self.does(attempt.look(revision)).await, revision)
    }
}

/// The create revision of the key of who holds.
fn holds(standing: &AttemptState) -> i64 {
    let AttemptState::Holds(revision) = standing else { panic!("{standing:?}") };
    *revision
}

/// The create revision of the key of who waits, and the key that it waits for.
fn waits_for(standing: AttemptState) -> (i64, String) {
    let AttemptState::Behind { revision, before, .. } = standing else { panic!("{standing:?}") };
    (revision, before)
}

#[tokio::test]
async fn those_who_wait_hold_in_the_order_of_their_arrival_and_by_numbers_that_rise() {
    let mut server = TestServer::start().await;
    let [first, second, third] = [1, 2, 3].map(|number| server.attempt(number));
    let held = holds(&server.enter(&first, true).await);
    let (of_second, before) = waits_for(server.enter(&second, true).await);
    assert_eq!(before, first.key());
    let (of_third, before) = waits_for(server.enter(&third, true).await);
    assert_eq!(before, second.key());
    assert!(server.does(second.leave(of_second)).await.succeeded());
    assert_eq!(waits_for(server.look(&third, of_third).await).1, first.key());
    assert_eq!(server.look(&second, of_second).await, AttemptState::Gone);
    assert!(server.does(first.leave(held)).await.succeeded());
    assert!(holds(&server.look(&third, of_third).await) > held);
}

#[tokio::test]
async fn one_that_does_not_wait_enters_an_empty_line_only_and_may_ask_twice() {
    let mut server = TestServer::start().await;
    let [holder, other] = [1, 2].map(|number| server.attempt(number));
    let held = holds(&server.enter(&holder, false).await);
    assert_eq!(server.enter(&holder, false).await, AttemptState::Holds(held));
    assert_eq!(server.enter(&other, false).await, AttemptState::Refused);
    server.does(holder.leave(held)).await;
    holds(&server.enter(&other, false).await);
}

#[tokio::test]
async fn one_that_entered_twice_has_its_first_place() {
    let mut server = TestServer::start().await;
    let [holder, waiter, last] = [1, 2, 3].map(|number| server.attempt(number));
    server.enter(&holder, true).await;
    let (revision, _) = waits_for(server.enter(&waiter, true).await);
    server.enter(&last, true).await;
    assert_eq!(server.enter(&waiter, true).await, AttemptState::InLine(revision));
    assert_eq!(waits_for(server.look(&waiter, revision).await).1, holder.key());
}

#[tokio::test]
async fn a_late_request_of_an_attempt_that_was_undone_takes_nothing() {
    let mut server = TestServer::start().await;
    let [undone, left] = [1, 2].map(|number| server.attempt(number));
    server.does(undone.undo()).await;
    assert_eq!(server.enter(&undone, true).await, AttemptState::Gone);
    // It was sent twice, and one of the two is on its way still.
    left.sent().store(2, Ordering::Relaxed);
    let held = holds(&server.enter(&left, true).await);
    assert!(server.does(left.leave(held)).await.succeeded());
    assert_eq!(server.enter(&left, true).await, AttemptState::Gone);
    assert!(!server.does(left.leave(held)).await.succeeded());
}

#[tokio::test]
async fn a_key_that_was_deleted_and_that_a_late_request_made_again_gives_no_place_and_does_not_stay() {
    let mut server = TestServer::start().await;
    let [holder, waiter, other] = [1, 2, 3].map(|number| server.attempt(number));
    let held = holds(&server.enter(&holder, true).await);
    // It was sent twice, and one of the two is on its way still.
    waiter.sent().store(2, Ordering::Relaxed);
    let (place, _) = waits_for(server.enter(&waiter, true).await);
    server.client.delete(waiter.key(), None).await.unwrap();
    waits_for(server.enter(&other, true).await);
    waits_for(server.enter(&waiter, true).await);
    assert!(server.does(holder.leave(held)).await.succeeded());
    // The other one holds.
    assert_eq!(server.look(&waiter, place).await, AttemptState::Gone);
    assert!(!server.does(waiter.leave(place)).await.succeeded());
    let left = server.client.get(waiter.key(), None).await.unwrap();
    assert!(left.kvs().is_empty());
}

#[tokio::test]
async fn a_late_request_to_leave_spares_the_key_of_the_next_attempt_with_that_number() {
    let mut server = TestServer::start().await;
    let [first, next] = [server.attempt(1), server.attempt(1)];
    let of_first = holds(&server.enter(&first, true).await);
    assert!(server.does(first.leave(of_first)).await.succeeded());
    let of_next = holds(&server.enter(&next, true).await);
    assert!(!server.does(first.leave(of_first)).await.succeeded());
    assert_eq!(server.look(&next, of_next).await, AttemptState::Holds(of_next));
}

#[tokio::test]
async fn a_forced_release_deletes_the_key_that_was_made_at_its_revision_and_no_other() {
    let mut server = TestServer::start().await;
    let holder = server.attempt(1);
    let revision = holds(&server.enter(&holder, true).await);
    let (directory, id) = holder.key().rsplit_once('/').map(|(path, id)| (format!("{path}/"), id.to_owned())).unwrap();
    for (other, is_ended) in [(revision - 1, false), (revision + 1, false), (revision, true), (revision, false)] {
        assert_eq!(server.does(revoke(&directory, &id, other)).await.succeeded(), is_ended, "{other}");
    }
}

#[test]
fn a_key_leads_back_to_its_name_and_a_beginning_of_names_to_one_of_keys() {
    for name in ["a", "a/b", "%", "{*}", "\u{1f512}"] {
        let name = LockName::new(name).unwrap();
        let key = Attempt::new("/locks", &name, 1, 2).key().to_owned();
        assert_eq!(name_of("/locks", key.as_bytes()), Some(name));
    }
    assert!(
        Attempt::new("/locks", &LockName::new("a/b").unwrap(), 1, 2).key().starts_with(&names_from("/locks", "a/"))
    );
    assert_eq!((names_from("/locks", ""), name_of("/locks", b"/locks/.undone/1-2")), ("/locks/".to_owned(), None));
}
