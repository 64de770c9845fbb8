//! A look at a lock: who holds it and who waits.

use std::collections::{BTreeMap, BTreeSet};

use lock_core::{Contender, Error, LockName, Mode, Snapshot};

use crate::{
    connection::Connection,
    protocol::{
        queue::{self, ContenderKind, NodeName},
        sole,
        watch_budget::NO_WATCH,
    },
    session::Session,
    wire::{RequestError, Stat},
};

/// The contenders that earlier looks at a lock have read, by the names of their nodes. What a node says never changes.
pub(crate) type KnownContenders = BTreeMap<String, Contender>;

/// Who holds `name`, and who waits. On the thread only.
pub(crate) async fn inspect(zk: &Connection, name: &LockName) -> Result<Snapshot, Error> {
    let reservation = zk.reserve(NO_WATCH).await?;
    let session = &reservation.session;
    let directory = zk.directory(name)?;
    let look = async {
        // Whichever strategy is in use for this name shows, also to those who would use the other one.
        match session.list_synced(&directory).await {
            Err(RequestError::NoNode) => Ok(Snapshot::default()),
            Ok(children) if children.is_empty() && !zk.config().layout.is_foreign() => {
                at_sole(session, &directory).await
            }
            children => at_queue(session, &directory, &children?, &mut KnownContenders::new()).await,
        }
    };
    zk.while_connected(session, "inspect", look).await
}

/// Reads the nodes of all contenders among `children` that are not known yet.
pub(crate) async fn at_queue(
    session: &Session,
    directory: &str,
    children: &[String],
    known: &mut KnownContenders,
) -> Result<Snapshot, RequestError> {
    let occupants = queue::occupants(session.config().layout, children);
    let there: BTreeSet<_> = occupants.holders.iter().chain(&occupants.queue).map(|node| node.name).collect();
    known.retain(|name, _| there.contains(name.as_str()));
    let new: Vec<_> =
        occupants.holders.iter().chain(&occupants.queue).filter(|node| !known.contains_key(node.name)).collect();
    let paths: Vec<_> = new.iter().map(|node| format!("{directory}/{}", node.name)).collect();
    let answers = futures::future::join_all(paths.iter().map(|path| session.read(path))).await;
    for (node, answer) in new.into_iter().zip(answers) {
        match answer {
            Ok((payload, stat)) => {
                known.insert(node.name.to_owned(), contender(node, payload, &stat));
            }
            Err(RequestError::NoNode) => {} // It left meanwhile.
            Err(error) => return Err(error),
        }
    }
    let seen = |node: &NodeName<'_>| known.get(node.name).cloned();
    let waits = |mut waiter: Contender| {
        waiter.token = None;
        waiter
    };
    let holders = occupants.holders.iter().filter_map(seen).collect();
    Ok(Snapshot::new(holders, occupants.queue.iter().filter_map(seen).map(waits).collect()))
}

fn contender(node: &NodeName<'_>, payload: Vec<u8>, stat: &Stat) -> Contender {
    let token = match node.kind {
        ContenderKind::Read { was: Some(number) } => number,
        ContenderKind::Exclusive | ContenderKind::Read { was: None } | ContenderKind::Permit { .. } => stat.token(),
    };
    let contender = Contender::new(node.name).with_payload(payload).with_token(token).with_mode(node.kind.mode());
    contender.with_since_micros(micros(stat))
}

/// The holder by the strategy `herd`. Those who wait leave nothing that could be seen.
pub(crate) async fn at_sole(session: &Session, path: &str) -> Result<Snapshot, RequestError> {
    match session.read_synced(path).await {
        Ok((data, stat)) if stat.ephemeral_owner != 0 => {
            let (unique, payload) = sole::parts(&data);
            let holder = Contender::new(String::from_utf8_lossy(unique))
                .with_payload(payload)
                .with_token(stat.token())
                .with_mode(Mode::Exclusive)
                .with_since_micros(micros(&stat));
            Ok(Snapshot::new(vec![holder], Vec::new()))
        }
        Ok(_) | Err(RequestError::NoNode) => Ok(Snapshot::default()),
        Err(error) => Err(error),
    }
}

/// When a node was made, by the servers' wall clock.
fn micros(stat: &Stat) -> u64 {
    stat.ctime.unsigned_abs().saturating_mul(1000)
}
