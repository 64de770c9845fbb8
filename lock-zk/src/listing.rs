//! A list of locks: the nodes below the root, and which of them have a holder.

use futures::future::join_all;
use lock_core::{Error, LockName};

use crate::{
    Layout,
    connection::Connection,
    protocol::{queue, watch_budget::NO_WATCH},
    session::Session,
    wire::{Outcome, RequestError},
};

/// How many directories are looked at in one moment.
const AT_ONCE: usize = 64;

/// The names that begin with `prefix` and have a holder, by whichever strategy, in the layout of this library. What this user may
/// not read is left out. On the thread only.
pub(crate) async fn list(zk: &Connection, prefix: &str) -> Result<Vec<LockName>, Error> {
    let reservation = zk.reserve(NO_WATCH).await?;
    let session = &reservation.session;
    let looking = async {
        let root = &zk.config().root;
        let nodes = match session.list_synced(root).await {
            Err(RequestError::NoNode) => return Ok(Vec::new()),
            nodes => nodes?,
        };
        let mut names: Vec<_> = nodes.iter().filter_map(|node| LockName::from_component(node)).collect();
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort_unstable();
        let mut held = Vec::new();
        for names in names.chunks(AT_ONCE) {
            let looks =
                join_all(names.iter().map(|name| is_held(session, format!("{root}/{}", name.to_component())))).await;
            for (name, is_held) in names.iter().zip(looks) {
                held.extend(is_held?.then(|| name.clone()));
            }
        }
        Ok(held)
    };
    zk.while_connected(session, "a list of locks", looking).await
}

/// Whether somebody holds what has this directory, or this node.
async fn is_held(session: &Session, path: String) -> Result<bool, RequestError> {
    let looked = match session.list(&path).await {
        // A directory that nobody is in, or the one node of the strategy `herd`.
        Ok(children) if children.is_empty() => session.read(&path).await.map(|(_, stat)| stat.ephemeral_owner != 0),
        children => children.map(|children| !queue::occupants(Layout::Native, &children).holders.is_empty()),
    };
    match looked {
        Err(error) if error.outcome() == Outcome::Refused => Ok(false),
        looked => looked,
    }
}
