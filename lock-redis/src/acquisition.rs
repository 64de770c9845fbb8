//! One attempt, sent until it is answered, with its undo.

use std::sync::Arc;

use lock_core::BootInstant;
use tokio_util::sync::CancellationToken;

use crate::{
    client::Client,
    node::{Connection, FailureKind, Lane, Node, NodeError, Purpose, ScriptCall, Value},
    protocol::{
        answers::{Entered, done, entered},
        attempt::Attempt,
    },
    renewal::held,
    servers::HOPS,
    undo::{go_on, undo},
};

/// The answer to an attempt.
pub(crate) struct Answered {
    /// When it was first sent: the server counts from later on.
    pub(crate) sent_at: BootInstant,
    /// `None` when it was told to stop, and has withdrawn what it had.
    pub(crate) entered: Option<Entered>,
}

/// Sends one attempt: one round trip and one command on the server, unless the connection breaks.
pub(crate) async fn try_once(
    client: &Arc<Client>,
    attempt: &Arc<Attempt>,
    enter: ScriptCall,
    stop: &CancellationToken,
) -> Result<Answered, NodeError> {
    Try { client, attempt, enter, stop }.run().await
}

/// One attempt, ready to be sent.
struct Try<'a> {
    client: &'a Arc<Client>,
    attempt: &'a Arc<Attempt>,
    enter: ScriptCall,
    stop: &'a CancellationToken,
}

impl Try<'_> {
    async fn run(mut self) -> Result<Answered, NodeError> {
        let mut node = self.client.node_for(&self.attempt.keys);
        let stopped = |sent_at| Ok(Answered { sent_at, entered: None });
        let Some(mut lane) = self.lane(&node).await? else { return stopped(self.client.clock().now()) };
        // Before the sending, for the server counts from later on.
        let sent_at = self.client.clock().now();
        let mut answer = self.ask(&lane).await;
        for _ in 0..HOPS {
            // Sent away, it did not run there: so nothing is to be undone there, and it counts from the first sending.
            let Err(error) = &answer else { break };
            let Some(next) = self.client.servers.redirected(&mut self.enter, error, &node).await else { break };
            node = next;
            match self.lane(&node).await? {
                Some(next) => lane = next,
                None => return stopped(sent_at),
            }
            answer = self.ask(&lane).await;
        }
        let answer = match answer {
            Err(error) if error.kind() == FailureKind::Connection => {
                drop(lane);
                self.ask_again(error, &node).await
            }
            Err(error) => {
                if error.is_unknown() {
                    undo(self.client, self.attempt, Some(lane.connection().clone()));
                }
                Err(error)
            }
            answer => answer,
        };
        Ok(Answered { sent_at, entered: answer? })
    }

    /// The connection broke: sends the same attempt down the next one. If the first request was applied, it gets the
    /// same grant again, and its validity still counts from the first sending.
    async fn ask_again(&self, first: NodeError, node: &Node) -> Result<Option<Entered>, NodeError> {
        self.attempt.note_sent_again();
        let answer = match self.lane(node).await {
            Ok(Some(lane)) => match self.ask(&lane).await {
                Ok(Some(Entered::Granted(number))) => self.confirm(&lane, number).await,
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

    /// A lane; `None` when it was told to stop.
    async fn lane(&self, node: &Node) -> Result<Option<Lane>, NodeError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(None),
            lane = node.lane(Purpose::Acquiring) => lane.map(Some),
        }
    }

    /// A grant that was found by a second request may have written nothing that replicas could have acknowledged: it is
    /// renewed, which they can.
    async fn confirm(&self, lane: &Lane, number: u64) -> Result<Option<Entered>, NodeError> {
        if !lane.is_acknowledged() {
            return Ok(Some(Entered::Granted(number)));
        }
        let (answer, acknowledged) = self.send(lane, &self.attempt.renew(number)).await;
        match answer.and_then(|answer| held(&answer)) {
            Ok(true) => self.unless_unacknowledged(lane, acknowledged, Entered::Granted(number)).await,
            // It ended between the two.
            Ok(false) => Ok(Some(Entered::Undone)),
            Err(error) => {
                undo(self.client, self.attempt, None);
                Err(error)
            }
        }
    }

    /// Gives a grant back that too few replicas know of: one of the others may take over, and grant it again.
    async fn unless_unacknowledged(
        &self,
        lane: &Lane,
        acknowledged: Result<(), NodeError>,
        entered: Entered,
    ) -> Result<Option<Entered>, NodeError> {
        match (&entered, acknowledged) {
            (Entered::Granted(_), Err(error)) => {
                // Safeguard: a grant that too few replicas have is given back (Redis)
                if self.withdraw(lane.connection()).await.is_err() {
                    undo(self.client, self.attempt, Some(lane.connection().clone()));
                }
                // Whatever came of it, it is taken care of.
                Err(error.not_applied())
            }
            _ => Ok(Some(entered)),
        }
    }

    /// Gives back what it got, down the same connection, so that the acquisition is not overtaken by its undo. Says whether
    /// there was anything.
    async fn withdraw(&self, connection: &Connection) -> Result<bool, NodeError> {
        let mut leave = self.attempt.leave();
        leave.set_asking(self.enter.is_asking());
        let left = done(&connection.call(leave).await?)?;
        go_on(self.client, self.attempt, left.more);
        Ok(left.had)
    }

    async fn send(&self, lane: &Lane, call: &ScriptCall) -> (Result<Value, NodeError>, Result<(), NodeError>) {
        let (mut answers, acknowledged) = lane.run(std::slice::from_ref(call)).await;
        (answers.pop().unwrap_or_else(|| Err(NodeError::closed())), acknowledged)
    }

    /// Sends the request; `None` when it was told to stop meanwhile, and has withdrawn.
    async fn ask(&self, lane: &Lane) -> Result<Option<Entered>, NodeError> {
        let mut asking = std::pin::pin!(async {
            let (answer, acknowledged) = self.send(lane, &self.enter).await;
            Ok((entered(&answer?)?, acknowledged))
        });
        tokio::select! {
            biased;
            answer = &mut asking => {
                let (entered, acknowledged) = answer?;
                return self.unless_unacknowledged(lane, acknowledged, entered).await;
            }
            () = self.stop.cancelled() => {}
        }
        if lane.is_acknowledged() {
            // The connection answers nothing before its replicas have, and nobody has to wait for that.
            undo(self.client, self.attempt, Some(lane.connection().clone()));
            return Ok(None);
        }
        // Safeguard: catalogue: an interrupted acquisition is withdrawn (Redis)
        let (answer, withdrawn) = futures::join!(asking, self.withdraw(lane.connection()));
        let is_clean = match (&answer, &withdrawn) {
            (Ok((entered, _)), withdrawn) if entered.left_something() => matches!(withdrawn, Ok(true)),
            (Ok(_), _) => true,
            (Err(error), _) => !NodeError::is_unknown(error),
        };
        if !is_clean {
            undo(self.client, self.attempt, Some(lane.connection().clone()));
        }
        Ok(None)
    }
}
