//! One contest on one backend.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lock::Locks;
use lock_core::{BootInstant, Clock, FencingToken};
use tokio::{
    sync::{Barrier, mpsc},
    task::JoinSet,
};

use super::Options;
use crate::{
    LabError,
    progress::Progress,
    report::{in_millis, millis},
};

/// One contender's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Which contender, from 1.
    pub node: usize,
    /// Its place in line, from 1: in the server's own queue where there is one, else in the order of asking.
    pub place: usize,
    /// Its fencing token.
    pub token: FencingToken,
    /// From asking to the grant.
    pub waited: Duration,
}

/// What a contender of the demo reports: that it has asked for the lock, or was granted it.
enum ContenderReport {
    Asked { node: usize, at: BootInstant },
    Granted { node: usize, token: FencingToken, waited: Duration },
}

/// How long the contenders may take until all stand in line.
const LINE_UP_LIMIT: Duration = Duration::from_secs(30);
/// How long a contender may wait beyond all the holds before its own.
const WAIT_LIMIT: Duration = Duration::from_secs(60);
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Lets all contenders line up for a lock that is held, then releases it, and follows the grants.
pub(super) async fn run(url: &str, options: &Options, progress: &Progress) -> Result<Vec<Turn>, LabError> {
    // On servers that others use, too, a lock that nobody else wants.
    let name = format!("demo/{:016x}", fastrand::u64(..));
    let starter = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
    let first = starter.mutex(&name).lock().await.map_err(LabError::lock("acquiring"))?;
    let (events, mut inbox) = mpsc::unbounded_channel();
    let mut contenders = contenders(url, &name, options, &events).await?;
    drop(events);

    progress.shows("the contenders line up".into());
    let asked = asked(&mut inbox, options.nodes).await;
    let places = match queue_places(&starter, &name, options.nodes).await? {
        Some(places) => places,
        None => (1..).zip(asked).map(|(place, node)| (node, place)).collect(),
    };
    first.release().await.map_err(LabError::lock("releasing"))?;

    let mut turns = Vec::new();
    while let Some(event) = inbox.recv().await {
        let ContenderReport::Granted { node, token, waited } = event else { continue };
        let turn = Turn { node, place: places.get(&node).copied().unwrap_or(0), token, waited };
        turns.push(turn);
        progress.line(&line(turns.len(), &turn))?;
        progress.done(1);
        progress.shows(format!("held by {}", title(node)));
    }
    while let Some(ended) = contenders.join_next().await {
        LabError::joined(ended)??;
    }
    // The contest is over; what a connection leaves behind ends with its ttl.
    let _ = starter.close(CLOSE_LIMIT).await;
    Ok(turns)
}

/// The tasks of the demo's contenders.
type ContenderTasks = JoinSet<Result<(), LabError>>;

/// Connects all contenders and has them ask at once.
async fn contenders(
    url: &str,
    name: &str,
    options: &Options,
    events: &mpsc::UnboundedSender<ContenderReport>,
) -> Result<ContenderTasks, LabError> {
    let start = Arc::new(Barrier::new(options.nodes));
    let mut contenders = JoinSet::new();
    for node in 1..=options.nodes {
        let locks = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
        let limit = WAIT_LIMIT + options.hold * u32::try_from(options.nodes).unwrap_or(u32::MAX);
        let mutex = locks.mutex(name).payload(title(node).into_bytes()).timeout(limit);
        let (events, start, hold) = (events.clone(), Arc::clone(&start), options.hold);
        contenders.spawn(async move {
            let clock = Clock::boot();
            start.wait().await;
            let at = clock.now();
            // Nobody listens any more when the contest has failed elsewhere.
            let _ = events.send(ContenderReport::Asked { node, at });
            let guard = mutex.lock().await.map_err(LabError::lock("waiting for the lock"))?;
            let waited = clock.now().saturating_since(at);
            let _ = events.send(ContenderReport::Granted { node, token: guard.token(), waited });
            drop(events);
            clock.sleep(hold).await;
            guard.release().await.map_err(LabError::lock("releasing"))?;
            locks.close(CLOSE_LIMIT).await.map_err(LabError::lock("disconnecting"))
        });
    }
    Ok(contenders)
}

/// The contenders in the order in which they asked, once all have.
async fn asked(inbox: &mut mpsc::UnboundedReceiver<ContenderReport>, nodes: usize) -> Vec<usize> {
    let mut asked = Vec::new();
    while asked.len() < nodes {
        match inbox.recv().await {
            Some(ContenderReport::Asked { node, at }) => asked.push((at, node)),
            Some(ContenderReport::Granted { .. }) => {}
            None => break,
        }
    }
    asked.sort_unstable();
    asked.into_iter().map(|(_, node)| node).collect()
}

/// The contenders' places in the server's queue, once all stand there; `None` where the server has none.
async fn queue_places(locks: &Locks, name: &str, nodes: usize) -> Result<Option<HashMap<usize, usize>>, LabError> {
    if !locks.capabilities().supports(lock::Feature::Fifo) {
        return Ok(None);
    }
    let clock = Clock::boot();
    let lined_up = async {
        loop {
            let snapshot = locks.inspect(name).await.map_err(LabError::lock("looking at the queue"))?;
            if snapshot.queue.len() == nodes {
                return Ok(snapshot.queue);
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    let late = || LabError::run(format!("not all contenders stand in line after {LINE_UP_LIMIT:?}"));
    let queue = clock.timeout(LINE_UP_LIMIT, lined_up).await.ok_or_else(late)??;
    let node = |payload: &[u8]| (1..=nodes).find(|node| title(*node).as_bytes() == payload);
    Ok(Some((1..).zip(queue).filter_map(|(place, one)| Some((node(&one.payload)?, place))).collect()))
}

fn title(node: usize) -> String {
    format!("node-{node:02}")
}

fn line(number: usize, turn: &Turn) -> String {
    let (node, waited) = (title(turn.node), millis(in_millis(turn.waited)));
    format!("  grant {number:>2}  {node}  place {:>2}  token {}  waited {waited:>9}", turn.place, turn.token)
}
