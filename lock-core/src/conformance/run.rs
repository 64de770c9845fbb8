//! One run of one case on one fixture: its connections, its names, its checker, and the order it must leave behind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use super::{
    Case, Down, Failure, Fixture, Kept,
    checker::Checker,
    client::Client,
    failure::{Outcome, ensure},
    held::{Checked, Held},
    limits::{LIMIT, eventually, within},
};
use crate::{Capabilities, Clock, Error, Feature, LockName, Locks};

/// One run of a case: its connections, its lock names and its checker.
#[derive(Debug)]
pub(super) struct Run {
    case: Case,
    fixture: Arc<dyn Fixture>,
    checker: Arc<Checker>,
    clients: Mutex<Vec<Client>>,
    /// A connection that was only asked what the backend can do: the next one to be handed out.
    spare: Mutex<Option<Client>>,
    watch: JoinHandle<()>,
}

impl Run {
    pub(super) fn new(case: &Case, fixture: Arc<dyn Fixture>) -> Self {
        let checker = Arc::new(Checker::new(Arc::clone(&fixture)));
        let watch = tokio::spawn({
            let checker = Arc::clone(&checker);
            async move { checker.watch().await }
        });
        Self { case: *case, fixture, checker, clients: Mutex::default(), spare: Mutex::default(), watch }
    }

    /// What the backend can do.
    pub(super) async fn capabilities(&self) -> Outcome<Capabilities> {
        let client = self.connect().await?;
        let capabilities = client.locks().capabilities();
        *self.spare() = Some(client);
        Ok(capabilities)
    }

    /// What of `needs` the backend does not have.
    pub(super) async fn missing(&self, needs: &[Feature]) -> Outcome<Vec<Feature>> {
        if needs.is_empty() {
            return Ok(Vec::new());
        }
        let capabilities = self.capabilities().await?;
        Ok(needs.iter().copied().filter(|feature| !capabilities.supports(*feature)).collect())
    }

    /// The clock that the connections count validity on.
    pub(super) fn clock(&self) -> Clock {
        self.fixture.clock()
    }

    /// A lock name that nobody else uses.
    pub(super) fn name(&self) -> LockName {
        let name = format!("conformance/{}/{:016x}", self.case.name, fastrand::u64(..));
        LockName::new(name).expect("the names of cases are short")
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> Outcome<Client> {
        let spare = self.spare().take();
        if let Some(spare) = spare {
            return Ok(spare);
        }
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

    /// A new connection that can be cut off, with a short ttl: for cases that need [`Feature::Expiry`], without which no
    /// fixture has one.
    pub(super) async fn connect_severable(&self) -> Outcome<Client> {
        ensure!(
            self.case.needs.contains(&Feature::Expiry),
            "a case that cuts connections off needs {}",
            Feature::Expiry
        );
        self.severable().await
    }

    /// A new connection that learns soon what became of its locks: with a short ttl, where leases end by themselves.
    pub(super) async fn connect_watchful(&self) -> Outcome<Client> {
        let expires = self.capabilities().await?.supports(Feature::Expiry);
        if expires { self.severable().await } else { self.connect().await }
    }

    async fn severable(&self) -> Outcome<Client> {
        let severable = within("connecting", self.fixture.connect_severable()).await??;
        Ok(self.keep(Client::new(severable.locks, Arc::clone(&self.checker), Some(severable.link.into()))))
    }

    /// An attempt to connect to servers that are down: as for [`Run::connect_severable`].
    pub(super) async fn connect_to_down(&self, down: Down) -> Outcome<Result<Locks, Error>> {
        ensure!(self.case.needs.contains(&Feature::Expiry), "a case without servers needs {}", Feature::Expiry);
        within("connecting to servers that are down", self.fixture.connect_to_down(down)).await
    }

    fn spare(&self) -> MutexGuard<'_, Option<Client>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, client: Client) -> Client {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }

    /// Takes the lock away from its holders as somebody else would. Nobody may wait for it.
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
    pub(super) async fn is_kept<G: Held>(&self, guard: &Checked<G>) -> Outcome {
        let kept = self.fixture.kept(guard.name(), guard.token().number).await?;
        ensure!(kept != Kept::Gone, "the servers do not have {guard:?}");
        ensure!(guard.is_valid(), "{guard:?} is kept by the servers and not valid");
        Ok(())
    }

    /// What the servers keep of this grant.
    pub(super) async fn kept<G: Held>(&self, guard: &Checked<G>) -> Outcome<Kept> {
        self.fixture.kept(guard.name(), guard.token().number).await
    }

    /// Ends the run: every connection closes cleanly, nothing is left on the servers, and the checker is content. When
    /// the case failed already, only that counts, with what the checker saw.
    pub(super) async fn finish<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        let closed = self.close_all().await;
        self.watch.abort();
        let left = match (&outcome, &closed) {
            (Ok(_), Ok(())) => self.nothing_left_anywhere().await,
            _ => Ok(()),
        };
        let mut wrong = self.checker.violations();
        let count = wrong.len();
        wrong.truncate(5);
        if count > wrong.len() {
            wrong.push(format!("... {count} violations in all"));
        }
        let failures = [outcome.as_ref().err(), closed.as_ref().err(), left.as_ref().err()].into_iter().flatten();
        wrong.splice(0..0, failures.map(ToString::to_string).collect::<Vec<_>>());
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        outcome
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
