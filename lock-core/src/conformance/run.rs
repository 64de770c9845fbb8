//! One run of one case on one fixture: its connections, its names, its checker, and the order it must leave behind.

use std::{
    slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinHandle;

use super::{
    Case, Down, Failure, Fixture, Kept,
    checker::Checker,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::{AnyGuard, CheckedGuard},
    limits::{LIMIT, eventually, within},
};
use crate::{Capabilities, Clock, Error, Feature, LockName, Locks};

/// How many violations, names and things that were left a failure shows.
const SHOWN: usize = 5;

/// One run of a conformance case: its connections, its lock names and its [`Checker`].
#[derive(Debug)]
pub(super) struct CaseRun {
    case: Case,
    fixture: Arc<dyn Fixture>,
    checker: Arc<Checker>,
    clients: Mutex<Vec<CheckedClient>>,
    /// A connection that was only asked what the backend can do: the next one to be handed out.
    spare: Mutex<Option<CheckedClient>>,
    watch: JoinHandle<()>,
}

impl CaseRun {
    pub(super) fn new(case: &Case, fixture: Arc<dyn Fixture>) -> Self {
        let checker = Arc::new(Checker::new(Arc::clone(&fixture)));
        let watch = tokio::spawn({
            let checker = Arc::clone(&checker);
            async move { checker.watch().await }
        });
        Self { case: *case, fixture, checker, clients: Mutex::default(), spare: Mutex::default(), watch }
    }

    /// What the backend can do.
    pub(super) async fn capabilities(&self) -> CaseResult<Capabilities> {
        let client = self.connect().await?;
        let capabilities = client.locks().capabilities();
        *self.spare() = Some(client);
        Ok(capabilities)
    }

    /// What of `needs` the backend does not have.
    pub(super) async fn missing(&self, needs: &[Feature]) -> CaseResult<Vec<Feature>> {
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

    /// Whether its grants end in one step.
    pub(super) fn ends_grants_in_one_step(&self) -> bool {
        self.fixture.ends_grants_in_one_step()
    }

    /// A lock name that nobody else uses.
    pub(super) fn name(&self) -> LockName {
        let name = format!("conformance/{}/{:016x}", self.case.name, fastrand::u64(..));
        LockName::new(name).expect("the names of cases are short")
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> CaseResult<CheckedClient> {
        let spare = self.spare().take();
        if let Some(spare) = spare {
            return Ok(spare);
        }
        let locks = within("connecting", self.fixture.connect()).await??;
        Ok(self.keep(CheckedClient::new(locks, Arc::clone(&self.checker), None)))
    }

    /// Several new connections.
    pub(super) async fn connect_several(&self, count: usize) -> CaseResult<Vec<CheckedClient>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// A new connection that can be cut off, with a short ttl: for cases that need [`Feature::Expiry`], without which no
    /// fixture has one.
    pub(super) async fn connect_severable(&self) -> CaseResult<CheckedClient> {
        ensure!(
            self.case.needs.contains(&Feature::Expiry),
            "a case that cuts connections off needs {}",
            Feature::Expiry
        );
        self.severable().await
    }

    /// A new connection that learns soon what became of its locks: with a short ttl, where leases end by themselves.
    pub(super) async fn connect_watchful(&self) -> CaseResult<CheckedClient> {
        let expires = self.capabilities().await?.supports(Feature::Expiry);
        if expires { self.severable().await } else { self.connect().await }
    }

    async fn severable(&self) -> CaseResult<CheckedClient> {
        let severable = within("connecting", self.fixture.connect_severable()).await??;
        Ok(self.keep(CheckedClient::new(severable.locks, Arc::clone(&self.checker), Some(severable.link.into()))))
    }

    /// An attempt to connect to servers that are down: as for [`CaseRun::connect_severable`].
    pub(super) async fn connect_to_down(&self, down: Down) -> CaseResult<Result<Locks, Error>> {
        ensure!(self.case.needs.contains(&Feature::Expiry), "a case without servers needs {}", Feature::Expiry);
        within("connecting to servers that are down", self.fixture.connect_to_down(down)).await
    }

    fn spare(&self) -> MutexGuard<'_, Option<CheckedClient>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, client: CheckedClient) -> CheckedClient {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(client.clone());
        client
    }

    /// Takes the lock away from its holders as somebody else would. Nobody may wait for it.
    pub(super) async fn delete(&self, name: &LockName) -> CaseResult {
        self.checker.disturb(name);
        self.fixture.delete(name).await
    }

    /// Waits until the servers keep nothing for `name`.
    pub(super) async fn nothing_left(&self, name: &LockName) -> CaseResult {
        self.nothing_left_of(slice::from_ref(name)).await
    }

    /// Waits until the servers keep nothing for any of `names`.
    async fn nothing_left_of(&self, names: &[LockName]) -> CaseResult {
        let last = Mutex::new(Vec::new());
        let gone = eventually("nothing is left on the servers", || async {
            let left = self.fixture.residue(names).await?;
            let empty = left.is_empty();
            *last.lock().unwrap_or_else(PoisonError::into_inner) = left;
            Ok(empty.then_some(()))
        });
        let Err(failure) = gone.await else { return Ok(()) };
        let left = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (some, names) = (&left[..left.len().min(SHOWN)], &names[..names.len().min(SHOWN)]);
        Err(Failure::new(format!("{failure}; of {names:?}, {} things, such as {some:?}", left.len())))
    }

    /// Fails unless the servers keep this grant now.
    pub(super) async fn is_kept<G: AnyGuard>(&self, guard: &CheckedGuard<G>) -> CaseResult {
        let kept = self.fixture.kept(guard.name(), guard.token().number).await?;
        ensure!(kept != Kept::Gone, "the servers do not have {guard:?}");
        ensure!(guard.is_valid(), "{guard:?} is kept by the servers and not valid");
        Ok(())
    }

    /// What the servers keep of this grant.
    pub(super) async fn kept<G: AnyGuard>(&self, guard: &CheckedGuard<G>) -> CaseResult<Kept> {
        self.fixture.kept(guard.name(), guard.token().number).await
    }

    /// Ends the run: every connection closes cleanly, nothing is left on the servers, and the checker is content. When
    /// the case failed already, only that counts, with what the checker saw.
    pub(super) async fn finish<T>(&self, outcome: CaseResult<T>) -> CaseResult<T> {
        let closed = self.close_all().await;
        self.watch.abort();
        let left = match (&outcome, &closed) {
            (Ok(_), Ok(())) => self.nothing_left_anywhere().await,
            _ => Ok(()),
        };
        let mut wrong = self.checker.violations();
        let count = wrong.len();
        wrong.truncate(SHOWN);
        if count > wrong.len() {
            wrong.push(format!("... {count} violations in all"));
        }
        let failures = [outcome.as_ref().err(), closed.as_ref().err(), left.as_ref().err()].into_iter().flatten();
        wrong.splice(0..0, failures.map(ToString::to_string).collect::<Vec<_>>());
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        outcome
    }

    async fn close_all(&self) -> CaseResult {
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

    async fn nothing_left_anywhere(&self) -> CaseResult {
        let names: Vec<_> = self.checker.names().into_iter().collect();
        self.nothing_left_of(&names).await
    }
}

impl Drop for CaseRun {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
