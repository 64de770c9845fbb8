//! Each request of the protocol as one function, timed for the heartbeat.
//!
//! Clocks are read before a request is sent, which is when the method of the client is called.

use std::{future::Future, sync::Arc};

use lock_core::{BootInstant, safeguard};

use super::Session;
use crate::{
    node_path::NodePath,
    protocol::heartbeat::RequestProof,
    wire::{Client, CreateMode, Created, Outcome, RequestError, Stat, Watch},
};

/// What a granted holder writes to its node when it deletes it, so that its successor's watch reports a change: the
/// sign that the node's owner held the lock and gave it up, and did not die or withdraw while it waited.
const MARK: &[u8] = b"released";

/// A contender's node as the server created it: its name, the owner session, and the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContenderNode {
    /// The node's name, without its directory.
    pub(crate) name: String,
    /// The fencing token's number: the transaction that created the node.
    pub(crate) token: u64,
    /// The session that the node lives and dies with.
    pub(crate) owner: i64,
}

impl ContenderNode {
    pub(crate) fn new(name: String, stat: &Stat) -> Self {
        Self { name, token: stat.token(), owner: stat.ephemeral_owner }
    }
}

impl Session {
    async fn timed<T>(
        &self,
        request: RequestProof,
        sent: BootInstant,
        answer: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let answer = answer.await;
        match &answer {
            Ok(_) => self.answered(request, sent),
            // Refused, but heard. What was refused is not counted as a committed write.
            Err(error) if error.outcome() == Outcome::Refused => self.answered(RequestProof::Touch, sent),
            Err(_) => {}
        }
        answer
    }

    /// Creates a contender's node and lists the directory, both requests back to back: one round trip. The list is
    /// never older than the own node: a server answers a session's read after it has applied the session's own earlier
    /// write, and everything before that write. Staleness can only show contenders that are gone already.
    pub(crate) async fn enter(
        self: Arc<Self>,
        path: NodePath,
        payload: Arc<[u8]>,
    ) -> (Result<ContenderNode, RequestError>, Result<Vec<String>, RequestError>) {
        let client = match self.client() {
            Ok(client) => client,
            Err(closed) => return (Err(closed.clone()), Err(closed)),
        };
        let own = path.of(&path.prefix);
        let sent = self.clock().now();
        // Safeguard: a list is asked for without waiting for the create (ZooKeeper)
        let created = client.create(&own, &payload, CreateMode::EphemeralSequential);
        let listed = client.list_children(&path.directory);
        let (created, listed) =
            tokio::join!(self.timed(RequestProof::Write, sent, created), self.timed(RequestProof::Touch, sent, listed));
        let entered =
            created.map(|Created { stat, sequence }| ContenderNode::new(format!("{}{sequence}", path.prefix), &stat));
        (entered, listed)
    }

    /// Makes a directory below the root, and what is above it. What is below the root is of that mode, as a container, which the
    /// server reaps when it is empty. Where it cannot, the directory stays.
    pub(crate) async fn make_directory(&self, directory: &str, mode: CreateMode) -> Result<(), RequestError> {
        let client = self.client()?;
        let Err(error) = self.make(client.as_ref(), directory, mode).await else { return Ok(()) };
        let mode = match error {
            RequestError::NoNode => mode,
            RequestError::Unimplemented => CreateMode::Persistent,
            other => return Err(other),
        };
        for (end, _) in directory.match_indices('/').skip(1) {
            let is_below_root = end > self.config().root.len();
            let mode = if is_below_root { mode } else { CreateMode::Persistent };
            self.make(client.as_ref(), &directory[..end], mode).await?;
        }
        self.make(client.as_ref(), directory, mode).await
    }

    async fn make(&self, client: &dyn Client, path: &str, mode: CreateMode) -> Result<(), RequestError> {
        let sent = self.clock().now();
        match self.timed(RequestProof::Write, sent, client.create(path, b"", mode)).await {
            Ok(_) | Err(RequestError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The directory's children.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<String>, RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Touch, sent, client.list_children(directory)).await
    }

    /// The directory's children, not older than now: first the server catches up with its leader.
    pub(crate) async fn list_synced(&self, directory: &str) -> Result<Vec<String>, RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        let (synced, listed) = (client.sync(directory), client.list_children(directory));
        let (synced, listed) =
            tokio::join!(self.timed(RequestProof::Sync, sent, synced), self.timed(RequestProof::Touch, sent, listed));
        synced.and(listed)
    }

    /// The directory's children when all is settled that this session asked for: what is not in the list by now, of
    /// that, never comes. See [`Session::settled`].
    pub(crate) async fn list_settled(&self, directory: &str) -> Result<Vec<String>, RequestError> {
        if !safeguard("write-before-search") {
            return self.list_synced(directory).await;
        }
        let client = self.client()?;
        let (own, sent) = (self.own_node(), self.clock().now());
        let (written, listed) = (client.set_data(&own, b""), client.list_children(directory));
        let (settled, listed) =
            tokio::join!(self.settled(sent, written), self.timed(RequestProof::Touch, sent, listed));
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
        written: impl Future<Output = Result<Stat, RequestError>>,
    ) -> Result<(), RequestError> {
        match self.timed(RequestProof::Write, sent, written).await {
            // A refusal, as that the node is not there yet, takes its place in the same order.
            Err(error) if error.outcome() != Outcome::Refused => Err(error),
            _ => Ok(()),
        }
    }

    /// What a node holds, and who owns it.
    pub(crate) async fn read(&self, path: &str) -> Result<(Vec<u8>, Stat), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Touch, sent, client.get_data(path)).await
    }

    /// What a node holds and who owns it, not older than now: first the server catches up with its leader.
    pub(crate) async fn read_synced(&self, path: &str) -> Result<(Vec<u8>, Stat), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        let (synced, read) = (client.sync(path), client.get_data(path));
        let (synced, read) =
            tokio::join!(self.timed(RequestProof::Sync, sent, synced), self.timed(RequestProof::Touch, sent, read));
        synced.and(read)
    }

    /// What a node holds and who owns it, when all is settled that this session asked for: see [`Session::settled`].
    pub(crate) async fn read_settled(&self, path: &str) -> Result<(Vec<u8>, Stat), RequestError> {
        if !safeguard("write-before-search") {
            return self.read_synced(path).await;
        }
        let client = self.client()?;
        let (own, sent) = (self.own_node(), self.clock().now());
        let (written, read) = (client.set_data(&own, b""), client.get_data(path));
        let (settled, read) = tokio::join!(self.settled(sent, written), self.timed(RequestProof::Touch, sent, read));
        settled.and(read)
    }

    /// Watches a node's data, once. A data watch leaves nothing on the server when the node is not there.
    pub(crate) async fn watch(&self, path: &str) -> Result<(Stat, Watch), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Touch, sent, client.watch_data(path)).await
    }

    /// Watches for a node that comes, goes or changes, once; with it, whether it is there.
    pub(crate) async fn watch_for(&self, path: &str) -> Result<(Option<Stat>, Watch), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Touch, sent, client.watch_existence(path)).await
    }

    /// The directory's children, and a watch that was set in the same moment: it fires on the first change of what is
    /// listed.
    pub(crate) async fn list_and_watch(&self, directory: &str) -> Result<(Vec<String>, Watch), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Touch, sent, client.watch_children(directory)).await
    }

    /// Watches the node ahead, and the own one where `own` names it, in one round trip.
    pub(crate) async fn watch_both(
        &self,
        ahead: &str,
        own: Option<&str>,
    ) -> (Result<(Stat, Watch), RequestError>, Option<Result<(Stat, Watch), RequestError>>) {
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
    pub(crate) async fn delete(&self, path: &str) -> Result<(), RequestError> {
        match self.delete_present(path).await {
            Err(RequestError::NoNode) => Ok(()),
            other => other,
        }
    }

    /// Deletes a node that should be there.
    pub(crate) async fn delete_present(&self, path: &str) -> Result<(), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Write, sent, client.delete(path)).await
    }

    /// Writes a node's data anew, for those who watch it; that it is gone is as good, since they heard of that.
    pub(crate) async fn write(&self, path: &str, payload: &[u8]) -> Result<(), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        match self.timed(RequestProof::Write, sent, client.set_data(path, payload)).await {
            Ok(_) | Err(RequestError::NoNode) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a reader's node in the place of a writer's, in one transaction: at no moment is neither there, so nobody
    /// comes in between.
    pub(crate) async fn replace(&self, writer: &str, reader: &str, payload: &[u8]) -> Result<(), RequestError> {
        let client = self.client()?;
        if !safeguard("one-exchange") {
            self.delete_present(writer).await?;
            let sent = self.clock().now();
            let created = client.create(reader, payload, CreateMode::Ephemeral);
            return self.timed(RequestProof::Write, sent, created).await.map(drop);
        }
        let sent = self.clock().now();
        self.timed(RequestProof::Write, sent, client.create_and_delete(reader, payload, writer)).await
    }

    /// Creates the one node that all contenders of a name want to create.
    pub(crate) async fn create_sole(&self, path: &str, data: &[u8]) -> Result<Stat, RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Write, sent, client.create(path, data, CreateMode::Ephemeral))
            .await
            .map(|created| created.stat)
    }

    /// Makes a node and what is above it, all of them to stay.
    pub(crate) async fn make_root(&self, path: &str) -> Result<(), RequestError> {
        let client = self.client()?;
        for (end, _) in path.match_indices('/').skip(1) {
            self.make(client.as_ref(), &path[..end], CreateMode::Persistent).await?;
        }
        self.make(client.as_ref(), path, CreateMode::Persistent).await
    }

    /// Marks and deletes the node of a granted holder, in one transaction. Only a holder marks: with that its successor
    /// knows, without a read, that nobody is left ahead.
    pub(crate) async fn delete_marked(&self, path: &str) -> Result<(), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Write, sent, client.set_and_delete(path, MARK)).await
    }

    /// A write to the session's own node: a heartbeat that advances validity.
    pub(crate) async fn write_beat(&self, path: &str) -> Result<(), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        match self.timed(RequestProof::Write, sent, client.set_data(path, b"")).await {
            Err(RequestError::NoNode) => {}
            other => return other.map(drop),
        }
        match self.make(client.as_ref(), path, CreateMode::Ephemeral).await {
            Err(RequestError::NoNode) => {}
            other => return other,
        }
        let (directory, _) = path.rsplit_once('/').unwrap_or_default();
        self.make_directory(directory, CreateMode::Container).await?;
        self.make(client.as_ref(), path, CreateMode::Ephemeral).await
    }

    /// A cheap request that passes through the leader, unlike a read: its answer shows that the leader runs.
    pub(crate) async fn touch(&self) -> Result<(), RequestError> {
        let client = self.client()?;
        let sent = self.clock().now();
        self.timed(RequestProof::Sync, sent, client.sync("/")).await
    }
}
