//! Withdrawal: removing from the servers what an attempt or a release left there, until it is gone for sure.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use lock_core::{BootInstant, Cleanup, Error};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Error as ClientError, Stat};

use crate::{
    herd, queue,
    session::Session,
    wire::{Entered, Outcome, Spot, outcome},
};

/// How long a withdrawal or a downgrade waits for its one try, before it goes on in the background.
pub(crate) const ONE_TRY: Duration = Duration::from_secs(1);

/// What removing something needs of its connection.
#[derive(Debug, Clone)]
pub(crate) struct Keeping {
    pub(crate) session: Arc<Session>,
    pub(crate) cleanup: Cleanup,
}

/// The create and the list of a contender that enters the queue.
pub(crate) type Entering =
    Pin<Box<dyn Future<Output = (Result<Entered, ClientError>, Result<Vec<String>, ClientError>)> + Send>>;

/// What an attempt may have left on the server.
pub(crate) enum Trace {
    /// The node of that path.
    Node(String),
    /// A node with the attempt's unique id, or none.
    Unknown,
    /// A create is under way, or waits in a disconnected client and will run on its next connection.
    UnderWay(Entering),
    /// The spot itself, if this attempt took it: strategy `herd`.
    Sole,
    /// The same, with the create still under way.
    SoleUnderWay(Taking),
}

/// The create of the one node that all contenders of a name want, in the strategy `herd`.
pub(crate) type Taking = Pin<Box<dyn Future<Output = Result<Stat, ClientError>> + Send>>;

/// Removes a trace in the background. The returned token is cancelled when it is gone.
pub(crate) fn withdraw(keeping: &Keeping, spot: &Spot, trace: Trace) -> CancellationToken {
    match trace {
        Trace::Node(path) => withdraw_node(keeping, path),
        Trace::Unknown => withdraw_by_id(keeping, spot.clone()),
        Trace::UnderWay(entering) => withdraw_entering(keeping.clone(), spot.clone(), entering),
        Trace::Sole => withdraw_sole(keeping, spot.clone()),
        Trace::SoleUnderWay(taking) => withdraw_taking(keeping.clone(), spot.clone(), taking),
    }
}

/// Deletes a node in the background. The returned token is cancelled when it is gone.
pub(crate) fn withdraw_node(keeping: &Keeping, path: String) -> CancellationToken {
    repeat(keeping, move |session| {
        let path = path.clone();
        async move { session.delete(&path).await }
    })
}

/// Deletes the one node of a name if this attempt made it, which its data tell: another's is none of our business.
pub(crate) fn withdraw_sole(keeping: &Keeping, spot: Spot) -> CancellationToken {
    repeat(keeping, move |session| {
        let spot = spot.clone();
        async move {
            match herd::remove(&session, &spot, false).await {
                Ok(()) | Err(ClientError::NoNode) => Ok(()),
                Err(error) => Err(error),
            }
        }
    })
}

/// Writes a holder's data anew in the background, until those who watch it have certainly heard.
pub(crate) fn announce(keeping: &Keeping, path: String, payload: Arc<[u8]>) {
    drop(repeat(keeping, move |session| {
        let (path, payload) = (path.clone(), Arc::clone(&payload));
        async move { session.write(&path, &payload).await }
    }));
}

/// Deletes whatever this attempt made, which only its unique id tells.
pub(crate) fn withdraw_by_id(keeping: &Keeping, spot: Spot) -> CancellationToken {
    repeat(keeping, move |session| {
        let spot = spot.clone();
        async move {
            let children = match session.list_settled(&spot.directory).await {
                Err(ClientError::NoNode) => return Ok(()),
                other => other?,
            };
            for name in queue::made_by(&children, &spot.unique, session.id()) {
                session.delete(&spot.path(name)).await?;
            }
            Ok(())
        }
    })
}

fn withdraw_entering(keeping: Keeping, spot: Spot, entering: Entering) -> CancellationToken {
    let gone = CancellationToken::new();
    let done = gone.clone();
    keeping.cleanup.clone().spawn(async move {
        let (created, _) = entering.await;
        let trace = match created {
            Ok(entered) => Trace::Node(spot.path(&entered.name)),
            Err(error) if outcome(&error) == Outcome::Unknown => Trace::Unknown,
            Err(_) => return done.cancel(),
        };
        withdraw(&keeping, &spot, trace).cancelled().await;
        done.cancel();
    });
    gone
}

fn withdraw_taking(keeping: Keeping, spot: Spot, taking: Taking) -> CancellationToken {
    let gone = CancellationToken::new();
    let done = gone.clone();
    keeping.cleanup.clone().spawn(async move {
        match taking.await {
            Err(error) if outcome(&error) != Outcome::Unknown => {}
            _ => withdraw_sole(&keeping, spot).cancelled().await,
        }
        done.cancel();
    });
    gone
}

/// Repeats a removal until it has a definite answer or the session has ended, and its nodes with it. There is no other
/// end: while the session lives, so does the node, and whoever stands behind it waits. A removal that the servers refuse,
/// as for want of a right, is one that they will refuse again: it is given up, and the log says what stays.
fn repeat<F, A>(keeping: &Keeping, removal: F) -> CancellationToken
where
    F: Fn(Arc<Session>) -> A + Send + 'static,
    A: Future<Output = Result<(), ClientError>> + Send + 'static,
{
    let (session, gone) = (Arc::clone(&keeping.session), CancellationToken::new());
    let done = gone.clone();
    keeping.cleanup.clean("a contender's node", BootInstant::from_nanos(u64::MAX), move || {
        let (session, done) = (Arc::clone(&session), done.clone());
        let removal = removal(Arc::clone(&session));
        async move {
            match removal.await {
                Err(error) if !session.is_ended() && outcome(&error).may_pass() => {
                    return Err(Error::unavailable(session.config().url(), "a contender was not withdrawn yet", error));
                }
                Err(error) if !session.is_ended() && outcome(&error) == Outcome::Refused => {
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
    use lock_core::{Clock, Context};
    use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

    use super::*;
    use crate::Config;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_removal_that_the_servers_refuse_is_given_up_and_one_that_they_allow_is_done() {
        let server = lock_lab::servers::ZooKeeper::start(1).await.unwrap();
        let config = Config::new([("127.0.0.1", server.ports()[0])]).with_tick_time(Duration::from_millis(100));
        let clock = Clock::boot();
        let session = Session::open(Arc::new(config), clock, true).await.unwrap();
        let keeping = Keeping { session: Arc::clone(&session), cleanup: Context::current().cleanup().clone() };
        let client = session.client().unwrap();
        let acl = [Acl::new(Permission::CREATE | Permission::READ, AuthId::anyone())];
        for (directory, acls) in [("/kept", Acls::new(&acl)), ("/open", Acls::anyone_all())] {
            client.create(directory, b"", &CreateMode::Persistent.with_acls(acls)).await.unwrap();
            let node = format!("{directory}/node");
            client.create(&node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();
            clock.timeout(LIMIT, withdraw_node(&keeping, node).cancelled()).await.expect("an end of the removal");
        }
        assert_eq!(client.list_children("/kept").await.unwrap(), ["node"]);
        assert!(client.list_children("/open").await.unwrap().is_empty());
        session.close();
    }
}
