//! What those see who look at a lock, and who follow it.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use futures_util::StreamExt;

use super::super::{
    Failure,
    failure::{CaseResult, ensure},
    limits::{LIMIT, within},
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{Contender, Feature, LockName, Mode, Snapshot, clock::wall_micros};

/// How far the clocks of one machine's processes may seem apart.
const GRANULARITY: Duration = Duration::from_secs(1);

/// Mode and arrival are as they must be, where they are shown.
fn plausible(contender: &Contender, mode: Mode) -> CaseResult {
    ensure!(contender.mode.is_none_or(|shown| shown == mode), "a contender for {mode} shows as {contender:?}");
    let now = UNIX_EPOCH + Duration::from_micros(wall_micros());
    ensure!(contender.since.is_none_or(|since| since <= now + GRANULARITY), "at {now:?} there is {contender:?}");
    Ok(())
}

fn only(seen: Snapshot) -> CaseResult<Contender> {
    ensure!(seen.holders.len() == 1, "what one holds shows as {seen:?}");
    seen.holders.into_iter().next().ok_or_else(|| Failure::new("nobody is shown"))
}

pub(super) async fn a_look_shows_how_and_since_when_a_lock_is_held_as_far_as_the_servers_tell(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    plausible(&only(second.inspect(&name).await?)?, Mode::Exclusive)?;
    guard.release().await?;
    ensure!(second.inspect(&name).await? == Snapshot::default(), "a free lock shows somebody");
    Ok(())
}

pub(super) async fn a_look_shows_all_readers_and_that_they_read(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let readers = [first.read(&name).await?, second.read(&name).await?];
    let seen = second.inspect(&name).await?;
    ensure!(seen.holders.len() == readers.len(), "two readers show as {seen:?}");
    for holder in &seen.holders {
        plausible(holder, Mode::Read)?;
        let shown = holder.token.is_none_or(|token| readers.iter().any(|reader| reader.token().number == token));
        ensure!(shown, "the tokens of {readers:?} show as {seen:?}");
    }
    for reader in readers {
        reader.release().await?;
    }
    ensure!(second.inspect(&name).await?.holders.is_empty(), "readers that went are still shown");
    Ok(())
}

pub(super) async fn a_look_shows_all_who_hold_a_permit(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 3;
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let permits = [first.permit(&name, OF).await?, second.permit(&name, OF).await?];
    let seen = second.inspect(&name).await?;
    ensure!(seen.holders.len() == permits.len(), "the holders of two permits show as {seen:?}");
    let of = std::num::NonZeroU32::new(OF).ok_or_else(|| Failure::new("there are permits"))?;
    for holder in &seen.holders {
        plausible(holder, Mode::Permit { of })?;
    }
    for permit in permits {
        permit.release().await?;
    }
    ensure!(second.inspect(&name).await?.holders.is_empty(), "holders that went are still shown");
    Ok(())
}

pub(super) async fn a_look_shows_those_who_wait_in_the_order_of_their_arrival(run: Arc<CaseRun>) -> CaseResult {
    const WAITERS: usize = 4;
    let name = run.name();
    let clients = run.connect_several(2).await?;
    let guard = clients[0].lock(&name).await?;
    let mut waiters = Vec::new();
    for waiter in 0..WAITERS {
        let mutex = clients[waiter % clients.len()].mutex(&name).payload(format!("waiter {waiter}").as_bytes());
        waiters.push(tokio::spawn(async move { mutex.lock().await }));
        in_line(&clients[0], &name, waiter + 1).await?;
    }
    let seen = clients[1].inspect(&name).await?;
    only(Snapshot::new(seen.holders, Vec::new()))?;
    for (place, waiter) in seen.queue.iter().enumerate() {
        plausible(waiter, Mode::Exclusive)?;
        let payload = String::from_utf8_lossy(&waiter.payload);
        ensure!(payload == format!("waiter {place}"), "in place {place} of the queue is {payload:?}");
    }
    let fifo = clients[0].supports(Feature::Fifo);
    guard.release().await?;
    // In their order where that is promised; all of them in any case.
    if fifo {
        for waiter in waiters {
            within("the next in line", waiter).await???.release().await?;
        }
    } else {
        for waiter in waiters {
            waiter.abort();
        }
    }
    run.nothing_left(&name).await
}

pub(super) async fn who_follows_a_lock_sees_its_holders_come_and_go(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut changes = first.locks().watch(name.as_str())?;
    for turn in 0..3 {
        follow(&mut changes, "nobody holds the lock", |seen| seen.holders.is_empty()).await?;
        let payload = format!("holder {turn}");
        let guard = within("an acquisition", second.mutex(&name).payload(payload.as_bytes()).lock()).await??;
        follow(
            &mut changes,
            "the holder has come",
            |seen| matches!(seen.holders.as_slice(), [holder] if holder.payload == payload.as_bytes()),
        )
        .await?;
        guard.release().await?;
    }
    follow(&mut changes, "the last holder has gone", |seen| seen.holders.is_empty()).await?;
    drop(changes);
    run.nothing_left(&name).await
}

pub(super) async fn who_follows_a_lock_is_told_the_end_when_the_connection_is_closed(run: Arc<CaseRun>) -> CaseResult {
    let name: LockName = run.name();
    let client = run.connect().await?;
    let mut changes = client.locks().watch(name.as_str())?;
    follow(&mut changes, "nobody holds the lock", |seen| seen.holders.is_empty()).await?;
    client.close(LIMIT).await??;
    let rest = within("the end of what is followed", changes.collect::<Vec<_>>()).await?;
    ensure!(rest.len() < 100, "after the end came {} more items", rest.len());
    let refused = client.locks().watch(name.as_str());
    ensure!(matches!(refused, Err(crate::Error::Closed)), "a closed connection can be followed");
    run.nothing_left(&name).await
}

/// Reads on until there is something to see.
async fn follow<S>(changes: &mut S, what: &str, seen: impl Fn(&Snapshot) -> bool + Sync) -> CaseResult
where
    S: futures_core::Stream<Item = Result<Snapshot, crate::Error>> + Unpin + Send,
{
    let reading = async {
        while let Some(change) = changes.next().await {
            if seen(&change?) {
                return Ok(());
            }
        }
        Err(Failure::new("the changes ended although the connection is open"))
    };
    within(what, reading).await?
}
