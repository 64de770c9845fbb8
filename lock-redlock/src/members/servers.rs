//! Asking servers what they are, and marking them as members.

use std::{collections::BTreeMap, sync::Arc};

use lock_core::Error;
use lock_redis::node::ScriptCall;

use crate::nodes::scripts::held;

use crate::{
    nodes::{
        quorum::Quorum,
        requests::ask,
        scripts::{read_status, status},
    },
    protocol::deployment::{Deployment, ServerStatus},
};

/// What the servers say of themselves, by node.
pub(crate) type Statuses = BTreeMap<usize, ServerStatus>;

/// What an operator does about servers that are no members.
pub(crate) const INIT_HINT: &str = "mark them with `lock redlock init`";

/// What a server with this stamp is called in messages.
pub(crate) fn stranger(stamp: &str) -> String {
    match stamp {
        "" => "it was never marked as a member, or has lost its data".to_owned(),
        stamp => format!("it is marked as another member, {stamp:?}"),
    }
}

/// The statuses of the nodes that answer, and why the others do not.
pub(crate) async fn ask_all(quorum: &Arc<Quorum>) -> (Statuses, Vec<(usize, String)>) {
    ask_some(quorum, |_| true).await
}

/// As [`ask_all`], of some of the nodes.
pub(crate) async fn ask_some(quorum: &Arc<Quorum>, of: impl Fn(usize) -> bool) -> (Statuses, Vec<(usize, String)>) {
    let (statuses, failed) = ask(quorum, |node| of(node).then(status), read_status).all().await;
    (statuses.into_iter().collect(), failed)
}

/// Marks each node by its call, if it has one. Returns the marked nodes, and why the others were not marked.
pub(crate) async fn mark(
    quorum: &Arc<Quorum>,
    call: impl Fn(usize) -> Option<ScriptCall>,
) -> (Vec<usize>, Vec<(usize, String)>) {
    let (answers, mut failed) = ask(quorum, call, held).all().await;
    let (marked, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, is_marked)| *is_marked);
    let reason = || "somebody else has marked it in this moment".to_owned();
    failed.extend(refused.into_iter().map(|(node, _)| (node, reason())));
    (marked.into_iter().map(|(node, _)| node).collect(), failed)
}

/// Refuses two addresses that lead to one server.
pub(crate) fn refuse_same_server(quorum: &Quorum, statuses: &Statuses) -> Result<(), Error> {
    let mut met: BTreeMap<&str, usize> = BTreeMap::new();
    for (node, status) in statuses {
        if let Some(other) = met.insert(&status.run_id, *node) {
            let twice = format!("{},{}", quorum.address(other.min(*node)), quorum.address(other.max(*node)));
            return Err(Error::config("host", twice, "different servers: these two are one and the same"));
        }
    }
    Ok(())
}

/// Says that `address` belongs to no member.
pub(crate) fn not_a_member(deployment: &Deployment, address: String) -> Error {
    let members = format!("the members of the deployment {}: {}", deployment.id, deployment.list());
    Error::config("host", address, members)
}

/// Says that the servers at `addresses` were never marked.
pub(crate) fn no_deployment(addresses: String) -> Error {
    Error::config("host", addresses, format!("servers of a deployment; these are of none yet, {INIT_HINT}"))
}
