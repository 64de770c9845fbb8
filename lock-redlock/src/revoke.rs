//! A forced release: what a holder's own release sends to the nodes, by somebody else.

use std::sync::Arc;

use lock_core::{Contender, Error, LockName};

use crate::{
    inspect::inspect,
    nodes::{
        quorum::Quorum,
        requests::ask,
        scripts::{Claim, LockKeys, QueueChange, held},
    },
    protocol::kind::LockKind,
};

/// Ends the grant of `name` with this token; `None` when it is not there. A look tells by which value a majority holds it. That
/// value is of one round of one attempt, so it has one grant: an undo by it ends this grant or nothing.
///
/// All nodes are asked, and each leaves a tombstone, so that no request which is late joins it to the lease. A node that
/// does not answer is asked on in the background. Once a majority has answered, no majority has the lease: its holder hears that
/// at its next renewal, and whoever waits can be granted, whatever the others still keep.
pub(crate) async fn revoke(quorum: &Arc<Quorum>, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
    // Safeguard: a forced release compares the number (Redlock)
    let holder = inspect(quorum, name).await?.holders.into_iter().find(|holder| holder.token == Some(token));
    let Some(holder) = holder else { return Ok(None) };
    let Some(kind) = holder.mode.and_then(LockKind::of) else { return Ok(None) };
    let keys = LockKeys::new(&quorum.config.prefix, name);
    let claim = Claim { kind, keys, value: holder.id.clone(), ttl: quorum.max_ttl(), payload: Arc::new([]) };
    let undo = claim.undo(true, QueueChange::None);
    let mut replies = ask(quorum, |_| Some(undo.clone()), held);
    let (mut ended, mut answered, mut failed) = (0, 0, Vec::new());
    while let Some((node, reply)) = replies.next_of_any().await {
        match reply {
            Ok(was_held) => {
                answered += 1;
                ended += usize::from(was_held);
            }
            Err(no_reply) => {
                failed.push((node, no_reply.reason()));
                quorum.undo_later(node, "a forced release", undo.clone(), claim.ttl);
            }
        }
    }
    if answered < quorum.majority() {
        return Err(quorum.unavailable("confirms the forced release", failed));
    }
    // Of one that its holder has given back at the same time, on which other nodes, this was less than the end.
    Ok((ended >= quorum.majority()).then_some(holder))
}
