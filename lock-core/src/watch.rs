//! Following a lock, for backends whose servers announce nothing.

use std::{sync::Arc, time::Duration};

use futures_core::stream::BoxStream;

use crate::{Backend, Clock, Error, LockName, Snapshot};

/// The changes of a lock, found by looking at it after each `pause`: for what a server cannot announce. What comes and
/// goes between two looks is not seen. A look that fails is an item, too, and the next one follows all the same.
///
/// This is what [`Backend::watch`] does unless a backend has something better.
pub fn by_looking<B: Backend + ?Sized>(
    backend: Arc<B>,
    name: LockName,
    clock: Clock,
    pause: Duration,
) -> BoxStream<'static, Result<Snapshot, Error>> {
    let looks = futures_util::stream::unfold((backend, name, true), move |(backend, name, first)| async move {
        if !first {
            clock.sleep(pause).await;
        }
        let look = backend.inspect(&name).await;
        Some((look, (backend, name, false)))
    });
    Box::pin(looks)
}
