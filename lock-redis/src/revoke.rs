//! A forced release: the end of one grant, by the number of its token.

use std::{sync::Arc, time::Duration};

use lock_core::{Contender, Error, LockName};

use crate::{
    client::Client,
    protocol::{
        answers::done,
        attempt::{Attempt, Kind},
    },
    undo::go_on,
    watch::look,
};

/// Ends the grant of `name` with this token; `None` when it is not there. A look tells by which value it is held, and one script
/// compares value and number, and ends it: so whatever happens in between, it is that grant or nothing.
pub(crate) async fn revoke(client: &Arc<Client>, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
    let keys = client.keys(name)?;
    let holder = look(client, name).await?.holders.into_iter().find(|holder| holder.token == Some(token));
    let Some(holder) = holder else { return Ok(None) };
    let kind = match holder.mode {
        _ if keys.are_plain() => Kind::Plain,
        Some(mode) => Kind::of(mode)?,
        None => return Ok(None),
    };
    let attempt = Arc::new(Attempt::new(keys, kind, holder.id.clone(), client.config.ttl, Duration::ZERO));
    // Once: should the answer be lost, a second one would say that there is nothing to end.
    let answer = client.servers.call(attempt.revoke(token)).await;
    let done = answer.and_then(|answer| done(&answer)).map_err(|error| client.unavailable(error))?;
    go_on(client, &attempt, done.more);
    Ok(done.had.then_some(holder))
}
