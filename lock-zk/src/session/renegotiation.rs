//! What the servers make of a session's time-out, asked again after each reconnect.
//!
//! A server may make another time-out of the one that is asked for than the server before it did: its limits were changed
//! before a restart, or it never had those of the others. It counts by its own from then on, and the client keeps what it
//! was told to itself. So whichever server the session may be connected to is asked, by a session that is closed at once:
//! what a server answers depends on its limits and on what it is asked for, and on nothing else.
//!
//! A client asks a server for what it was given by the server before. So when a connection was lost before its server was
//! asked, the question is what any server makes of the time-out.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::Clock;

use crate::wire::{Connections, Ensemble, Server};

/// What the servers make of a session's time-out after a reconnect: unchanged, changed, or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutAfterReconnect {
    /// It is what it was.
    Same,
    /// A server that the session may be connected to makes this of it.
    Changed(Duration),
    /// Not all have answered.
    Unknown,
}

/// Asks each of `connections` what it makes of `timeout`, within `limit`.
///
/// A server that has just taken the session's connection answers, unless it stops or is cut off right then: so it is waited
/// for, and asked again. Only where the system does not let the process look at its own sockets all servers are asked, and
/// those that do not answer are taken for others: one of them may be down for days.
pub(super) async fn ask(
    ensemble: &dyn Ensemble,
    connections: Connections,
    timeout: Duration,
    limit: Duration,
    clock: Clock,
) -> TimeoutAfterReconnect {
    let Connections { servers, is_certain } = connections;
    let asked = servers.iter().map(|server| clock.answer_timeout(limit, negotiate(ensemble, server, timeout)));
    let mut answers: FuturesUnordered<_> = asked.collect();
    let (mut same, mut silent) = (false, false);
    while let Some(answer) = answers.next().await {
        match answer.flatten() {
            Some(negotiated) if negotiated != timeout => return TimeoutAfterReconnect::Changed(negotiated),
            Some(_) => same = true,
            None => silent = true,
        }
    }
    if same && !(silent && is_certain) { TimeoutAfterReconnect::Same } else { TimeoutAfterReconnect::Unknown }
}

/// What one server makes of `timeout`; `None` when it opens no session.
async fn negotiate(ensemble: &dyn Ensemble, server: &Server, timeout: Duration) -> Option<Duration> {
    let server = std::slice::from_ref(server);
    // Dropped at once, which closes the session.
    ensemble.connect(server, timeout).await.ok().map(|client| client.session_timeout())
}
