//! `lock redlock`: what concerns a deployment and not a lock.

use humantime::format_duration;
use lock::{Config, InitOptions};

use crate::failure::{Failure, say};

/// Makes the servers of `config` a deployment, and says for how long it grants nothing.
pub(crate) async fn init(config: Config, no_holders: bool, reset: bool) -> Result<(), Failure> {
    let mut options = InitOptions::default();
    if no_holders {
        options = options.with_no_holders();
    }
    if reset {
        options = options.with_reset();
    }
    let wait = config.initialize(options).await?;
    if !wait.is_zero() {
        say(format_args!(
            "the deployment grants nothing for {}, because its servers may have forgotten who holds a lock \
             (--no-holders says that they are new)",
            format_duration(wait)
        ));
    }
    Ok(())
}

/// Puts another server in the place of a member, and says what holds until it votes.
pub(crate) async fn replace(config: Config, old: &str, new: &str) -> Result<(), Failure> {
    let replaced = config.replace(old, new).await?;
    say(format_args!("{new} has the place of {old}: give clients that start from now on the new list"));
    if !replaced.no_vote_for.is_zero() {
        say(format_args!(
            "for {} {new} gives no vote, because leases may stand of which it knows nothing: so long no other member may fail",
            format_duration(replaced.no_vote_for)
        ));
    }
    if !replaced.old_was_told {
        say(format_args!("{old} could not be told: stop it for good, or empty it before it comes back"));
    }
    Ok(())
}
