//! Making servers a deployment: the record and the stamps.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use lock_core::{Context, Error};

use crate::{
    Config,
    members::servers::{Statuses, ask_all, mark, not_a_member, refuse_same_server},
    nodes::{quorum::Quorum, scripts::mark_member},
    protocol::deployment::{Deployment, ServerStatus, common, never_made},
};

/// Options of [`init`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InitOptions {
    no_holders: bool,
    reset: bool,
}

impl InitOptions {
    /// As [`InitOptions::default`].
    #[must_use]
    pub const fn new() -> Self {
        Self { no_holders: false, reset: false }
    }

    /// Says that nobody holds a lock on these servers, because no client has ever used them: so the servers vote at once. A
    /// deployment that lost the data of all servers looks the same as a new one and may have holders, so use this only for
    /// new deployments. The option has no effect where a server is a member already.
    #[must_use]
    pub const fn with_no_holders(mut self) -> Self {
        self.no_holders = true;
        self
    }

    /// Makes the servers a new deployment whatever they were, with the members and limits of the configuration. Clients
    /// whose settings allow it go on with the new deployment; other clients lose their locks. Nothing is granted until every
    /// lease of the old deployment has ended.
    #[must_use]
    pub const fn with_reset(mut self) -> Self {
        self.reset = true;
        self
    }
}

/// Makes the servers of `config` a deployment: writes on each of them an id, the members, `max_ttl`, and whether a
/// restarted server gives no vote for that time. To be called once, before any client connects. Called again with the same
/// settings, it makes servers that have lost their data members again, completes what was begun, and changes nothing else.
///
/// Returns for how long the servers give no vote: zero for an existing deployment, and with
/// [`InitOptions::with_no_holders`]. Otherwise `max_ttl`, because servers that have lost all their data cannot be told from
/// new ones, and somebody may still hold a lock by their old votes.
///
/// # Errors
/// [`Error::Config`] when some servers are members of a deployment with other members or limits, with what differs, or two
/// addresses lead to one server; [`Error::Unavailable`] when a server does not answer: this takes all of them.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Cancel safety
/// When the future is dropped, some servers may be members and others not. Calling it again completes it. A request that was
/// still on its way may mark a server for the first call after the second one has looked: then the servers are of two
/// deployments, clients that reach both are refused, and the next call makes them one. The same holds after an error.
pub async fn init(config: &Config, options: InitOptions) -> Result<Duration, Error> {
    init_in(config, options, Context::current()).await
}

/// As [`init`], with the time, the tasks and the ids of `context`.
///
/// # Errors
/// As [`init`].
///
/// # Cancel safety
/// As [`init`].
pub async fn init_in(config: &Config, options: InitOptions, context: Context) -> Result<Duration, Error> {
    config.check()?;
    let quorum = Arc::new(Quorum::new(config.clone(), context));
    let result = init_all(&quorum, options).await;
    quorum.close();
    result
}

async fn init_all(quorum: &Arc<Quorum>, options: InitOptions) -> Result<Duration, Error> {
    let (statuses, failed) = ask_all(quorum).await;
    if !failed.is_empty() {
        return Err(quorum.unavailable("answers as a whole, and marking takes all of them", failed));
    }
    refuse_same_server(quorum, &statuses)?;
    if options.reset {
        return reset(quorum, &statuses, options).await;
    }
    let named = || statuses.iter().map(|(node, status)| (quorum.address(*node), status));
    let remnants = never_made(named());
    match common(named().filter(|(address, _)| !remnants.contains(address)))? {
        None => {
            let deployment = Deployment::new(new_id(&quorum.context), &quorum.config);
            // Safeguard: init pardons nobody who may have forgotten (Redlock)
            let absence = if options.no_holders { Duration::ZERO } else { deployment.rejoin_quarantine() };
            mark_all(quorum, &deployment, &statuses, absence).await?;
            Ok(absence)
        }
        Some(deployment) => complete(quorum, &deployment, &statuses, &remnants).await,
    }
}

/// Makes servers members that have lost their data, or were left with a deployment that was never made.
async fn complete(
    quorum: &Arc<Quorum>,
    deployment: &Deployment,
    statuses: &Statuses,
    remnants: &BTreeSet<String>,
) -> Result<Duration, Error> {
    deployment.admit(&quorum.config)?;
    // The list of the configuration is from before a server was replaced.
    if let Some((node, _)) = statuses.iter().find(|(_, status)| deployment.was_replaced(&status.stamp)) {
        return Err(not_a_member(deployment, quorum.address(*node)));
    }
    let is_joining =
        |(node, status): &(&usize, &ServerStatus)| status.is_unmarked() || remnants.contains(&quorum.address(**node));
    let joining: Statuses = statuses.iter().filter(is_joining).map(|(node, status)| (*node, status.clone())).collect();
    for node in joining.keys() {
        let address = quorum.address(*node);
        if deployment.named(&address).is_none() {
            return Err(not_a_member(deployment, address));
        }
    }
    let absence = until_leases_end(deployment, &joining);
    mark_all(quorum, deployment, &joining, absence).await?;
    // The other servers vote, so the deployment does at once if they are a majority.
    let others = quorum.len() - joining.len();
    Ok(if others >= quorum.majority() { Duration::ZERO } else { absence })
}

/// Makes a new deployment of the servers, whatever they were.
async fn reset(quorum: &Arc<Quorum>, statuses: &Statuses, options: InitOptions) -> Result<Duration, Error> {
    let deployment = Deployment::new(new_id(&quorum.context), &quorum.config);
    let is_new = statuses.values().all(ServerStatus::is_unmarked);
    let absence = match options.no_holders && is_new {
        true => Duration::ZERO,
        false => until_leases_end(&deployment, statuses),
    };
    mark_all(quorum, &deployment, statuses, absence).await?;
    Ok(absence)
}

/// For how long servers give no vote that are made members of `deployment`: what they were members of before may have leases,
/// and so may a deployment that they have lost.
fn until_leases_end(deployment: &Deployment, servers: &Statuses) -> Duration {
    // Safeguard: a server that comes from another deployment gives no vote until the leases of both have ended (Redlock)
    let before = servers.values().filter_map(|status| Some(status.deployment.as_ref()?.max_ttl)).max();
    before.unwrap_or_default().max(deployment.rejoin_quarantine())
}

async fn mark_all(
    quorum: &Arc<Quorum>,
    deployment: &Deployment,
    seen: &Statuses,
    absence: Duration,
) -> Result<(), Error> {
    let call = |node: usize| {
        let status = seen.get(&node)?;
        let member = deployment.named(&quorum.address(node))?;
        Some(mark_member(deployment, member, &status.stamp, absence))
    };
    let (_, failed) = mark(quorum, call).await;
    if failed.is_empty() { Ok(()) } else { Err(quorum.unavailable("could be marked as a whole", failed)) }
}

fn new_id(context: &Context) -> String {
    // Half of an id is unique enough, and it is sent with each vote.
    let mut id = context.unique_id();
    id.truncate(16);
    id
}
