//! What is followed, as iterators that block.

use std::{fmt, future::poll_fn, pin::Pin};

use futures_core::{Stream, stream::BoxStream};

use super::waiting::wait;
use crate::{Error, Leader, Snapshot};

/// What a name has come to, again and again; see [`Locks::watch`](super::Locks::watch). Its next item is waited for. It ends
/// when the connection is closed, as another thread may do.
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Snapshots(pub(super) BoxStream<'static, Result<Snapshot, Error>>);

/// The leaders of an election, one after the other; see [`Election::observe`](super::Election::observe). The next one is
/// waited for. It ends when the connection is closed, as another thread may do.
#[derive(Debug)]
#[must_use = "an iterator does nothing unless it is asked"]
pub struct Leaders(pub(super) crate::Leaders);

impl Iterator for Snapshots {
    type Item = Result<Snapshot, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.0)
    }
}

impl Iterator for Leaders {
    type Item = Result<Leader, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.0)
    }
}

fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    wait(poll_fn(|context| Pin::new(&mut *stream).poll_next(context)))
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots").finish_non_exhaustive()
    }
}
