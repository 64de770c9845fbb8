//! What goes over the wire: each request of the protocol as one function, timed for the heartbeat.
//!
//! The client sends a request when its method is called, not when the future is polled, and sends it even when the
//! future is dropped: clocks are read before the call, and whoever gives up a create has to look for its node later.

use std::{future::Future, sync::Arc, time::Duration};

use lock_core::{Backoff, BootInstant};
use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, OneshotWatcher, Stat};

use crate::{heartbeat::Request, session::Session};

/// What a granted holder writes to its node when it deletes it, so that its successor's watch reports a change: the
/// sign that the node's owner held the lock and gave it up, and did not die or withdraw while it waited.
const MARK: &[u8] = b"released";

const CONTENDER: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const CONTAINER: CreateOptions<'static> = CreateMode::Container.with_acls(Acls::anyone_all());
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// What an error says about the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server answered and did not do it.
    Refused,
    /// The server has too much to do, and did not do it. It may later.
    Throttled,
    /// The session has ended: its nodes are gone or about to go.
    SessionEnded,
    /// It may have been done or not.
    Unknown,
}

impl Outcome {
    /// Whether the same request may be answered later.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::Throttled | Self::Unknown)
    }
}

/// The pauses between requests that may be answered later.
pub(crate) fn patience() -> Backoff {
    Backoff::new(Duration::from_millis(2), Duration::from_millis(200))
}

/// Sorts an error. A lost connection shows in several forms, so only a list of definite answers is trusted.
pub(crate) fn outcome(error: &Error) -> Outcome {
    match error {
        Error::NoNode
        | Error::NoAuth
        | Error::BadVersion
        | Error::NoChildrenForEphemerals
        | Error::NodeExists
        | Error::NotEmpty
        | Error::InvalidAcl
        | Error::QuotaExceeded
        | Error::MarshallingError
        | Error::Unimplemented
        | Error::BadArguments(_) => Outcome::Refused,
        Error::Throttled => Outcome::Throttled,
        Error::SessionExpired | Error::AuthFailed | Error::ClientClosed => Outcome::SessionEnded,
        _ => Outcome::Unknown,
    }
}

/// A contender's node on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entered {
    /// The node's name, without its directory.
    pub(crate) name: String,
    /// The fencing token's number: the transaction that created the node.
    pub(crate) token: u64,
    /// The session that the node lives and dies with.
    pub(crate) owner: i64,
}

impl Entered {
    pub(crate) fn new(name: String, stat: &Stat) -> Self {
        Self { name, token: token(stat), owner: stat.ephemeral_owner }
    }
}

/// The number of the fencing token of whoever made that node: the transaction that created it.
pub(crate) const fn token(stat: &Stat) -> u64 {
    stat.czxid.unsigned_abs()
}

/// Where a contender goes: its lock's directory, and its node's name but for the server's digits.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    /// The lock's directory.
    pub(crate) directory: Arc<str>,
    /// The attempt's unique id, the first part of the prefix.
    pub(crate) unique: Arc<str>,
    /// The node's name but for the server's digits.
    pub(crate) prefix: Arc<str>,
    /// Strategy `herd`: whether the attempt has removed its node. Locked while it does.
    pub(crate) removed: Arc<Mutex<bool>>,
}

impl Spot {
    /// The path of a node in the directory.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}

impl Session {
    async fn timed<T>(
        &self,
        request: Request,
        sent: BootInstant,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = answer.await;
        match &answer {
            Ok(_) => self.answered(request, sent),
            // Refused, but heard. What was refused is not counted as a committed write.
            Err(error) if outcome(error) == Outcome::Refused => self.answered(Request::Touch, sent),
            Err(_) => {}
        }
        answer
    }

    /// Creates a contender's node and lists the directory, both requests back to back: one round trip. The list is
    /// never older than the own node: a server answers a session's read after it has applied the session's own earlier
    /// write, and everything before that write. Staleness can only show contenders that are gone already.
    pub(crate) async fn enter(
        self: Arc<Self>,
        spot: Spot,
        payload: Arc<[u8]>,
    ) -> (Result<Entered, Error>, Result<Vec<String>, Error>) {
        let client = match self.client() {
            Ok(client) => client,
            Err(closed) => return (Err(closed.clone()), Err(closed)),
        };
        let path = spot.path(&spot.prefix);
        let sent = self.clock().now();
        let created = client.create(&path, &payload, &CONTENDER);
        let listed = client.list_children(&spot.directory);
        let (created, listed) =
            tokio::join!(self.timed(Request::Write, sent, created), self.timed(Request::Touch, sent, listed));
        let entered = created.map(|(stat, sequence)| Entered::new(format!("{}{sequence}", spot.prefix), &stat));
        (entered, listed)
    }

    /// Makes a lock's directory and what is above it. The directory is a container: the server reaps it when it is
    /// empty. Where it cannot, the directory stays.
    pub(crate) async fn make_directory(&self, directory: &str) -> Result<(), Error> {
        let client = self.client()?;
        let Err(error) = self.make(&client, directory, &CONTAINER).await else { return Ok(()) };
        let options = match error {
            Error::NoNode => &CONTAINER,
            Error::Unimplemented => &PERSISTENT,
            other => return Err(other),
        };
        for (end, _) in directory.match_indices('/').skip(1) {
            self.make(&client, &directory[..end], &PERSISTENT).await?;
        }
        self.make(&client, directory, options).await
    }

    async fn make(&self, client: &Client, path: &str, options: &CreateOptions<'static>) -> Result<(), Error> {
        let sent = self.clock().now();
        match self.timed(Request::Write, sent, client.create(path, b"", options)).await {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The directory's children.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<String>, Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Touch, sent, client.list_children(directory)).await
    }

    /// The directory's children, not older than now: first the server catches up with its leader.
    pub(crate) async fn list_synced(&self, directory: &str) -> Result<Vec<String>, Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        let (synced, listed) = (client.sync(directory), client.list_children(directory));
        let (synced, listed) =
            tokio::join!(self.timed(Request::Sync, sent, synced), self.timed(Request::Touch, sent, listed));
        synced.and(listed)
    }

    /// The directory's children when all is settled that this session asked for: what is not in the list by now, of
    /// that, never comes. See [`Session::settled`].
    pub(crate) async fn list_settled(&self, directory: &str) -> Result<Vec<String>, Error> {
        let client = self.client()?;
        let (own, sent) = (self.own_node(), self.clock().now());
        let (written, listed) = (client.set_data(&own, b"", None), client.list_children(directory));
        let (settled, listed) = tokio::join!(self.settled(sent, written), self.timed(Request::Touch, sent, listed));
        settled.and(listed)
    }

    /// The answer to a write to the session's own node that is sent just before a read, so that the read shows how
    /// everything ended that the session asked for earlier, on whatever connection.
    ///
    /// A `sync` does not do that. It waits for no majority: a leader that is asked itself answers it at once, with a
    /// create of this session still waiting to be committed, or after it was deposed. (The simulator found that: the
    /// create was taken for lost and made anew, and the contender waited behind its own first node for ever.) A write
    /// takes its place in the leader's one order after all that arrived before it. What arrives after it comes from a
    /// connection that the session has left, and is refused; and a session's read waits for its own write.
    async fn settled(
        &self,
        sent: BootInstant,
        written: impl Future<Output = Result<Stat, Error>>,
    ) -> Result<(), Error> {
        match self.timed(Request::Write, sent, written).await {
            // A refusal, as that the node is not there yet, takes its place in the same order.
            Err(error) if outcome(&error) != Outcome::Refused => Err(error),
            _ => Ok(()),
        }
    }

    /// What a node holds, and who owns it.
    pub(crate) async fn read(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Touch, sent, client.get_data(path)).await
    }

    /// What a node holds and who owns it, not older than now: first the server catches up with its leader.
    pub(crate) async fn read_synced(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        let (synced, read) = (client.sync(path), client.get_data(path));
        let (synced, read) =
            tokio::join!(self.timed(Request::Sync, sent, synced), self.timed(Request::Touch, sent, read));
        synced.and(read)
    }

    /// What a node holds and who owns it, when all is settled that this session asked for: see [`Session::settled`].
    pub(crate) async fn read_settled(&self, path: &str) -> Result<(Vec<u8>, Stat), Error> {
        let client = self.client()?;
        let (own, sent) = (self.own_node(), self.clock().now());
        let (written, read) = (client.set_data(&own, b"", None), client.get_data(path));
        let (settled, read) = tokio::join!(self.settled(sent, written), self.timed(Request::Touch, sent, read));
        settled.and(read)
    }

    /// Watches a node's data, once. A data watch leaves nothing on the server when the node is not there.
    pub(crate) async fn watch(&self, path: &str) -> Result<(Stat, OneshotWatcher), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        let (_, stat, watcher) = self.timed(Request::Touch, sent, client.get_and_watch_data(path)).await?;
        Ok((stat, watcher))
    }

    /// Watches for a node that comes, goes or changes, once; with it, whether it is there.
    pub(crate) async fn watch_for(&self, path: &str) -> Result<(Option<Stat>, OneshotWatcher), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Touch, sent, client.check_and_watch_stat(path)).await
    }

    /// The directory's children, and a watch that was set in the same moment: it fires on the first change of what is
    /// listed.
    pub(crate) async fn list_and_watch(&self, directory: &str) -> Result<(Vec<String>, OneshotWatcher), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Touch, sent, client.list_and_watch_children(directory)).await
    }

    /// Watches the node ahead, and the own one where `own` names it, in one round trip.
    pub(crate) async fn watch_both(
        &self,
        ahead: &str,
        own: Option<&str>,
    ) -> (Result<(Stat, OneshotWatcher), Error>, Option<Result<(Stat, OneshotWatcher), Error>>) {
        // Each half sends its request when it is first polled, and `join` polls them one after the other.
        let own = async {
            match own {
                Some(own) => Some(self.watch(own).await),
                None => None,
            }
        };
        tokio::join!(self.watch(ahead), own)
    }

    /// Deletes a node; that it is gone already is as good.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        match self.delete_present(path).await {
            Err(Error::NoNode) => Ok(()),
            other => other,
        }
    }

    /// Deletes a node that should be there.
    pub(crate) async fn delete_present(&self, path: &str) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Write, sent, client.delete(path, None)).await
    }

    /// Writes a node's data anew, for those who watch it; that it is gone is as good, since they heard of that.
    pub(crate) async fn write(&self, path: &str, payload: &[u8]) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        match self.timed(Request::Write, sent, client.set_data(path, payload, None)).await {
            Ok(_) | Err(Error::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a reader's node in the place of a writer's, in one transaction: at no moment is neither there, so nobody
    /// comes in between.
    pub(crate) async fn replace(&self, writer: &str, reader: &str, payload: &[u8]) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        let mut transaction = client.new_multi_writer();
        transaction.add_create(reader, payload, &EPHEMERAL)?;
        transaction.add_delete(writer, None)?;
        let committed = transaction.commit();
        self.timed(Request::Write, sent, async { committed.await.map_err(Error::from) }).await.map(drop)
    }

    /// Creates the one node that all contenders of a name want to create.
    pub(crate) async fn create_sole(&self, path: &str, data: &[u8]) -> Result<Stat, Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Write, sent, client.create(path, data, &EPHEMERAL)).await.map(|(stat, _)| stat)
    }

    /// Makes a node and what is above it, all of them to stay.
    pub(crate) async fn make_root(&self, path: &str) -> Result<(), Error> {
        let client = self.client()?;
        for (end, _) in path.match_indices('/').skip(1) {
            self.make(&client, &path[..end], &PERSISTENT).await?;
        }
        self.make(&client, path, &PERSISTENT).await
    }

    /// Marks and deletes the node of a granted holder, in one transaction. Only a holder marks: with that its successor
    /// knows, without a read, that nobody is left ahead.
    pub(crate) async fn delete_marked(&self, path: &str) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        let mut transaction = client.new_multi_writer();
        transaction.add_set_data(path, MARK, None)?;
        transaction.add_delete(path, None)?;
        let committed = transaction.commit();
        self.timed(Request::Write, sent, async { committed.await.map_err(Error::from) }).await.map(drop)
    }

    /// A write to the session's own node: a heartbeat that advances validity.
    pub(crate) async fn write_beat(&self, path: &str) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        match self.timed(Request::Write, sent, client.set_data(path, b"", None)).await {
            Err(Error::NoNode) => {}
            other => return other.map(drop),
        }
        match self.make(&client, path, &EPHEMERAL).await {
            Err(Error::NoNode) => {}
            other => return other,
        }
        let (directory, _) = path.rsplit_once('/').unwrap_or_default();
        self.make_directory(directory).await?;
        self.make(&client, path, &EPHEMERAL).await
    }

    /// A cheap request that passes through the leader, unlike a read: its answer shows that the leader runs.
    pub(crate) async fn touch(&self) -> Result<(), Error> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(Request::Sync, sent, client.sync("/")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definite_answers_of_the_server_count_as_refused() {
        assert_eq!(outcome(&Error::NoNode), Outcome::Refused);
        assert_eq!(outcome(&Error::SessionExpired), Outcome::SessionEnded);
        // Not `Refused`: it takes no place in the leader's order, so it settles nothing.
        assert_eq!(outcome(&Error::Throttled), Outcome::Throttled);
        for unknown in [Error::ConnectionLoss, Error::Timeout, Error::SessionMoved, Error::UnexpectedErrorCode(-4)] {
            assert_eq!(outcome(&unknown), Outcome::Unknown, "{unknown}");
        }
    }
}
