//! What is wrong with Redis servers, for [`Driver::diagnose`](lock_core::Driver::diagnose): each server is looked at on a
//! connection of its own, as the user of the settings, and what is seen is judged apart from the asking.
//!
//! Nothing is written: the commands that a user has to be allowed are tried in forms that change nothing, on keys of a name
//! that nobody uses.

mod cluster;
mod judge;
mod leftovers;
mod look;
mod rights;
mod sentinel;

use lock_core::{Context, Diagnosis};

pub use self::{
    judge::{judge_clock, judge_durability, judge_server, judge_unreached},
    look::{ClockOffset, Persistence, ServerLook, Unreached, look},
    rights::{Denied, Rights},
};
use crate::{
    Config,
    config::{Deployment, Strategy},
    node::Address,
};

/// What the servers of an arrangement are to be, which decides how a look at one of them is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// One server, or one of several that know nothing of each other.
    Independent,
    /// The primary that sentinels name.
    Sentinel,
    /// A primary of a cluster.
    Cluster,
}

/// Looks at the servers of `config`, which was checked.
pub(crate) async fn diagnose(config: &Config, context: &Context) -> Diagnosis {
    let mut diagnosis = Diagnosis::new();
    diagnosis.set_lease("ttl", config.ttl);
    match &config.deployment {
        Deployment::Standalone => {
            let at = Address::new(&config.node.host, config.node.port);
            look_at_data_server(config, &at, Arrangement::Independent, context, &mut diagnosis).await;
        }
        Deployment::Sentinel(sentinel) => sentinel::diagnose(config, sentinel, context, &mut diagnosis).await,
        Deployment::Cluster(seeds) => cluster::diagnose(config, seeds, context, &mut diagnosis).await,
    }
    diagnosis
}

/// Looks at a server that has locks, and judges it by itself.
async fn look_at_data_server(
    config: &Config,
    at: &Address,
    arrangement: Arrangement,
    context: &Context,
    diagnosis: &mut Diagnosis,
) {
    let looked = look(&config.node.at(at), &needed_rights(config), context).await;
    report(looked, at, config, arrangement, diagnosis);
}

/// What a user of the servers of `config` has to be allowed.
fn needed_rights(config: &Config) -> Rights {
    let rights = match config.strategy {
        Strategy::Queue => Rights::queue(&config.prefix),
        Strategy::Plain { .. } => Rights::plain(&config.prefix),
    };
    let rights = if config.node.replicas.is_some() { rights.with_wait() } else { rights };
    match config.deployment {
        Deployment::Cluster(_) => rights.with_cluster(),
        _ => rights,
    }
}

/// Adds what a look at one server has shown.
fn report(
    looked: Result<ServerLook, Unreached>,
    at: &Address,
    config: &Config,
    arrangement: Arrangement,
    diagnosis: &mut Diagnosis,
) {
    let server = at.to_string();
    match looked {
        Ok(look) => {
            look.add_facts(&server, diagnosis);
            diagnosis.findings.extend(judge_server(&server, &look, arrangement));
            diagnosis.findings.extend(judge_clock(&server, &look));
            diagnosis.findings.extend(judge::judge_replicas(&server, &look, config.node.replicas));
            diagnosis.findings.extend(judge::judge_restart(&server, &look));
        }
        Err(unreached) => {
            unreached.add_facts(&server, diagnosis);
            diagnosis.find(judge_unreached(&server, config.node.username.as_deref(), &unreached));
        }
    }
}
