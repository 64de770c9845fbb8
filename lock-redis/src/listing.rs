//! A list of the locks that are held: the keys of all servers, a bounded number in each step.

use std::collections::BTreeSet;

use lock_core::{Error, LockName};

use crate::{
    client::Client,
    config::Strategy,
    node::{Connection, FailureKind, Node, NodeError},
    protocol::list::Listing,
};

/// The names of `listing` that have a holder on the server at the other end. All steps go down one connection: a cursor is good
/// on the server that gave it, and on no other.
///
/// # Errors
/// [`NodeError`]
pub async fn held_on(connection: &Connection, listing: &Listing) -> Result<BTreeSet<LockName>, NodeError> {
    let (mut names, mut cursor) = (BTreeSet::new(), "0".to_owned());
    loop {
        let (next, found) = listing.found(&connection.call(listing.step(&cursor)).await?)?;
        names.extend(found);
        if next == "0" {
            return Ok(names);
        }
        cursor = next;
    }
}

/// The names that begin with `prefix` and have a holder.
pub(crate) async fn list(client: &Client, prefix: &str) -> Result<Vec<LockName>, Error> {
    let listing = match client.config.strategy {
        Strategy::Queue => Listing::new(&client.config.prefix, prefix),
        Strategy::Plain { .. } => Listing::plain(&client.config.prefix, prefix),
    };
    let all = async {
        let nodes = client.servers.all().await?;
        futures::future::try_join_all(nodes.iter().map(|node| held(node, &listing))).await
    };
    let names: BTreeSet<LockName> =
        all.await.map_err(|error| client.unavailable(error))?.into_iter().flatten().collect();
    Ok(names.into_iter().collect())
}

/// What is held on one server, read from the beginning once more should the connection break.
async fn held(node: &Node, listing: &Listing) -> Result<BTreeSet<LockName>, NodeError> {
    match held_on(&node.connection().await?, listing).await {
        Err(error) if error.kind() == FailureKind::Connection => held_on(&node.connection().await?, listing).await,
        held => held,
    }
}
