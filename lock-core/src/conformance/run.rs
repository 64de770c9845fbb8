//! One run of one case on one fixture: its connections, its names, its checker, and the order it must leave behind.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use super::{
    Down, Failure, Fixture, Kept,
    checker::Checker,
    client::{Checked, Client},
    failure::{Outcome, ensure},
    limits::{LIMIT, eventually, within},
};
use crate::{Error, LockName, Locks};

/// What a case works with.
#[derive(Debug)]
pub(super) struct Run {
    case: &'static str,
    fixture: Arc<dyn Fixture>,
    checker: Arc<Checker>,
    clients: Mutex<Vec<Client>>,
    watch: JoinHandle<()>,
}

impl Run {
    pub(super) fn new(case: &'static str, fixture: Arc<dyn Fixture>) -> Self {
        let checker = Arc::new(Checker::new(Arc::clone(&fixture)));
        let watch = tokio::spawn({
            let checker = Arc::clone(&checker);
            async move { checker.watch().await }
        });
        Self { case, fixture, checker, clients: Mutex::default(), watch }
    }

    /// A lock name that nobody else uses.
    pub(super) fn name(&self) -> LockName {
        let name = format!("conformance/{}/{:016x}", self.case, fastrand::u64(..));
        LockName::new(name).expect("the names of cases are short")
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Outcome<Client> {
        let locks = within("connecting", self.fixture.connect()).await??;
        Ok(self.keep(Client::new(locks, Arc::clone(&self.checker), None)))
    }

    /// Several new connections.
    pub(super) async fn connect_several(&self, count: usize) -> Outcome<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// A new connection that can be cut off, with a short ttl.
    pub(super) async fn connect_severable(&self) -> Outcome<Client> {
        let severable = within("connecting", self.fixture.connect_severable()).await??;
        Ok(self.keep(Client::new(severable.locks, Arc::clone(&self.checker), Some(severable.link.into()))))
    }

    /// An attempt to connect to servers that are down.
    pub(super) async fn connect_to_down(&self, down: Down) -> Outcome<Result<Locks, Error>> {
        within("connecting to servers that are down", self.fixture.connect_to_down(down)).await
    }

    fn keep(&self, client: Client) -> Client {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }

    /// Takes the lock away from its holder as somebody else would.
    pub(super) async fn delete(&self, name: &LockName) -> Outcome {
        self.checker.disturb(name);
        self.fixture.delete(name).await
    }

    /// Waits until the servers keep nothing for `name`.
    pub(super) async fn nothing_left(&self, name: &LockName) -> Outcome {
        let last = Mutex::new(Vec::new());
        let gone = eventually("nothing is left on the servers", || async {
            let left = self.fixture.residue(name).await?;
            let empty = left.is_empty();
            *last.lock().unwrap_or_else(PoisonError::into_inner) = left;
            Ok(empty.then_some(()))
        });
        let Err(failure) = gone.await else { return Ok(()) };
        let left = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        Err(Failure::new(format!("{failure}; {name:?} has left {left:?}")))
    }

    /// Fails unless the servers keep this grant now.
    pub(super) async fn is_kept(&self, guard: &Checked) -> Outcome {
        let kept = self.fixture.kept(guard.name(), guard.token().number).await?;
        ensure!(kept != Kept::Gone, "the servers do not have {guard:?}");
        ensure!(guard.is_valid(), "{guard:?} is kept by the servers and not valid");
        Ok(())
    }

    /// What the servers keep of this grant.
    pub(super) async fn kept(&self, guard: &Checked) -> Outcome<Kept> {
        self.fixture.kept(guard.name(), guard.token().number).await
    }

    /// Ends the run: every connection closes cleanly, nothing is left on the servers, and the checker is content. When
    /// the case failed already, only that counts, with what the checker saw.
    pub(super) async fn finish(&self, outcome: Outcome) -> Outcome {
        let closed = self.close_all().await;
        self.watch.abort();
        let left = match (&outcome, &closed) {
            (Ok(()), Ok(())) => self.nothing_left_anywhere().await,
            _ => Ok(()),
        };
        let mut wrong = self.checker.violations();
        let count = wrong.len();
        wrong.truncate(5);
        if count > wrong.len() {
            wrong.push(format!("... {count} violations in all"));
        }
        let failures = [outcome, closed, left].into_iter().filter_map(Result::err);
        wrong.splice(0..0, failures.map(|failure| failure.to_string()));
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    async fn close_all(&self) -> Outcome {
        let clients: Vec<_> = self.clients.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        let mut closed = Ok(());
        for client in clients {
            client.heal().await;
            if client.is_closed() {
                continue;
            }
            let close = client.close(LIMIT).await;
            if let Err(error) = close.and_then(|close| close.map_err(Failure::from)) {
                closed = Err(Failure::new(format!("a connection was not closed cleanly: {error}")));
            }
        }
        closed
    }

    async fn nothing_left_anywhere(&self) -> Outcome {
        for name in self.checker.names() {
            self.nothing_left(&name).await?;
        }
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
