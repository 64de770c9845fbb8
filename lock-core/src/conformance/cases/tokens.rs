//! Fencing tokens, and the lease behind a grant.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure, Kept,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use crate::{Error, FencingToken};

pub(super) async fn tokens_rise_over_10000_grants_from_several_connections(run: Arc<CaseRun>) -> CaseResult {
    const GRANTS: usize = 10_000;
    let name = run.name();
    let clients = run.connect_several(4).await?;
    let mut newest = FencingToken { era: 0, number: 0 };
    for grant in 0..GRANTS {
        let guard = clients[grant % clients.len()].lock(&name).await?;
        let token = guard.token();
        ensure!(token > newest, "grant {grant} has token {token}, the one before it {newest}");
        newest = token;
        // A dropped guard now and then, so that some grants follow a release in the background.
        if grant % 10 == 9 {
            drop(guard);
        } else {
            guard.release().await?;
        }
    }
    Ok(())
}

/// What the servers keep of a lock is gone with its deletion; what the numbers rise by is not.
pub(super) async fn tokens_rise_through_deletions_of_the_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut newest = None;
    for client in [&first, &second, &first, &first] {
        let guard = client.lock(&name).await?;
        ensure!(newest < Some(guard.token()), "the token {} was granted after {newest:?}", guard.token());
        newest = Some(guard.token());
        run.delete(&name).await?;
        // The next one comes while this one does not know yet, or has just learned it.
        let next = second.lock(&name).await?;
        ensure!(newest < Some(next.token()), "the token {} was granted after {newest:?}", next.token());
        newest = Some(next.token());
        let _ = guard.release().await;
        next.release().await?;
    }
    Ok(())
}

/// A holder that counted from the answers would be found out by the checker: with slow answers it believes in its lease for
/// longer than the servers keep it, by more than the margin.
pub(super) async fn validity_counts_from_the_sending_of_a_request_not_from_its_answer(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect_severable().await?;
    // A session counts no answer that took as long as a tick.
    let slow = client.capabilities().ttl.is_some();
    client.slow_down(Duration::from_millis(if slow { 150 } else { 15 })).await?;
    let mut renewals = 0;
    while renewals < 3 {
        let guard = client.lock(&name).await?;
        while renewals < 3 && is_renewed(&guard).await? {
            run.is_kept(&guard).await?;
            renewals += 1;
        }
        // A machine that stands still may have lost the lock, which says nothing about its validity before.
        match guard.release().await {
            Ok(()) | Err(Error::Lost { .. }) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Whether the guard is renewed before it is lost.
async fn is_renewed(guard: &CheckedGuard) -> CaseResult<bool> {
    let deadline = guard.valid_until();
    eventually("a slow renewal arrives, or the lock is lost", || async {
        let now = guard.valid_until();
        Ok((now.is_none() || now > deadline).then_some(now.is_some()))
    })
    .await
}

pub(super) async fn a_ttl_of_its_own_is_what_the_server_keeps(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    let Some(allowed) = client.capabilities().ttl else {
        return Err(Failure::new("a ttl can be chosen, and no range of them is named"));
    };
    let ttl = Duration::from_secs(5).clamp(*allowed.start(), *allowed.end());
    let asked = run.clock().now();
    let guard = within("an acquisition", client.mutex(&name).ttl(ttl).lock()).await??;
    let until = guard.valid_until().ok_or_else(|| Failure::new("the lock was lost at once"))?;
    let granted = run.clock().now();
    ensure!(until <= granted.saturating_add(ttl), "valid for longer than its ttl");
    // The lower bound is what a holder relies on: nearly all of the ttl, counted from when it was asked for.
    ensure!(until > asked.saturating_add(ttl / 2), "valid for less than half its ttl of {ttl:?}");
    if let Kept::For(rest) = run.kept(&guard).await? {
        ensure!(rest <= ttl, "the server keeps it for {rest:?}, asked for were {ttl:?}");
    }
    guard.release().await?;
    Ok(())
}
