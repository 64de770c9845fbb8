//! The forced release: it ends the one grant whose token it is given, and no other, whenever it comes.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure, Kept,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::{AnyGuard, CheckedGuard},
    limits::within,
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{Clock, Contender, Error, Feature, FencingToken, LockName, Loss};

/// The holder that a forced release has ended.
fn ended(revoked: Option<Contender>) -> CaseResult<Contender> {
    revoked.ok_or_else(|| Failure::new("a forced release did not find the grant of its token"))
}

/// The holder learns of it, and for good.
async fn learns<G: AnyGuard>(guard: CheckedGuard<G>) -> CaseResult {
    let loss = within("the news of the forced release", guard.lost()).await?;
    ensure!(loss == Loss::Revoked, "a grant that was ended by force was lost because {loss}");
    match within("a release", guard.release()).await? {
        Err(Error::Lost { loss: Loss::Revoked, .. }) => Ok(()),
        other => Err(Failure::new(format!("the release of a revoked lock came back as {other:?}"))),
    }
}

/// Begins to wait for the lock. When this returns, it stands in line, where that can be seen.
async fn waiter(
    client: &CheckedClient,
    name: &LockName,
) -> CaseResult<tokio::task::JoinHandle<CaseResult<CheckedGuard>>> {
    let waiting = tokio::spawn({
        let (client, name) = (client.clone(), name.clone());
        async move { client.lock(&name).await }
    });
    if client.supports(Feature::Queue) {
        in_line(client, name, 1).await?;
    }
    Ok(waiting)
}

pub(super) async fn a_forced_release_ends_the_grant_of_its_token_and_the_next_in_line_is_granted(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [holder, next, operator] = [run.connect_watchful().await?, run.connect().await?, run.connect().await?];
    let guard = within("an acquisition", holder.mutex(&name).payload(b"host-7").lock()).await??;
    let waiting = waiter(&next, &name).await?;
    let shown = ended(operator.revoke(&guard).await?)?;
    ensure!(shown.payload == b"host-7", "the grant that was ended is shown as that of {shown:?}");
    ensure!(shown.token == Some(guard.token().number), "{guard:?} is shown as {shown:?}");
    let granted = waiting.await??;
    ensure!(granted.token() > guard.token(), "after {guard:?} came {granted:?}");
    ensure!(operator.revoke(&guard).await?.is_none(), "{guard:?} was ended twice");
    run.is_kept(&granted).await?;
    learns(guard).await?;
    // Nobody is locked out by it, and nobody else was let in.
    run.is_kept(&granted).await?;
    ensure!(holder.try_lock(&name).await?.is_none(), "a lock was granted twice after a forced release");
    granted.release().await?;
    holder.lock(&name).await?.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_forced_release_by_another_token_ends_nothing(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [holder, operator] = [run.connect().await?, run.connect().await?];
    let first = holder.lock(&name).await?;
    let old = first.token();
    first.release().await?;
    let none = within("a forced release", operator.locks().revoke(name.as_str(), old)).await??;
    ensure!(none.is_none(), "of a free lock a forced release ended {none:?}");
    let guard = holder.lock(&name).await?;
    let FencingToken { era, number } = guard.token();
    for number in [old.number, number - 1, number + 1, 0, u64::MAX] {
        let token = FencingToken { era, number };
        let revoked = within("a forced release", operator.locks().revoke(name.as_str(), token)).await??;
        ensure!(revoked.is_none(), "with the token {token} a forced release ended {revoked:?}, of {guard:?}");
    }
    // The number alone says nothing: it is another grant's in another era.
    let other_era = FencingToken { era: era + 1, number };
    match within("a forced release", operator.locks().revoke(name.as_str(), other_era)).await? {
        Err(Error::Config { value, .. }) => ensure!(value == other_era.to_string(), "it names the token {value}"),
        other => return Err(Failure::new(format!("a token of another era came back as {other:?}"))),
    }
    run.is_kept(&guard).await?;
    Ok(guard.release().await?)
}

pub(super) async fn a_forced_release_ends_one_reader_and_leaves_the_others(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second, operator] = [run.connect_watchful().await?, run.connect().await?, run.connect().await?];
    let [ended_one, left] = [first.read(&name).await?, second.read(&name).await?];
    ended(operator.revoke(&ended_one).await?)?;
    ensure!(run.kept(&ended_one).await? == Kept::Gone, "the servers have {ended_one:?}");
    run.is_kept(&left).await?;
    ensure!(operator.try_write(&name).await?.is_none(), "a writer came in beside {left:?}");
    learns(ended_one).await?;
    run.is_kept(&left).await?;
    left.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_forced_release_of_a_downgraded_writer_ends_the_reader_that_it_became(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [holder, operator] = [run.connect_watchful().await?, run.connect().await?];
    let writer = holder.write(&name).await?;
    let reader = writer.downgrade().await.map_err(Error::from)?;
    ended(operator.revoke(&reader).await?)?;
    operator.write(&name).await?.release().await?;
    learns(reader).await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_forced_release_ends_one_permit_and_leaves_the_others(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 2;
    let name = run.name();
    let [first, second, operator] = [run.connect_watchful().await?, run.connect().await?, run.connect().await?];
    let [ended_one, left] = [first.permit(&name, OF).await?, second.permit(&name, OF).await?];
    let lock = second.lock(&name).await?;
    ended(operator.revoke(&ended_one).await?)?;
    run.is_kept(&left).await?;
    run.is_kept(&lock).await?;
    // One place is free by it, and no more.
    let taken = operator.permit(&name, OF).await?;
    ensure!(operator.try_permit(&name, OF).await?.is_none(), "a forced release freed more than one permit");
    learns(ended_one).await?;
    for permit in [left, taken] {
        run.is_kept(&permit).await?;
        permit.release().await?;
    }
    lock.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn the_lock_delay_of_a_holder_stays_after_a_forced_release(run: Arc<CaseRun>) -> CaseResult {
    const DELAY: Duration = Duration::from_secs(1);
    let name = run.name();
    let [holder, operator] = [run.connect_watchful().await?, run.connect().await?];
    let clock = run.clock();
    let mutex = holder.mutex(&name).with(|mutex| mutex.lock_delay(DELAY));
    let guard = within("an acquisition", mutex.lock()).await??;
    let before = clock.now();
    ended(operator.revoke(&guard).await?)?;
    let next = operator.lock(&name).await?;
    // The servers count in milliseconds.
    let opened = clock.now().saturating_add(Duration::from_millis(2));
    ensure!(opened >= before.saturating_add(DELAY), "it was granted again before its lock delay was over");
    learns(guard).await?;
    next.release().await?;
    run.nothing_left(&name).await
}

/// How a holder's release ended, and whether the forced release that came with it has ended the grant.
#[derive(Debug, Default)]
struct RaceCounts {
    released: u32,
    revoked: u32,
    /// Each of both ended a part of it, on some of several servers, so that neither was told that it had ended it.
    shared: u32,
}

pub(super) async fn a_forced_release_in_a_race_with_the_holders_own_ends_exactly_one_grant(
    run: Arc<CaseRun>,
) -> CaseResult {
    const ROUNDS: u32 = 500;
    let name = run.name();
    let clients = run.connect_several(2).await?;
    let operator = run.connect().await?;
    let mut counts = RaceCounts::default();
    // How long a forced release took that had nobody beside it, about: the head start of the next one is a part of that.
    let mut takes = Duration::ZERO;
    let mut guard = clients[0].lock(&name).await?;
    for round in 1..=ROUNDS {
        let successor = &clients[usize::try_from(round % 2).unwrap_or_default()];
        let waiting = waiter(successor, &name).await?;
        let old = guard.token();
        guard.disturb();
        let (clock, began) = (Clock::runtime(), Clock::runtime().now());
        let revoke = async {
            let revoked = operator.locks().revoke(name.as_str(), old).await;
            (revoked, clock.now().saturating_since(began))
        };
        let release = async {
            if !takes.is_zero() {
                clock.sleep(takes.mul_f64(fastrand::f64())).await;
            }
            guard.release().await
        };
        // By turns the one or the other is polled first: without a network that decides.
        let ((revoked, took), released) = if round % 2 == 0 {
            within("a forced release and a release", async { tokio::join!(revoke, release) }).await?
        } else {
            let (released, revoked) =
                within("a release and a forced release", async { tokio::join!(release, revoke) }).await?;
            (revoked, released)
        };
        takes = took.min(Duration::from_millis(100));
        counts.add(revoked?.as_ref(), &released, old)?;
        guard = within("the next grant", waiting).await???;
        ensure!(guard.token() > old, "after the token {old} came {guard:?}");
        // Whatever of both came late, it has ended nothing of the next holder's.
        run.is_kept(&guard).await?;
    }
    guard.release().await?;
    let RaceCounts { released, revoked, shared } = counts;
    ensure!(released > 0 && revoked > 0, "one of both always came first, so they did not race: {counts:?}");
    let may_be_shared = if run.ends_grants_in_one_step() { 0 } else { ROUNDS / 10 };
    ensure!(shared <= may_be_shared, "too often neither of both was told that it had ended the grant: {counts:?}");
    run.nothing_left(&name).await
}

impl RaceCounts {
    fn add(&mut self, revoked: Option<&Contender>, released: &Result<(), Error>, token: FencingToken) -> CaseResult {
        let count = match (revoked, released) {
            (None, Ok(())) => &mut self.released,
            (Some(holder), Err(Error::Lost { loss: Loss::Revoked, .. })) if holder.token == Some(token.number) => {
                &mut self.revoked
            }
            (None, Err(Error::Lost { loss: Loss::Revoked, .. })) => &mut self.shared,
            _ => {
                return Err(Failure::new(format!(
                    "of {token} the forced release said {revoked:?}, the own {released:?}"
                )));
            }
        };
        *count += 1;
        Ok(())
    }
}
