//! What is refused before any server is asked.

use std::{sync::Arc, time::Duration};

use super::super::{
    failure::{CaseResult, ensure},
    limits::within,
    run::CaseRun,
};
use crate::{Error, LockName, Request};

pub(super) async fn a_name_that_is_not_allowed_is_refused(run: Arc<CaseRun>) -> CaseResult {
    let client = run.connect().await?;
    let locks = client.locks();
    let too_long = "n".repeat(LockName::MAX_BYTES + 1);
    for name in ["", "\0", "a\0b", &too_long] {
        let refused = [
            within("an acquisition", locks.mutex(name).lock()).await?.err(),
            within("an attempt", locks.mutex(name).try_lock()).await?.err(),
            within("a look", locks.inspect(name)).await?.err(),
        ];
        for error in refused {
            ensure!(matches!(error, Some(Error::InvalidName { .. })), "the name {name:?} was answered with {error:?}");
        }
    }
    Ok(())
}

pub(super) async fn a_payload_that_is_too_long_is_refused(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    let mutex = client.mutex(&name);
    let longest = vec![b'p'; Request::MAX_PAYLOAD];
    within("an acquisition", mutex.clone().payload(&longest).lock()).await??.release().await?;
    let too_long = vec![b'p'; Request::MAX_PAYLOAD + 1];
    let refused = within("an acquisition", mutex.clone().payload(&too_long).lock()).await?;
    ensure!(matches!(refused, Err(Error::Config { .. })), "a payload that is too long came back as {refused:?}");
    run.nothing_left(&name).await
}

pub(super) async fn a_ttl_that_is_not_allowed_is_refused(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    let refused = within("an acquisition", client.mutex(&name).ttl(Duration::ZERO).lock()).await?;
    ensure!(matches!(refused, Err(Error::Config { .. })), "a ttl of nothing came back as {refused:?}");
    run.nothing_left(&name).await
}
