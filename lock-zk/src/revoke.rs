//! A forced release: the deletion of one holder's node.

use lock_core::{Contender, Error, LockName};

use crate::{
    connection::Connection,
    inspect::{KnownContenders, at_queue, at_sole},
    protocol::{queue, watch_budget::NO_WATCH},
    wire::RequestError,
};

/// Ends the grant of `name` with this token; `None` when it is not there. On the thread only.
///
/// No other node is ever called as a contender's, so its deletion ends that grant or nothing. Whoever waits for the node hears
/// that it was deleted, which says nothing of those ahead, and looks. Its owner, which watches the node, hears it, too.
pub(crate) async fn revoke(zk: &Connection, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
    let reservation = zk.reserve(NO_WATCH).await?;
    let session = &reservation.session;
    let (directory, layout) = (zk.directory(name)?, zk.config().layout);
    let has_token = |holder: &Contender| holder.token == Some(token);
    let revoking = async {
        let children = match session.list_synced(&directory).await {
            Err(RequestError::NoNode) => return Ok(Ok(None)),
            children => children?,
        };
        if children.is_empty() {
            let by_herd = at_sole(session, &directory).await?.holders.iter().any(has_token);
            return Ok(if by_herd { Err(not_exact()) } else { Ok(None) });
        }
        let holders: Vec<_> =
            queue::occupants(layout, &children).holders.iter().map(|node| node.name.to_owned()).collect();
        let seen = at_queue(session, &directory, &holders, &mut KnownContenders::new()).await?;
        // Safeguard: a forced release compares the number (ZooKeeper)
        let Some(holder) = seen.holders.into_iter().find(has_token) else { return Ok(Ok(None)) };
        match session.delete_present(&format!("{directory}/{}", holder.id)).await {
            Err(RequestError::NoNode) => Ok(Ok(None)),
            deleted => deleted.map(|()| Ok(Some(holder))),
        }
    };
    zk.while_connected(session, "a forced release", revoking).await?
}

/// The refusal where the next holder's node is called as this one's: a deletion could end that one's grant.
fn not_exact() -> Error {
    Error::config("strategy", "herd", "queue: of a lock that was taken with `herd` no single grant can be ended")
}
