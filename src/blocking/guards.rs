//! What is held, for callers that block.

use std::time::Duration;

use super::waiting::wait;
use crate::{BootInstant, Clock, DowngradeFailed, Error, FencingToken, LockName, Loss, Tokens, Validity};

/// What everything that is held can do, for a type that wraps the one of the same name. It is given back by the method
/// `$release`.
macro_rules! held {
    ($release:ident) => {
        /// Whether it is held now: a clock read and an atomic load. Once false, it stays false.
        #[must_use]
        pub fn is_valid(&self) -> bool {
            self.0.is_valid()
        }

        /// How long it is certainly held without a further renewal; zero when it is lost.
        #[must_use]
        pub fn remaining(&self) -> Duration {
            self.0.remaining()
        }

        /// Until when it is certainly held without a further renewal; `None` when it is lost.
        #[must_use]
        pub fn valid_until(&self) -> Option<BootInstant> {
            self.0.valid_until()
        }

        /// Runs `operation` while it is held: not at all when it is lost already; and the result is not given out when it was
        /// lost by the time that the operation ended.
        ///
        /// # Errors
        /// [`Error::Lost`]; what `operation` had done by then is done.
        pub fn run<T>(&self, operation: impl FnOnce() -> T) -> Result<T, Error> {
            wait(self.0.run(async { operation() }))
        }

        /// Gives it back and reports. Dropped, it is given back in the background, without a wait.
        ///
        /// # Errors
        /// Those of [`crate::Guard::release`].
        pub fn $release(self) -> Result<(), Error> {
            wait(self.0.$release())
        }
    };
}

/// What is known of something held under one name, for a type that wraps the one of the same name.
macro_rules! one_name {
    () => {
        /// What is locked.
        #[must_use]
        pub fn name(&self) -> &LockName {
            self.0.name()
        }

        /// The validity itself, to be handed to another thread or kept beyond the guard.
        #[must_use]
        pub fn validity(&self) -> &Validity {
            self.0.validity()
        }

        /// Waits for at most `limit` until it is lost; `None` when it is not by then.
        #[must_use]
        pub fn lost(&self, limit: Duration) -> Option<Loss> {
            wait(Clock::boot().timeout(limit, self.0.lost()))
        }
    };
}

/// The fencing token, for a type that wraps the one of the same name.
macro_rules! token {
    () => {
        /// The fencing token of this grant: higher than that of every earlier grant of the name.
        #[must_use]
        pub fn token(&self) -> FencingToken {
            self.0.token()
        }
    };
}

/// A held lock; see [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

/// A lock that is held for writing; see [`crate::WriteGuard`].
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard(pub(super) crate::WriteGuard);

/// One of the guards by which an owner holds a lock; see [`crate::ReentrantGuard`]. The last one to go releases it.
#[derive(Debug)]
#[must_use = "the lock is released when the last guard of its owner is dropped"]
pub struct ReentrantGuard(pub(super) crate::ReentrantGuard);

/// A held permit; see [`crate::Permit`].
#[derive(Debug)]
#[must_use = "the permit is released when it is dropped"]
pub struct Permit(pub(super) crate::Permit);

/// A term of leadership; see [`crate::Term`].
#[derive(Debug)]
#[must_use = "the term ends when it is dropped"]
pub struct Term(pub(super) crate::Term);

/// Several held locks; see [`crate::MultiGuard`].
#[derive(Debug)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard(pub(super) crate::MultiGuard);

impl Guard {
    one_name!();
    token!();
    held!(release);
}

impl WriteGuard {
    one_name!();
    token!();
    held!(release);

    /// Goes on as a reader: no writer comes between, and there is no wait.
    ///
    /// # Errors
    /// As those of [`crate::WriteGuard::downgrade`].
    #[allow(clippy::result_large_err)] // The guard is in it.
    pub fn downgrade(self) -> Result<Guard, DowngradeFailed<Self>> {
        match wait(self.0.downgrade()) {
            Ok(reader) => Ok(Guard(reader)),
            Err(DowngradeFailed { error, guard }) => Err(DowngradeFailed { error, guard: guard.map(Self) }),
        }
    }

    /// The guard without the means to become a reader.
    pub fn into_guard(self) -> Guard {
        Guard(self.0.into_guard())
    }
}

impl ReentrantGuard {
    one_name!();
    token!();
    held!(release);
}

impl Permit {
    one_name!();
    held!(release);
}

impl Term {
    one_name!();
    token!();
    held!(resign);
}

impl MultiGuard {
    held!(release);

    /// What is locked, in the order of the names.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &LockName> {
        self.0.names()
    }

    /// The fencing token of that name; `None` when it is not one of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        self.0.token(name)
    }

    /// The fencing tokens of all of them.
    #[must_use]
    pub const fn tokens(&self) -> &Tokens {
        self.0.tokens()
    }

    /// Waits for at most `limit` until one of them is lost; `None` when none is by then.
    #[must_use]
    pub fn lost(&self, limit: Duration) -> Option<(LockName, Loss)> {
        wait(Clock::boot().timeout(limit, self.0.lost()))
    }
}
