//! Elections: one leader after the other, and those who watch.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::within,
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{Clock, Error, Feature, Leader, Leaders, LockName, Term};

/// The next leader that an observer sees; errors on the way fail.
async fn next_leader(leaders: &mut Leaders) -> CaseResult<Leader> {
    match within("the next leader", leaders.next()).await? {
        Some(leader) => Ok(leader?),
        None => Err(Failure::new("the observation ended although the connection is open")),
    }
}

fn is_led_by(leader: &Leader, term: &CheckedGuard<Term>, payload: &[u8]) -> CaseResult {
    ensure!(
        leader.token == term.token() && leader.payload == payload && !leader.id.is_empty(),
        "{leader:?} was seen, and {term:?} leads with the payload {:?}",
        String::from_utf8_lossy(payload)
    );
    Ok(())
}

pub(super) async fn an_observer_sees_the_present_leader_and_then_each_next_one_in_the_order_of_their_tokens(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let mut term = within("a campaign", clients[0].election(&name).campaign(b"candidate 0")).await??;
    // One that was there before, one that comes now, and one over the leader's own connection.
    let mut observers = Vec::new();
    for client in &clients {
        observers.push(client.election(&name).observe()?);
    }
    let following = tokio::spawn(follow_in_order(clients[1].election(&name).observe()?, "candidate 4"));
    for turn in 1..5 {
        for observer in &mut observers {
            let leader = next_leader(observer).await?;
            is_led_by(&leader, &term, format!("candidate {}", turn - 1).as_bytes())?;
        }
        let campaign = campaign(&clients[turn % clients.len()], &name, format!("candidate {turn}"));
        if clients[0].supports(Feature::Queue) {
            // Who follows may be told of a change then, which is none of the leader.
            in_line(&clients[0], &name, 1).await?;
        }
        let before = term.token();
        term.release().await?;
        term = campaign.await??;
        ensure!(term.token() > before, "the token {} came after {before}", term.token());
    }
    for observer in &mut observers {
        is_led_by(&next_leader(observer).await?, &term, b"candidate 4")?;
    }
    within("the end of what is followed", following).await???;
    // One that comes late sees only who leads now.
    let mut late = clients[0].election(&name).observe()?;
    is_led_by(&next_leader(&mut late).await?, &term, b"candidate 4")?;
    term.release().await?;
    Ok(())
}

/// Reads on up to the leader with that payload: each comes once, and in the order of the tokens.
async fn follow_in_order(mut leaders: Leaders, last: &str) -> CaseResult {
    let mut newest = None;
    while let Some(leader) = leaders.next().await {
        let leader = leader?;
        ensure!(newest < Some(leader.token), "{leader:?} was seen after the token {newest:?}");
        newest = Some(leader.token);
        if leader.payload == last.as_bytes() {
            return Ok(());
        }
    }
    Err(Failure::new("the observation ended although the connection is open"))
}

fn campaign(
    client: &CheckedClient,
    name: &LockName,
    payload: String,
) -> tokio::task::JoinHandle<CaseResult<CheckedGuard<Term>>> {
    let election = client.election(name);
    tokio::spawn(async move { Ok(within("a campaign", election.campaign(payload.as_bytes())).await??) })
}

pub(super) async fn a_leader_that_resigns_hands_over_to_a_candidate(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for turn in 0..10 {
        let term = within("a campaign", first.election(&name).campaign(b"first")).await??;
        let validity = term.validity().clone();
        let candidate = campaign(&second, &name, "second".to_owned());
        // Resigned, or dropped.
        if turn % 2 == 0 {
            term.release().await?;
        } else {
            drop(term);
        }
        let next = candidate.await??;
        ensure!(!validity.is_valid(), "a term goes on after its end");
        // The election is the exclusive lock of its name.
        ensure!(first.try_lock(&name).await?.is_none(), "the lock was granted beside a leader");
        next.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn an_attempt_to_lead_beside_a_leader_is_refused_and_leaves_nothing(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let Some(term) = within("an attempt to lead", first.election(&name).try_campaign(b"first")).await?? else {
        return Err(Failure::new("nobody leads, and an attempt to lead was refused"));
    };
    for client in [&first, &second] {
        let beside = within("an attempt to lead", client.election(&name).try_campaign(b"second")).await??;
        ensure!(beside.is_none(), "{beside:?} leads beside {term:?}");
    }
    run.is_kept(&term).await?;
    term.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn an_observer_that_stopped_leaves_nothing(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    // Never looked at; looked at while nobody leads; while somebody leads.
    drop(first.election(&name).observe()?);
    let mut idle = first.election(&name).observe()?;
    tokio::select! {
        biased;
        leader = idle.next() => return Err(Failure::new(format!("nobody leads, and an observer sees {leader:?}"))),
        () = Clock::runtime().sleep(Duration::from_millis(50)) => drop(idle),
    }
    run.nothing_left(&name).await?;
    let term = within("a campaign", second.election(&name).campaign(b"second")).await??;
    let mut watching = first.election(&name).observe()?;
    is_led_by(&next_leader(&mut watching).await?, &term, b"second")?;
    drop(watching);
    term.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_leader_that_died_is_succeeded_and_its_term_ends(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [dying, second, third] = [run.connect_severable().await?, run.connect().await?, run.connect().await?];
    let dead = within("a campaign", dying.election(&name).campaign(b"first")).await??;
    let mut leaders = third.election(&name).observe()?;
    is_led_by(&next_leader(&mut leaders).await?, &dead, b"first")?;
    dying.hold().await?;
    let next = within("a campaign", second.election(&name).campaign(b"second")).await??;
    ensure!(!dead.is_valid(), "{dead:?} goes on beside {next:?}");
    ensure!(next.token() > dead.token(), "the token {} came after {}", next.token(), dead.token());
    within("the end of the term", dead.lost()).await?;
    is_led_by(&next_leader(&mut leaders).await?, &next, b"second")?;
    drop(dead);
    dying.heal().await;
    next.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn candidates_lead_in_the_order_in_which_they_came(run: Arc<CaseRun>) -> CaseResult {
    const CANDIDATES: usize = 5;
    let name = run.name();
    let clients = run.connect_several(2).await?;
    let term = within("a campaign", clients[0].election(&name).campaign(b"first")).await??;
    let mut candidates = Vec::new();
    for candidate in 0..CANDIDATES {
        candidates.push(campaign(&clients[candidate % clients.len()], &name, format!("candidate {candidate}")));
        in_line(&clients[0], &name, candidate + 1).await?;
    }
    let mut newest = term.token();
    term.release().await?;
    for candidate in candidates {
        // Had a later one been elected before, this one would wait for it.
        let term = candidate.await??;
        ensure!(term.token() > newest, "the token {} came after {newest}", term.token());
        newest = term.token();
        term.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn an_observer_that_was_out_of_reach_sees_errors_and_then_the_next_leader(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [observing, second] = [run.connect_severable().await?, run.connect().await?];
    let first = within("a campaign", second.election(&name).campaign(b"first")).await??;
    let mut leaders = observing.election(&name).observe()?;
    is_led_by(&next_leader(&mut leaders).await?, &first, b"first")?;
    observing.cut().await?;
    match within("news of the outage", leaders.next()).await? {
        Some(Err(Error::Unavailable { .. })) => {}
        other => return Err(Failure::new(format!("an observer out of reach was told {other:?}"))),
    }
    first.release().await?;
    let next = within("a campaign", second.election(&name).campaign(b"second")).await??;
    observing.heal().await;
    let seen = within("the next leader", async {
        loop {
            match leaders.next().await {
                Some(Ok(leader)) => return Ok(leader),
                Some(Err(_)) => {}
                None => return Err(Failure::new("the observation ended with an outage")),
            }
        }
    });
    is_led_by(&seen.await??, &next, b"second")?;
    next.release().await?;
    Ok(())
}
