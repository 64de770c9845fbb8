//! Several locks at once.

use std::{future, sync::Arc, time::Duration};

use futures_util::future::{join_all, select_all};

use crate::{
    Abandoned, BootInstant, Committed, Error, FencingToken, Guard, LockName, Loss, Mode, Operation, Wait,
    acquire_options::{AcquireOptions, options},
    connection::{Connection, WITHDRAWAL},
    operation::{self, OperationLocks},
};

/// Several exclusive locks of one connection, taken together: all of them or none.
///
/// They are taken one after the other in the order of their names, whatever the order in which they are given, so two
/// callers cannot wait for each other. Names that are given twice are one. The wait limit is that of the whole, ttl, payload
/// and lock delay are those of each; the maximum time counts for each from its own grant, so that none is held for longer.
///
/// # Fairness
/// For each of the locks that of a [`Mutex`](crate::Mutex). While it waits for a later one, the earlier ones are held.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_core::Error> {
/// # use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
/// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
/// use std::time::Duration;
///
/// let both = locks.multi(["account/7", "account/4"]).timeout(Duration::from_secs(5)).lock().await?;
/// assert!(both.is_valid());
/// let token = both.token("account/4").expect("it is one of them");
/// println!("account/4 is held with fencing token {token}");
/// both.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it only describes the locks; call lock or try_lock"]
pub struct MultiLock {
    /// With the first name, or with what is wrong with one of them.
    options: AcquireOptions,
    /// The names after the first one.
    others: Vec<LockName>,
}

/// Several held locks. Dropping it releases them in the background; [`MultiGuard::release`] waits for that and reports.
///
/// It is valid for as long as all of them are.
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    /// In the order of their names; at least one.
    guards: Vec<Guard>,
    tokens: Tokens,
    connection: Connection,
}

/// The fencing tokens of several locks, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens(Arc<[(LockName, FencingToken)]>);

impl MultiLock {
    pub(crate) fn new(connection: Connection, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names: Result<Vec<_>, _> = names.into_iter().map(LockName::new).collect();
        let (first, others) = match names {
            Err(error) => (Err(error), Vec::new()),
            Ok(mut names) => {
                // Safeguard: catalogue: several locks are taken in one order
                // Safeguard: several locks are taken in the order of their names
                names.sort_unstable();
                names.dedup();
                let mut names = names.into_iter();
                let none = || Error::config("names", "", "one lock name or more");
                (names.next().ok_or_else(none), names.collect())
            }
        };
        Self { options: AcquireOptions::new(connection, first), others }
    }

    options!();

    /// Waits for all the locks, and holds them.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`](crate::Mutex::lock): [`Error::NotAcquired`] names the lock that it waited for when the
    /// limit passed; [`Error::Lost`] also when one that it had taken was lost while it waited for the others.
    /// [`Error::Config`] for an empty list. What had been taken has been released then, or is being released in the
    /// background where that takes more than half a second.
    ///
    /// # Cancel safety
    /// When the future is dropped, what had been taken is released in the background.
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock), for each of them.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        let clock = self.options.connection.clock();
        let deadline = self.options.timeout.map(|limit| clock.now().saturating_add(limit));
        let mut taken = Vec::with_capacity(1 + self.others.len());
        for name in self.names()? {
            let options = AcquireOptions {
                name: Arc::new(Ok(name)),
                timeout: deadline.map(|deadline| deadline.saturating_since(clock.now())),
                ..self.options.clone()
            };
            let next = tokio::select! {
                biased;
                next = options.acquire(Mode::Exclusive, Wait::UntilStopped) => next,
                // Safeguard: catalogue: the first of several locks is watched while the others are waited for
                (name, loss) = first_lost(&taken) => Err(Error::Lost { name, loss }),
            };
            match next {
                Ok(guard) => taken.push(guard),
                Err(error) => return Err(self.undone(taken, error).await),
            }
        }
        self.complete(taken).await
    }

    /// Takes all the locks if they are free, and does not wait: `None` when somebody else holds one of them.
    ///
    /// # Errors
    /// As those of [`MultiLock::lock`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`MultiLock::lock`].
    ///
    /// # Unknown outcomes
    /// As those of [`MultiLock::lock`].
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let mut taken = Vec::with_capacity(1 + self.others.len());
        for name in self.names()? {
            let options = AcquireOptions { name: Arc::new(Ok(name)), ..self.options.clone() };
            match options.try_acquire(Mode::Exclusive).await {
                Ok(Some(guard)) => taken.push(guard),
                Ok(None) => {
                    self.undo(taken).await;
                    return Ok(None);
                }
                Err(error) => return Err(self.undone(taken, error).await),
            }
        }
        self.complete(taken).await.map(Some)
    }

    fn names(&self) -> Result<Vec<LockName>, Error> {
        let first = self.options.name()?;
        Ok(std::iter::once(first).chain(&self.others).cloned().collect())
    }

    /// All are taken. One that was lost meanwhile makes it nothing: what it was to protect together was not protected.
    async fn complete(&self, taken: Vec<Guard>) -> Result<MultiGuard, Error> {
        // Safeguard: several locks are looked at once more when the last one is granted
        match taken.iter().find_map(lost) {
            Some((name, loss)) => Err(self.undone(taken, Error::Lost { name, loss }).await),
            None => Ok(MultiGuard::new(self.options.connection.clone(), taken)),
        }
    }

    async fn undone(&self, taken: Vec<Guard>, error: Error) -> Error {
        self.undo(taken).await;
        error
    }

    /// Releases what was taken: in the background what takes too long.
    async fn undo(&self, taken: Vec<Guard>) {
        let released = join_all(taken.into_iter().map(Guard::release));
        let _ = self.options.connection.clock().timeout(WITHDRAWAL, released).await;
    }
}

impl MultiGuard {
    fn new(connection: Connection, guards: Vec<Guard>) -> Self {
        let tokens = guards.iter().map(|guard| (guard.name().clone(), guard.token())).collect();
        Self { guards, tokens: Tokens(tokens), connection }
    }

    /// What is locked, in the order of the names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.guards.iter().map(Guard::name)
    }

    /// The guard of that name; `None` when it is not one of them.
    #[must_use]
    pub fn guard(&self, name: impl AsRef<str>) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name.as_ref())
    }

    /// The fencing token of that name; `None` when it is not one of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        self.tokens.get(name)
    }

    /// The fencing tokens of all of them.
    #[must_use]
    pub const fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Whether all of them are held now; see [`Guard::is_valid`]. Once false, it stays false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// How long all of them are certainly held without a further renewal; zero when one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Until when all of them are certainly held without a further renewal: the earliest end. `None` when one is lost.
    #[must_use]
    pub fn valid_until(&self) -> Option<BootInstant> {
        let ends: Option<Vec<_>> = self.guards.iter().map(Guard::valid_until).collect();
        ends?.into_iter().min()
    }

    /// Resolves when one of them is lost, with its name and why. A convenience, as [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> (LockName, Loss) {
        first_lost(&self.guards).await
    }

    /// Runs `operation` while all of them are held; see [`Guard::run`].
    ///
    /// # Errors
    /// [`Error::Lost`] with the name of the lock that was lost; what `operation` had done by then is done.
    ///
    /// # Cancel safety
    /// As that of `operation`.
    pub async fn run<F: Future>(&self, operation: F) -> Result<F::Output, Error> {
        self.check()?;
        let done = tokio::select! {
            biased;
            (name, loss) = self.lost() => return Err(Error::Lost { name, loss }),
            done = operation => done,
        };
        self.check().map(|()| done)
    }

    /// Runs `operation` so that it takes hold only while all of them are held; see
    /// [`Guard::transact`]. Its steps get the fencing tokens of all.
    ///
    /// # Errors
    /// Those of [`Guard::transact`].
    ///
    /// # Panics
    /// As [`Guard::transact`].
    ///
    /// # Cancel safety
    /// As that of [`Guard::transact`].
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::transact`].
    pub async fn transact<O>(&self, operation: O) -> Result<Committed<O::Output>, Abandoned<O::Error>>
    where
        O: Operation<Tokens>,
    {
        let held_set = OperationLocks::new(self.guards.iter().map(Guard::as_held));
        operation::transact(&self.connection, held_set, self.tokens.clone(), operation).await
    }

    /// Releases all of them and reports.
    ///
    /// # Errors
    /// Those of [`Guard::release`]: the first one in the order of the names. The others have been released nevertheless.
    ///
    /// # Cancel safety
    /// When the future is dropped, the releases go on in the background.
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::release`], for each of them.
    pub async fn release(self) -> Result<(), Error> {
        join_all(self.guards.into_iter().map(Guard::release)).await.into_iter().collect()
    }

    fn check(&self) -> Result<(), Error> {
        self.guards.iter().find_map(lost).map_or(Ok(()), |(name, loss)| Err(Error::Lost { name, loss }))
    }
}

impl Tokens {
    /// The token of that name.
    #[must_use]
    pub fn get(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        self.iter().find(|(held, _)| held.as_str() == name.as_ref()).map(|(_, token)| token)
    }

    /// Names and tokens, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&LockName, FencingToken)> {
        self.0.iter().map(|(name, token)| (name, *token))
    }
}

fn lost(guard: &Guard) -> Option<(LockName, Loss)> {
    guard.validity().loss().map(|loss| (guard.name().clone(), loss))
}

/// Resolves when one of them is lost; never, when there is none.
async fn first_lost(guards: &[Guard]) -> (LockName, Loss) {
    if guards.is_empty() {
        future::pending::<()>().await;
    }
    let lost = guards.iter().map(|guard| Box::pin(async move { (guard.name().clone(), guard.lost().await) }));
    select_all(lost).await.0
}
