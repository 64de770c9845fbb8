//! A list of locks: the names that a majority of the nodes shows as held.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;
use lock_core::{Error, LockName};
use lock_redis::{listing::held_on, protocol::list::Listing};

use crate::nodes::{
    quorum::Quorum,
    replies::{NoReply, Reply},
    requests::connect,
};

/// The names that begin with `prefix` and are held on a majority of the nodes. What a minority shows is no holder's, as for a
/// look at one lock.
pub(crate) async fn list(quorum: &Arc<Quorum>, prefix: &str) -> Result<Vec<LockName>, Error> {
    let listing = Listing::new(&quorum.config.prefix, prefix);
    let looks = (0..quorum.len()).map(|node| held(quorum, node, &listing));
    let (mut shown, mut answered, mut failed) = (BTreeMap::<LockName, usize>::new(), 0, Vec::new());
    for (node, held) in join_all(looks).await.into_iter().enumerate() {
        match held {
            Ok(names) => {
                answered += 1;
                names.into_iter().for_each(|name| *shown.entry(name).or_default() += 1);
            }
            Err(no_reply) => failed.push((node, no_reply.reason())),
        }
    }
    if answered < quorum.majority() {
        return Err(quorum.unavailable("answers", failed));
    }
    Ok(shown.into_iter().filter(|(_, nodes)| *nodes >= quorum.majority()).map(|(name, _)| name).collect())
}

async fn held(quorum: &Quorum, node: usize, listing: &Listing) -> Reply<BTreeSet<LockName>> {
    held_on(&connect(quorum, node).await?, listing).await.map_err(NoReply::Failed)
}
