//! Leader election.

use std::{
    fmt,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::{Stream, stream::BoxStream};

use crate::{
    Error, FencingToken, Guard, LockName, Mode, Snapshot, Wait,
    acquire_options::{AcquireOptions, options},
    connection::Connection,
};

/// An election: members campaign, one at a time leads. It is the exclusive lock of its name, whose holder's payload says
/// who leads.
///
/// # Fairness
/// Who campaigned first leads next where [`Feature::Fifo`](crate::Feature::Fifo) is promised; elsewhere anybody may.
#[derive(Debug, Clone)]
#[must_use = "it only describes the election; call campaign or observe"]
pub struct Election {
    options: AcquireOptions,
}

/// A term of leadership: a [`Guard`] that ends when the leadership is lost. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "the term ends when it is dropped"]
pub struct Term(Guard);

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it said of itself when it campaigned.
    pub payload: Vec<u8>,
    /// The fencing token of its term.
    pub token: FencingToken,
    /// What tells its contender apart from all others on the server.
    pub id: String,
}

/// The leaders of an election, one after the other; see [`Election::observe`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct Leaders {
    changes: BoxStream<'static, Result<Snapshot, Error>>,
    connection: Connection,
    newest: Option<u64>,
}

impl Election {
    pub(crate) fn new(connection: Connection, name: Result<LockName, Error>) -> Self {
        Self { options: AcquireOptions::new(connection, name) }
    }

    options!();

    /// Campaigns until it is elected; `payload` tells observers who it is.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// When the future is dropped, the candidacy is withdrawn in the background.
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn campaign(&self, payload: impl AsRef<[u8]>) -> Result<Term, Error> {
        let options = AcquireOptions { payload: payload.as_ref().into(), ..self.options.clone() };
        options.acquire(Mode::Exclusive, Wait::UntilStopped).await.map(Term)
    }

    /// Leads if nobody else does, and does not wait: `None` when somebody leads.
    ///
    /// # Errors
    /// As those of [`Election::campaign`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Election::campaign`].
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_campaign(&self, payload: impl AsRef<[u8]>) -> Result<Option<Term>, Error> {
        let options = AcquireOptions { payload: payload.as_ref().into(), ..self.options.clone() };
        Ok(options.try_acquire(Mode::Exclusive).await?.map(Term))
    }

    /// The present leader, then each later one, in the order of their fencing tokens. A term that is shorter than a
    /// look at the server may be left out; one of a second or more is not. While the backend is out of reach the stream
    /// gives errors and goes on; it ends when the connection is closed.
    ///
    /// What it gives was true a moment ago: a leader may be gone by the time that it is read. Only the fencing token
    /// keeps a former leader away from a store.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::Closed`].
    pub fn observe(&self) -> Result<Leaders, Error> {
        let name = self.options.name()?;
        let connection = self.options.connection.clone();
        Ok(Leaders { changes: connection.watch(name.clone())?, connection, newest: None })
    }
}

impl Term {
    /// Gives up leadership and reports; see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// As that of [`Guard::release`].
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await
    }
}

impl Deref for Term {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Leaders {
    /// The leader that a look shows, unless it is one that was given before.
    fn newer(&mut self, snapshot: Snapshot) -> Option<Leader> {
        let led = |mode: Option<Mode>| matches!(mode, None | Some(Mode::Exclusive));
        let holder = snapshot.holders.into_iter().find(|holder| led(holder.mode) && holder.token.is_some())?;
        let number = holder.token.filter(|number| self.newest.is_none_or(|newest| *number > newest))?;
        self.newest = Some(number);
        Some(Leader { payload: holder.payload, token: self.connection.fencing_token(number), id: holder.id })
    }
}

impl Stream for Leaders {
    type Item = Result<Leader, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.changes.as_mut().poll_next(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(snapshot)) => {
                    if let Some(leader) = self.newer(snapshot) {
                        return Poll::Ready(Some(Ok(leader)));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").field("newest", &self.newest).finish_non_exhaustive()
    }
}
