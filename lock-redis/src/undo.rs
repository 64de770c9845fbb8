//! What is given back in the background: attempts of unknown outcome, releases without an answer, and grants that one script
//! left to the next one.

use std::sync::Arc;

use crate::{
    client::Client,
    node::{Connection, FailureKind, NodeError},
    protocol::{
        TOMBSTONE,
        answers::{Done, beaten, done},
        attempt::Attempt,
    },
};

/// Has the cleanup take back whatever an attempt has: first down its own connection, where the undo comes after it for
/// certain; else on another one, with a tombstone should it come later.
pub(crate) fn undo(client: &Arc<Client>, attempt: &Arc<Attempt>, own: Option<Connection>) {
    // What the request takes ends one ttl after the request has arrived, which it may do for as long as a tombstone is kept.
    // Safeguard: an undo goes on for as long as what it undoes may arrive (Redis)
    let until = client.clock().now().saturating_add(TOMBSTONE.saturating_add(attempt.ttl));
    let (context, client, attempt, mut own) = (client.context.clone(), Arc::clone(client), Arc::clone(attempt), own);
    context.cleanup().clean("an acquisition of unknown outcome", until, move || {
        let (client, attempt, own) = (Arc::clone(&client), Arc::clone(&attempt), own.take());
        async move {
            if let Some(own) = own {
                if let Ok(left) = own.call(attempt.leave()).await.and_then(|answer| done(&answer)) {
                    go_on(&client, &attempt, left.more);
                    return Ok(());
                }
                // Without any answer it may still deliver the acquisition, and after the tombstone has ended.
                if own.is_broken() {
                    own.end();
                }
            }
            let undone = client.servers.call(attempt.undo()).await.and_then(|answer| done(&answer));
            let undone = undone.map_err(|error| error.into_error(&client.config.url()))?;
            go_on(&client, &attempt, undone.more);
            Ok(())
        }
    });
}

/// Leaves a tombstone, in the background, for an attempt that was given back although the first of its two requests may
/// still be on its way: it would take the lock for nobody.
pub(crate) fn bury(client: &Arc<Client>, attempt: &Arc<Attempt>) {
    if attempt.is_sent_again() && lock_core::safeguard("bury") {
        undo(client, attempt, None);
    }
}

/// Has the cleanup release what could not be released, until it has ended by itself.
pub(crate) fn leave_to_cleanup(client: &Arc<Client>, attempt: &Arc<Attempt>) {
    let until = client.clock().now().saturating_add(attempt.ttl);
    let (context, client, attempt) = (client.context.clone(), Arc::clone(client), Arc::clone(attempt));
    context.cleanup().clean("a release without an answer", until, move || {
        let (client, attempt) = (Arc::clone(&client), Arc::clone(&attempt));
        async move {
            let released = give_back(&client, &attempt).await;
            released.map(drop).map_err(|error| error.into_error(&client.config.url()))
        }
    });
}

/// Releases; false when it was not held any more. When the connection broke, tries once more on the next one: a lock that is
/// not given back stands in everybody's way.
pub(crate) async fn give_back(client: &Arc<Client>, attempt: &Arc<Attempt>) -> Result<bool, NodeError> {
    let released = release(client, attempt).await;
    let (done, is_resent) = match released {
        Err(error) if error.kind() == FailureKind::Connection => {
            (Box::pin(release(client, attempt)).await?, error.is_unknown())
        }
        released => (released?, false),
    };
    go_on(client, attempt, done.more);
    // The first request may have been the one that released it.
    Ok(done.had || is_resent)
}

async fn release(client: &Client, attempt: &Attempt) -> Result<Done, NodeError> {
    let answer = match client.servers.call(attempt.release()).await {
        // The slot is on its way to another server of the cluster.
        Err(error) if error.is_try_again() => client.servers.call(attempt.drop_it()).await,
        answer => answer,
    };
    done(&answer?)
}

/// Goes on granting, in the background, where one script has granted as many as it may.
pub(crate) fn go_on(client: &Arc<Client>, attempt: &Arc<Attempt>, more: bool) {
    if !more {
        return;
    }
    let (context, client, attempt) = (client.context.clone(), Arc::clone(client), Arc::clone(attempt));
    context.cleanup().spawn(async move {
        // Whoever waits beats by itself: what fails here is made good by that.
        while let Ok(answer) = client.servers.call(attempt.beat([])).await {
            if !beaten(&answer, 0).is_ok_and(|(_, more)| more) {
                return;
            }
        }
    });
}
