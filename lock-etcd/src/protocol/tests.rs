//! The transactions on a real server.

use etcd_client::Client;
use lock_lab::deployment::{Deployment, Running};

use super::*;

/// A server, a client of it, and a session.
struct Server {
    _running: Running,
    client: Client,
    session: i64,
}

impl Server {
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

    async fn enter(&mut self, attempt: &Attempt, waits: bool) -> Standing {
        attempt.entered(&self.does(attempt.enter(b"", waits)).await, waits)
    }

    async fn look(&mut self, attempt: &Attempt, revision: i64) -> Standing {
        attempt.looked(&self.does(attempt.look(revision)).await)
    }
}

/// The create revision of the key of who waits, and the key that it waits for.
fn waits_for(standing: Standing) -> (i64, String) {
    let Standing::Behind { revision, before, .. } = standing else { panic!("{standing:?}") };
    (revision, before)
}

#[tokio::test]
async fn those_who_wait_hold_in_the_order_of_their_arrival_and_by_numbers_that_rise() {
    let mut server = Server::start().await;
    let [first, second, third] = [1, 2, 3].map(|number| server.attempt(number));
    let Standing::Holds(token) = server.enter(&first, true).await else { panic!() };
    let (of_second, before) = waits_for(server.enter(&second, true).await);
    assert_eq!(before, first.key());
    let (of_third, before) = waits_for(server.enter(&third, true).await);
    assert_eq!(before, second.key());
    assert!(server.does(second.leave()).await.succeeded());
    assert_eq!(waits_for(server.look(&third, of_third).await).1, first.key());
    assert_eq!(server.look(&second, of_second).await, Standing::Gone);
    server.does(first.leave()).await;
    let Standing::Holds(next) = server.look(&third, of_third).await else { panic!() };
    assert!(next > token);
}

#[tokio::test]
async fn one_that_does_not_wait_enters_an_empty_line_only_and_may_ask_twice() {
    let mut server = Server::start().await;
    let [holder, other] = [1, 2].map(|number| server.attempt(number));
    let held = server.enter(&holder, false).await;
    assert!(matches!(held, Standing::Holds(_)), "{held:?}");
    assert_eq!(server.enter(&holder, false).await, held);
    assert_eq!(server.enter(&other, false).await, Standing::Refused);
    server.does(holder.leave()).await;
    assert!(matches!(server.enter(&other, false).await, Standing::Holds(_)));
}

#[tokio::test]
async fn one_that_entered_twice_has_its_first_place() {
    let mut server = Server::start().await;
    let [holder, waiter, last] = [1, 2, 3].map(|number| server.attempt(number));
    server.enter(&holder, true).await;
    let (revision, _) = waits_for(server.enter(&waiter, true).await);
    server.enter(&last, true).await;
    assert_eq!(server.enter(&waiter, true).await, Standing::InLine(revision));
    assert_eq!(waits_for(server.look(&waiter, revision).await).1, holder.key());
}

#[tokio::test]
async fn a_late_request_of_an_attempt_that_was_undone_takes_nothing() {
    let mut server = Server::start().await;
    let [undone, left] = [1, 2].map(|number| server.attempt(number));
    server.does(undone.undo()).await;
    assert_eq!(server.enter(&undone, true).await, Standing::Gone);
    // It was sent twice, and one of the two is on its way still.
    left.sent().store(2, Ordering::Relaxed);
    server.enter(&left, true).await;
    assert!(server.does(left.leave()).await.succeeded());
    assert_eq!(server.enter(&left, true).await, Standing::Gone);
    assert!(!server.does(left.leave()).await.succeeded());
}
