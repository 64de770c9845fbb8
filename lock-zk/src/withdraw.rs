//! Withdrawal: removing from the servers what an attempt or a release left there, until it is gone for sure.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use lock_core::{BootInstant, Error, safeguard};
use tokio_util::sync::CancellationToken;

use crate::{
    node_path::NodePath,
    protocol::{queue, sole},
    session::{ContenderNode, Session},
    wire::{Outcome, RequestError, Stat},
};

/// How long a withdrawal or a downgrade waits for its one try, before it goes on in the background.
pub(crate) const ONE_TRY: Duration = Duration::from_secs(1);

/// A create of a contender's node, and the list of the lock's children, both under way.
pub(crate) type PendingCreate =
    Pin<Box<dyn Future<Output = (Result<ContenderNode, RequestError>, Result<Vec<String>, RequestError>)> + Send>>;

/// What a failed attempt may have left on the server, for the cleanup to remove.
pub(crate) enum Leftover {
    /// The node of that path.
    Node(String),
    /// A node with the attempt's unique id, or none.
    Unknown,
    /// A create is under way, or waits in a disconnected client and will run on its next connection.
    UnderWay(PendingCreate),
    /// The one node of the name, if this attempt made it: strategy `herd`.
    Sole,
    /// The same, with the create still under way.
    SoleUnderWay(PendingSoleCreate),
}

/// A create, under way, of the single node that all contenders of a name want in the strategy `herd`.
pub(crate) type PendingSoleCreate = Pin<Box<dyn Future<Output = Result<Stat, RequestError>> + Send>>;

/// Removes a leftover in the background. The returned token is cancelled when it is gone.
pub(crate) fn withdraw(session: &Arc<Session>, path: &NodePath, leftover: Leftover) -> CancellationToken {
    match leftover {
        Leftover::Node(path) => withdraw_node(session, path),
        Leftover::Unknown => withdraw_by_id(session, path.clone()),
        // Safeguard: catalogue: an interrupted acquisition is withdrawn (ZooKeeper)
        Leftover::UnderWay(creating) => withdraw_creating(Arc::clone(session), path.clone(), creating),
        Leftover::Sole => withdraw_sole(session, path.clone()),
        Leftover::SoleUnderWay(creating) => withdraw_sole_creating(Arc::clone(session), path.clone(), creating),
    }
}

/// Deletes a node in the background. The returned token is cancelled when it is gone.
pub(crate) fn withdraw_node(session: &Arc<Session>, path: String) -> CancellationToken {
    repeat(session, move |session| {
        let path = path.clone();
        async move {
            if !safeguard("only-holders-mark") {
                let _ = session.delete_marked(&path).await;
            }
            session.delete(&path).await
        }
    })
}

/// Deletes the one node of a name if this attempt made it, which its data tell: a node that another attempt made stays.
pub(crate) fn withdraw_sole(session: &Arc<Session>, path: NodePath) -> CancellationToken {
    repeat(session, move |session| {
        let path = path.clone();
        async move {
            match remove_sole(&session, &path, false).await {
                Ok(()) | Err(RequestError::NoNode) => Ok(()),
                Err(error) => Err(error),
            }
        }
    })
}

/// Whether the attempt of `path` made that node, in `session`.
pub(crate) fn is_made_by(data: &[u8], stat: &Stat, path: &NodePath, session: i64) -> bool {
    (stat.ephemeral_owner == session && sole::parts(data).0 == path.unique.as_bytes()) || !safeguard("own-sole-node")
}

/// Deletes the node that the attempt of `path` made, if it is there: `NoNode` otherwise. `certain`: a watch says that it is.
///
/// All attempts call their nodes the same, and a deletion says only the name. So nothing is deleted before a look, which the
/// server answers after all that this session sent before. And the attempt's own removals (by a release, by the end of its
/// validity) take turns: the second one would not find in time that the first one has made room for another holder.
///
/// What is left is a third party that deletes the node in the moment of its release.
pub(crate) async fn remove_sole(session: &Session, path: &NodePath, certain: bool) -> Result<(), RequestError> {
    let mut removed = path.removed.lock().await;
    if *removed {
        return Err(RequestError::NoNode);
    }
    if !certain {
        let (data, stat) = session.read_settled(&path.directory).await?;
        // Safeguard: a removal in the herd is of the own node (ZooKeeper)
        if !is_made_by(&data, &stat, path, session.id()) {
            return Err(RequestError::NoNode);
        }
    }
    let deleted = session.delete_present(&path.directory).await;
    *removed = deleted.is_ok();
    deleted
}

/// Writes a holder's data anew in the background, until those who watch it have certainly heard.
pub(crate) fn announce(session: &Arc<Session>, path: String, payload: Arc<[u8]>) {
    drop(repeat(session, move |session| {
        let (path, payload) = (path.clone(), Arc::clone(&payload));
        async move { session.write(&path, &payload).await }
    }));
}

/// Deletes whatever this attempt made, which only its unique id tells.
pub(crate) fn withdraw_by_id(session: &Arc<Session>, path: NodePath) -> CancellationToken {
    repeat(session, move |session| {
        let path = path.clone();
        async move {
            if !safeguard("unique-id") {
                return Ok(());
            }
            let children = match session.list_settled(&path.directory).await {
                Err(RequestError::NoNode) => return Ok(()),
                other => other?,
            };
            for name in queue::made_by(&children, &path.unique, session.id()) {
                session.delete(&path.of(name)).await?;
            }
            Ok(())
        }
    })
}

fn withdraw_creating(session: Arc<Session>, path: NodePath, creating: PendingCreate) -> CancellationToken {
    let gone = CancellationToken::new();
    let (cleanup, done) = (session.context().cleanup().clone(), gone.clone());
    cleanup.spawn(async move {
        let (created, _) = creating.await;
        let leftover = match created {
            Ok(created) => Leftover::Node(path.of(&created.name)),
            Err(error) if error.outcome() == Outcome::Unknown => Leftover::Unknown,
            Err(_) => return done.cancel(),
        };
        withdraw(&session, &path, leftover).cancelled().await;
        done.cancel();
    });
    gone
}

fn withdraw_sole_creating(session: Arc<Session>, path: NodePath, creating: PendingSoleCreate) -> CancellationToken {
    let gone = CancellationToken::new();
    let (cleanup, done) = (session.context().cleanup().clone(), gone.clone());
    cleanup.spawn(async move {
        match creating.await {
            Err(error) if error.outcome() != Outcome::Unknown => {}
            _ => withdraw_sole(&session, path).cancelled().await,
        }
        done.cancel();
    });
    gone
}

/// Repeats a removal until it has a definite answer or the session has ended, and its nodes with it. There is no other
/// end: while the session lives, so does the node, and whoever stands behind it waits. A removal that the servers refuse,
/// as for want of a right, is one that they will refuse again: it is given up, and the log says what stays.
fn repeat<F, A>(session: &Arc<Session>, removal: F) -> CancellationToken
where
    F: Fn(Arc<Session>) -> A + Send + 'static,
    A: Future<Output = Result<(), RequestError>> + Send + 'static,
{
    let (cleanup, gone) = (session.context().cleanup().clone(), CancellationToken::new());
    let (session, done) = (Arc::clone(session), gone.clone());
    cleanup.clean("a contender's node", BootInstant::from_nanos(u64::MAX), move || {
        let (session, done) = (Arc::clone(&session), done.clone());
        let removal = removal(Arc::clone(&session));
        async move {
            match removal.await {
                // Safeguard: a removal that is refused is given up (ZooKeeper)
                Err(error) if !session.is_ended() && error.outcome().may_pass() => {
                    if !safeguard("repeated-removal") {
                        return Ok(());
                    }
                    return Err(Error::unavailable(session.config().url(), "a contender was not withdrawn yet", error));
                }
                Err(error) if !session.is_ended() && error.outcome() == Outcome::Refused => {
                    tracing::warn!(session = session.id(), %error, "a contender's node stays until its session ends");
                }
                _ => {}
            }
            done.cancel();
            Ok(())
        }
    });
    gone
}

#[cfg(test)]
mod tests {
    use lock_core::Context;
    use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

    use super::*;
    use crate::Config;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_removal_that_the_servers_refuse_is_given_up_and_one_that_they_allow_is_done() {
        let server = lock_lab::servers::ZooKeeper::start(1).await.unwrap();
        let port = server.ports()[0];
        let config = Config::new([("127.0.0.1", port)]).with_tick_time(Duration::from_millis(100));
        let session = Session::open(Arc::new(config), Context::current(), true).await.unwrap();
        let client = Client::connector().with_session_timeout(Duration::from_secs(60));
        let client = client.connect(&format!("127.0.0.1:{port}")).await.unwrap();
        let acl = [Acl::new(Permission::CREATE | Permission::READ, AuthId::anyone())];
        for (directory, acls) in [("/kept", Acls::new(&acl)), ("/open", Acls::anyone_all())] {
            client.create(directory, b"", &CreateMode::Persistent.with_acls(acls)).await.unwrap();
            let node = format!("{directory}/node");
            client.create(&node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();
            let removed = session.clock().timeout(LIMIT, withdraw_node(&session, node).cancelled()).await;
            removed.expect("an end of the removal");
        }
        assert_eq!(client.list_children("/kept").await.unwrap(), ["node"]);
        assert!(client.list_children("/open").await.unwrap().is_empty());
        session.close();
    }
}
