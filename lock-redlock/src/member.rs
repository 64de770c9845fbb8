//! Who belongs to the deployment: marking it once, and telling a node that restarted.
//!
//! A node without data on its disk forgets its votes when it restarts, and would grant to a second holder what a first one
//! still holds. Each node keeps the run id of the process that was last known here. Every connection begins with a
//! comparison: another id, or none, sends the node into quarantine for `max_ttl`, by when every lease of the time before
//! has ended. A restart breaks all connections, so no vote slips through. An unmarked node is treated in the same way,
//! because it cannot be told from one that has lost everything; so a new deployment is marked once, by [`init`], and
//! takes `max_ttl` to become usable if that is forgotten.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lock_core::{Backoff, Error};
use lock_redis::scripts::held;
use tokio::runtime::Handle;

use crate::{
    Config,
    panel::{Panel, unavailable},
    scripts::{Standing, mark, read_standing, standing},
};

/// Marks the servers of `config` as the members of a *new* deployment, so that they vote at once. To be run once, before
/// any client connects; running it again changes nothing. With `restart_quarantine=off` there is nothing to mark.
///
/// # Errors
/// [`Error::Unavailable`] when a server does not answer, or when some servers are members and others are not: then this is
/// no new deployment, and the others have restarted without their data. They come back by themselves, `max_ttl` after
/// they were first connected to.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Cancel safety
/// When the future is dropped, some servers may be marked and others not; those take `max_ttl` to become usable.
pub async fn init(config: &Config) -> Result<(), Error> {
    config.check()?;
    if !config.restart_quarantine {
        return Ok(());
    }
    let mut plain = config.clone();
    // Without the check on each connection: it would find an unmarked node, which is what this is for.
    plain.restart_quarantine = false;
    let panel = Arc::new(Panel::new(plain, &Handle::current()));
    let result = mark_all(&panel).await;
    for node in &panel.nodes {
        node.close();
    }
    result
}

async fn mark_all(panel: &Arc<Panel>) -> Result<(), Error> {
    let clock = panel.clock();
    let deadline = clock.now().saturating_add(panel.config.connect_timeout);
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
    loop {
        let standings = ask_all(panel).await?;
        let unmarked: Vec<usize> =
            (0..panel.len()).filter(|&node| standings[node].member != standings[node].run_id).collect();
        if unmarked.is_empty() {
            return Ok(());
        }
        if standings.iter().all(|standing| standing.member.is_empty()) {
            break;
        }
        // Somebody else may be marking them in this moment.
        if clock.now() >= deadline {
            let reason = "not a member, while others are: it has restarted without its data";
            return Err(unavailable(panel, "is new", unmarked.into_iter().map(|node| (node, reason.to_owned()))));
        }
        clock.sleep(backoff.pause()).await;
    }
    let mut replies = panel.ask(|_| Some(mark().into()), held);
    let mut failed = Vec::new();
    while let Some((node, answer)) = replies.next_of_all().await {
        match answer {
            Ok(true) => {}
            Ok(false) => failed.push((node, "it has restarted in this moment".to_owned())),
            Err(silence) => failed.push((node, silence.reason())),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(unavailable(panel, "could be marked as a whole", failed)) }
}

async fn ask_all(panel: &Arc<Panel>) -> Result<Vec<Standing>, Error> {
    let mut replies = panel.ask(|_| Some(standing().into()), read_standing);
    let mut standings: Vec<Option<Standing>> = panel.nodes.iter().map(|_| None).collect();
    let mut failed = Vec::new();
    while let Some((node, answer)) = replies.next_of_all().await {
        match answer {
            Ok(standing) => standings[node] = Some(standing),
            Err(silence) => failed.push((node, silence.reason())),
        }
    }
    if !failed.is_empty() {
        return Err(unavailable(panel, "answers as a whole, and marking takes all of them", failed));
    }
    Ok(standings.into_iter().flatten().collect())
}

/// Connects to all nodes, as far as they answer: enough is a majority, but the others are given a moment, so that a server
/// that has two addresses is found out.
pub(crate) async fn meet(panel: &Arc<Panel>) -> Result<(), Error> {
    let mut replies = panel.ask(|_| Some(standing().into()), read_standing);
    let mut met: HashMap<String, usize> = HashMap::new();
    let mut failed = Vec::new();
    while let Some((node, answer)) = replies.next_of_all().await {
        match answer {
            Ok(standing) => {
                if let Some(other) = met.insert(standing.run_id, node) {
                    let twice = format!("{},{}", panel.address(other), panel.address(node));
                    return Err(Error::config("host", twice, "different servers: these two are one and the same"));
                }
            }
            Err(silence) => failed.push((node, silence.reason())),
        }
    }
    if met.len() < panel.majority() {
        return Err(unavailable(panel, "answers", failed));
    }
    Ok(())
}
