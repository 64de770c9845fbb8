//! From writer to reader without a gap.

use std::sync::Arc;

use super::super::{
    Failure,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use super::{
    rwlock::{spawn_reader, spawn_writer, writer_waits},
    waiting::in_line,
};
use crate::{Error, Feature, Guard, WriteGuard};

/// Goes on as a reader, which is neither refused nor slow.
async fn downgraded(writer: CheckedGuard<WriteGuard>) -> CaseResult<CheckedGuard<Guard>> {
    let (token, until) = (writer.token(), writer.valid_until());
    let reader = within("a downgrade", writer.downgrade()).await??;
    ensure!(reader.token() == token, "the writer's token was {token}, the reader's is {}", reader.token());
    ensure!(reader.valid_until() >= until, "valid until {until:?} before the downgrade, and less after: {reader:?}");
    Ok(reader)
}

pub(super) async fn a_downgraded_writer_reads_on_with_its_token_and_other_readers_come_in(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for _ in 0..5 {
        let writer = first.write(&name).await?;
        let waiting = [spawn_reader(&first, &name), spawn_reader(&second, &name)];
        let reader = downgraded(writer).await?;
        run.is_kept(&reader).await?;
        let mut others = Vec::new();
        for waiter in waiting {
            others.push(waiter.await??);
        }
        let Some(another) = second.try_read(&name).await? else {
            return Err(Failure::new("a reader was refused beside a downgraded writer"));
        };
        others.push(another);
        ensure!(second.try_write(&name).await?.is_none(), "a writer was granted beside readers");
        run.is_kept(&reader).await?;
        reader.release().await?;
        for other in others {
            run.is_kept(&other).await?;
            other.release().await?;
        }
        run.nothing_left(&name).await?;
    }
    Ok(())
}

pub(super) async fn no_writer_comes_in_at_a_downgrade_also_none_that_waited_before(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    for _ in 0..5 {
        let writer = clients[0].write(&name).await?;
        let waiting = spawn_writer(&clients[1], &name);
        if clients[0].supports(Feature::Queue) {
            in_line(&clients[0], &name, 1).await?;
        }
        let reader = downgraded(writer).await?;
        // Behind that writer no other reader comes in any more, and it does not come in itself. The checker would find
        // both of them valid.
        writer_waits(&clients[2], &name).await?;
        ensure!(clients[2].try_write(&name).await?.is_none(), "a writer was granted beside a downgraded one");
        run.is_kept(&reader).await?;
        ensure!(!waiting.is_finished(), "a writer was granted beside a downgraded one");
        reader.release().await?;
        waiting.await??.release().await?;
        run.nothing_left(&name).await?;
    }
    Ok(())
}

pub(super) async fn a_downgraded_writer_is_renewed_on(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let reader = downgraded(first.write(&name).await?).await?;
    let beyond = run.clock().now().saturating_add(reader.remaining() * 2);
    eventually("it is held for twice its ttl", || async {
        ensure!(reader.is_valid(), "{reader:?} was lost although it is renewed");
        Ok((run.clock().now() > beyond).then_some(()))
    })
    .await?;
    run.is_kept(&reader).await?;
    ensure!(second.try_write(&name).await?.is_none(), "a writer was granted beside a reader that is renewed");
    reader.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_downgrade_of_a_lost_lock_is_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect_watchful().await?;
    let writer = client.write(&name).await?;
    run.delete(&name).await?;
    within("the news that the lock was deleted", writer.lost()).await?;
    is_lost(within("a downgrade", writer.downgrade()).await?.map_err(Error::from))?;
    // Before the news has come, too.
    let writer = client.write(&name).await?;
    run.delete(&name).await?;
    is_lost(within("a downgrade", writer.downgrade()).await?.map_err(Error::from))?;
    client.write(&name).await?.release().await?;
    run.nothing_left(&name).await
}

fn is_lost(downgraded: Result<CheckedGuard, Error>) -> CaseResult {
    match downgraded {
        Err(Error::Lost { .. }) => Ok(()),
        other => Err(Failure::new(format!("the downgrade of a lost lock came back as {other:?}"))),
    }
}

pub(super) async fn a_downgrade_that_does_not_reach_the_server_is_made_good(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let writer = first.write(&name).await?;
    let validity = writer.validity().clone();
    first.hold().await?;
    match within("a downgrade that cannot arrive", writer.downgrade()).await?.map_err(Error::from) {
        Err(Error::Unavailable { .. } | Error::Lost { .. }) => {}
        other => return Err(Failure::new(format!("a downgrade that cannot have arrived came back as {other:?}"))),
    }
    ensure!(!validity.is_valid(), "a failed downgrade leaves the writer valid");
    first.heal().await;
    second.write(&name).await?.release().await?;
    run.nothing_left(&name).await
}
