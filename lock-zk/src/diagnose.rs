//! What is wrong with an ensemble, for [`Driver::diagnose`](lock_core::Driver::diagnose): a session is opened with each server
//! by itself, and a node that ends with the first of these sessions is looked for through the others.
//!
//! The node shows that the user may write where the locks are, or where their root is going to be made, and that the servers
//! are of one ensemble. It is deleted at once. Nothing else is written.

mod judge;
mod words;

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use lock_core::{Backoff, Clock, Context, Diagnosis, diagnosis::with_causes};

use self::judge::{ServerLook, WriteLook};
use crate::{
    Config,
    wire::{Client, CreateMode, RequestError, Server, connect_string},
};

/// The node above all others.
const TOP: &str = "/";

/// A try to connect that fails after this was not refused: the server may be slow, and answer the next one.
const SLOW: Duration = Duration::from_secs(1);

/// How many tries have to fail sooner than that: a server may hang up once or twice while it starts.
const QUICK_FAILURES: u32 = 5;

/// Looks at the servers of `config`, which was checked.
pub(crate) async fn diagnose(config: &Config, context: &Context) -> Diagnosis {
    let mut diagnosis = Diagnosis::new();
    diagnosis.set_lease("session_timeout", config.session_timeout);
    let clock = context.clock();
    let sessions = join_all(config.servers.iter().map(|server| open(config, server, clock))).await;
    let words = join_all(
        config.servers.iter().map(|server| words::ask(config.security(), server, config.connect_timeout, clock)),
    )
    .await;
    let mut clients = Vec::new();
    let mut looks = Vec::new();
    for ((server, opened), words) in config.servers.iter().zip(sessions).zip(words) {
        let name = connect_string(std::slice::from_ref(server));
        let session = opened.map(|session| {
            diagnosis.answered(&name, session.connected_in, session.round_trip);
            diagnosis.fact(&name, "session time-out", format!("{:?}", session.client.session_timeout()));
            let negotiated = session.client.session_timeout();
            clients.push((name.clone(), session.client));
            negotiated
        });
        if let Some(version) = &words.version {
            diagnosis.fact(&name, "version", version);
        }
        if let Some(mode) = &words.mode {
            diagnosis.fact(&name, "mode", mode);
        }
        looks.push(ServerLook { server: name, session, words });
    }
    diagnosis.findings.extend(judge::servers(&looks));
    diagnosis.findings.extend(judge::sessions(config, &looks));
    if let Some(write) = write(config, &clients, context).await {
        diagnosis.fact(&config.root, "root", if write.root_exists { "exists" } else { "is made by the first lock" });
        diagnosis.findings.extend(judge::write(&config.root, &write));
    }
    diagnosis
}

/// A session that a diagnosis has opened with one server, and how long that took.
struct OpenSession {
    client: Arc<dyn Client>,
    connected_in: Duration,
    round_trip: Option<Duration>,
}

/// Opens a session with one server, within the connect limit.
async fn open(config: &Config, server: &Server, clock: Clock) -> Result<OpenSession, String> {
    let (ensemble, limit) = (config.ensemble(), config.connect_timeout);
    let servers = std::slice::from_ref(server);
    let begin = clock.now();
    let mut last = None;
    // The client library gives up sooner than the limit. Locks that connect go on, too.
    let connecting = async {
        let mut quick_failures = 0;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
        loop {
            let tried = clock.now();
            let error = match ensemble.connect(servers, config.session_timeout).await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            quick_failures += u32::from(clock.now().saturating_since(tried) < SLOW);
            if quick_failures == QUICK_FAILURES || !error.outcome().may_pass() {
                return Err(error);
            }
            last = Some(error);
            clock.sleep(backoff.pause()).await;
        }
    };
    let client = match clock.answer_timeout(limit, connecting).await {
        Some(Ok(client)) => client,
        Some(Err(error)) => return Err(with_causes(&error)),
        None => {
            let reason = last.map_or_else(|| "the server does not answer".to_owned(), |error| with_causes(&error));
            return Err(format!("{reason} (within {limit:?})"));
        }
    };
    let connected_in = clock.now().saturating_since(begin);
    let sent = clock.now();
    let answered = clock.answer_timeout(limit, client.sync("/")).await.is_some_and(|answer| answer.is_ok());
    let round_trip = answered.then(|| clock.now().saturating_since(sent));
    Ok(OpenSession { client, connected_in, round_trip })
}

/// Makes a node that ends with the first session, looks for it through the others, and deletes it. `None` without sessions, and
/// when it cannot be told.
async fn write(config: &Config, clients: &[(String, Arc<dyn Client>)], context: &Context) -> Option<WriteLook> {
    let ((_, first), others) = clients.split_first()?;
    let (clock, limit) = (context.clock(), config.connect_timeout);
    clock.timeout(limit, try_write(config, first.as_ref(), others, &context.unique_id())).await?
}

async fn try_write(
    config: &Config,
    first: &dyn Client,
    others: &[(String, Arc<dyn Client>)],
    id: &str,
) -> Option<WriteLook> {
    let (place, root_exists) = deepest(first, &config.root).await.ok()?;
    // No escaped lock name begins with a dot.
    let node = format!("{}/.lock-doctor-{id}", place.trim_end_matches('/'));
    let made = first.create(&node, b"", CreateMode::Ephemeral).await;
    let mut look = WriteLook { place, root_exists, refused: None, strangers: Vec::new() };
    match made {
        Ok(_) => {}
        Err(RequestError::Refused(cause)) => {
            look.refused = Some(cause.to_string());
            return Some(look);
        }
        Err(_) => return None,
    }
    for (server, client) in others {
        // So that a server that is behind catches up with its leader before it is asked.
        let seen = match client.sync(&node).await {
            Ok(()) => client.get_data(&node).await,
            Err(error) => Err(error),
        };
        if matches!(seen, Err(RequestError::NoNode)) {
            look.strangers.push(server.clone());
        }
    }
    // The node ends with its session in any case.
    let _ = first.delete(&node).await;
    Some(look)
}

/// The deepest node on the way to `root` that is there, and whether that is the root.
async fn deepest(client: &dyn Client, root: &str) -> Result<(String, bool), RequestError> {
    let mut path = root;
    loop {
        match client.get_data(if path.is_empty() { TOP } else { path }).await {
            Ok(_) => return Ok((if path.is_empty() { TOP } else { path }.to_owned(), path == root)),
            Err(RequestError::NoNode) if !path.is_empty() => {
                path = path.rsplit_once('/').map_or("", |(above, _)| above);
            }
            // A node that may not be read may be one that can be written to.
            Err(RequestError::Refused(_)) => return Ok((path.to_owned(), path == root)),
            Err(error) => return Err(error),
        }
    }
}
