//! One attempt, sent until it is answered, with its undo.

use std::{slice, sync::Arc};

use lock_core::BootInstant;
use tokio_util::sync::CancellationToken;

use crate::{
    client::Client,
    node::{Connection, FailureKind, Node, NodeError, PoolPurpose, PooledConnection, ScriptCall},
    protocol::{
        answers::{Entered, done, entered},
        attempt::Attempt,
    },
    renewal::held,
    servers::HOPS,
    undo::{go_on, undo},
};

/// The server's answer to one attempt, and when the attempt was sent.
pub(crate) struct AttemptAnswer {
    /// When the attempt was first sent: the server counts its lease from later on.
    pub(crate) sent_at: BootInstant,
    /// `None` when the attempt was told to stop, and has withdrawn what it had.
    pub(crate) entered: Option<Entered>,
}

/// The script call that asks the server for the lock on behalf of one attempt, with what is needed to repeat and to undo it.
pub(crate) struct EnterCall<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) attempt: &'a Arc<Attempt>,
    pub(crate) call: ScriptCall,
    /// Tells the attempt to withdraw.
    pub(crate) stop: &'a CancellationToken,
}

impl EnterCall<'_> {
    /// Sends the call until it is answered: one round trip and one command on the server, unless the connection breaks. What is
    /// not on the way of these is boxed, or each acquisition would reserve the memory for it.
    pub(crate) async fn run(mut self) -> Result<AttemptAnswer, NodeError> {
        let mut node = self.client.node_for(&self.attempt.keys);
        let stopped = |sent_at| Ok(AttemptAnswer { sent_at, entered: None });
        let Some(mut pooled) = self.pooled(&node).await? else { return stopped(self.client.clock().now()) };
        // Before the sending, for the server counts from later on.
        let sent_at = self.client.clock().now();
        let mut answer = self.ask(&pooled).await;
        for _ in 0..HOPS {
            // Sent away, it did not run there: so nothing is to be undone there, and it counts from the first sending.
            let Err(error) = &answer else { break };
            let Some(next) = self.client.servers.redirected(&mut self.call, error, &node).await else { break };
            node = next;
            match self.pooled(&node).await? {
                Some(next) => pooled = next,
                None => return stopped(sent_at),
            }
            answer = self.ask(&pooled).await;
        }
        let answer = match answer {
            Err(error) if error.kind() == FailureKind::Connection => {
                drop(pooled);
                Box::pin(self.ask_again(error, &node)).await
            }
            Err(error) => {
                if error.is_unknown() {
                    undo(self.client, self.attempt, Some(pooled.connection().clone()));
                }
                Err(error)
            }
            answer => answer,
        };
        Ok(AttemptAnswer { sent_at, entered: answer? })
    }

    /// The connection broke: sends the same attempt down the next one. If the first request was applied, it gets the
    /// same grant again, and its validity still counts from the first sending.
    async fn ask_again(&self, first: NodeError, node: &Node) -> Result<Option<Entered>, NodeError> {
        self.attempt.note_sent_again();
        let answer = match self.pooled(node).await {
            Ok(Some(pooled)) => match self.ask(&pooled).await {
                Ok(Some(Entered::Granted(number))) => self.confirm(&pooled, number).await,
                answer => answer,
            },
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let found = matches!(&answer, Ok(Some(entered)) if entered.left_something());
        if first.is_unknown() && !found || answer.as_ref().is_err_and(NodeError::is_unknown) {
            // Down two connections, nothing is known about the order in which they arrive: leave a tombstone.
            undo(self.client, self.attempt, None);
        }
        answer
    }

    /// A connection to send the call on; `None` when the attempt was told to stop.
    async fn pooled(&self, node: &Node) -> Result<Option<PooledConnection>, NodeError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(None),
            pooled = node.pooled(PoolPurpose::Acquiring) => pooled.map(Some),
        }
    }

    /// A grant that was found by a second request may have written nothing that replicas could have acknowledged: it is
    /// renewed, which they can.
    async fn confirm(&self, pooled: &PooledConnection, number: u64) -> Result<Option<Entered>, NodeError> {
        if !pooled.is_acknowledged() {
            return Ok(Some(Entered::Granted(number)));
        }
        let (mut answers, acknowledged) = pooled.run(&[self.attempt.renew(number)]).await;
        let answer = answers.pop().unwrap_or_else(|| Err(NodeError::closed()));
        match answer.and_then(|answer| held(&answer)) {
            Ok(true) => match acknowledged {
                Ok(()) => Ok(Some(Entered::Granted(number))),
                Err(error) => Err(self.refuse_grant(pooled, error).await),
            },
            // It ended between the two.
            Ok(false) => Ok(Some(Entered::Undone)),
            Err(error) => {
                undo(self.client, self.attempt, None);
                Err(error)
            }
        }
    }

    /// Gives a grant back that too few replicas know of: one of the others may take over, and grant it again.
    async fn refuse_grant(&self, pooled: &PooledConnection, unacknowledged: NodeError) -> NodeError {
        // Safeguard: a grant that too few replicas have is given back (Redis)
        if self.withdraw(pooled.connection()).await.is_err() {
            undo(self.client, self.attempt, Some(pooled.connection().clone()));
        }
        // Whatever came of it, it is taken care of.
        unacknowledged.not_applied()
    }

    /// Gives back what it got, down the same connection, so that the acquisition is not overtaken by its undo. Says whether
    /// there was anything.
    async fn withdraw(&self, connection: &Connection) -> Result<bool, NodeError> {
        let mut leave = self.attempt.leave();
        leave.set_asking(self.call.is_asking());
        let left = done(&connection.call(leave).await?)?;
        go_on(self.client, self.attempt, left.more);
        Ok(left.had)
    }

    /// Sends the call once; `None` when it was told to stop meanwhile, and has withdrawn.
    async fn ask(&self, pooled: &PooledConnection) -> Result<Option<Entered>, NodeError> {
        let mut asking = std::pin::pin!(async {
            let (mut answers, acknowledged) = pooled.run(slice::from_ref(&self.call)).await;
            let answer = answers.pop().unwrap_or_else(|| Err(NodeError::closed()))?;
            Ok((entered(&answer)?, acknowledged))
        });
        tokio::select! {
            biased;
            answer = &mut asking => {
                return match answer? {
                    (Entered::Granted(_), Err(error)) => Err(Box::pin(self.refuse_grant(pooled, error)).await),
                    (entered, _) => Ok(Some(entered)),
                };
            }
            () = self.stop.cancelled() => {}
        }
        if pooled.is_acknowledged() {
            // The connection answers nothing before its replicas have, and nobody has to wait for that.
            undo(self.client, self.attempt, Some(pooled.connection().clone()));
            return Ok(None);
        }
        // Safeguard: catalogue: an interrupted acquisition is withdrawn (Redis)
        let (answer, withdrawn) = futures::join!(asking, Box::pin(self.withdraw(pooled.connection())));
        let is_clean = match (&answer, &withdrawn) {
            (Ok((entered, _)), withdrawn) if entered.left_something() => matches!(withdrawn, Ok(true)),
            (Ok(_), _) => true,
            (Err(error), _) => !NodeError::is_unknown(error),
        };
        if !is_clean {
            undo(self.client, self.attempt, Some(pooled.connection().clone()));
        }
        Ok(None)
    }
}
