//! What the servers make of a session's time-out, asked again after each reconnect.
//!
//! A server may make another time-out of the one that is asked for than the server before it did: its limits were changed
//! before a restart, or it never had those of the others. It counts by its own from then on, and the client keeps what it
//! was told to itself. So whichever server the session may be connected to is asked, by a session that is closed at once:
//! what a server answers depends on its limits and on what it is asked for, and on nothing else.

use std::{net::SocketAddr, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::Clock;
use zookeeper_client::Client;

use crate::sockets;

/// What is known of the time-out after a reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renegotiated {
    /// It is what it was.
    Same,
    /// A server that the session may be connected to makes this of it.
    Changed(Duration),
    /// Not all have answered.
    Unknown,
}

/// Asks each of `servers` that this process is connected to what it makes of `timeout`, within `limit`.
///
/// A server that has just taken the session's connection answers, unless it stops or is cut off right then: so it is waited
/// for, and asked again. Only where the system does not let the process look at its own sockets all servers are asked, and
/// those that do not answer are taken for others: one of them may be down for days.
pub(crate) async fn ask(servers: &[(String, u16)], timeout: Duration, limit: Duration, clock: Clock) -> Renegotiated {
    let addresses = sockets::addresses(servers).await;
    let connected = sockets::set_nodelay(&addresses);
    let all_answer = connected.is_some();
    let candidates = connected.unwrap_or(addresses);
    let asked = candidates.iter().map(|server| clock.timeout(limit, negotiate(*server, timeout)));
    let mut answers: FuturesUnordered<_> = asked.collect();
    let (mut same, mut silent) = (false, false);
    while let Some(answer) = answers.next().await {
        match answer.flatten() {
            Some(negotiated) if negotiated != timeout => return Renegotiated::Changed(negotiated),
            Some(_) => same = true,
            None => silent = true,
        }
    }
    if same && !(silent && all_answer) { Renegotiated::Same } else { Renegotiated::Unknown }
}

/// What one server makes of `timeout`; `None` when it opens no session.
async fn negotiate(server: SocketAddr, timeout: Duration) -> Option<Duration> {
    let connector = Client::connector().with_session_timeout(timeout).with_fail_eagerly();
    // Dropped at once, which closes the session.
    connector.connect(&server.to_string()).await.ok().map(|client| client.session_timeout())
}
