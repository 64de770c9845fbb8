//! A writer goes on as a reader.

use lock_core::{Error, Lease, Loss};
use tokio::sync::oneshot;

use super::{HeldNode, NodeKind, NodeWatch, ZkLease, watch_node};
use crate::{
    config::NAME,
    protocol::queue,
    wire::{Outcome, RequestError},
    withdraw::{ONE_TRY, withdraw_by_id},
};

/// The result of exchanging a writer's node for a reader's: the new node and the watch on it.
type ExchangeResult = Result<(HeldNode, NodeWatch), Error>;

impl ZkLease {
    /// Exchanges the writer's node for a reader's in the same place, in one transaction. Number and validity stay.
    ///
    /// There is no gap: at each moment one of the two nodes is there, and both stand in the writer's place. So no writer
    /// comes in between, and those that wait behind it stay behind it. They watch the writer's node, hear that it is deleted
    /// and not that it is marked, and look again: a reader next in line holds, a writer watches the reader.
    pub(super) async fn go_on_as_reader(mut self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Some(reader) = self.as_reader() else {
            let error = Error::unsupported(lock_core::Feature::Downgrade, NAME);
            self.release().await?;
            return Err(error);
        };
        // The exchange deletes the watched node.
        self.watch.ended.cancel();
        let mut exchanging = self.exchange(reader);
        let exchanged = tokio::select! {
            biased;
            exchanged = &mut exchanging => exchanged,
            error = self.unanswered("downgrade", ONE_TRY) => {
                // What is not received by now never is, and is undone by the task that would have sent it.
                exchanging.close();
                exchanging.try_recv().map_or(Ok(Err(error)), Ok)
            }
        };
        let closed = |_| Err(self.no_answer("the connection was closed during a downgrade"));
        match exchanged.unwrap_or_else(closed) {
            Ok((held, watch)) => {
                (self.held, self.watch) = (held, watch);
                // Given back by its drop, if it was lost meanwhile.
                let lost = self.validity.loss().map(|loss| Error::Lost { name: self.name.clone(), loss });
                lost.map_or(Ok(self), Err)
            }
            Err(error) => {
                if let Error::Lost { loss, .. } = error {
                    self.validity.end(loss);
                }
                // The node is gone, or being removed.
                self.end();
                Err(error)
            }
        }
    }

    /// The node that it goes on with. `None` for what is no writer's.
    fn as_reader(&self) -> Option<HeldNode> {
        let (directory, name) = self.held.node.rsplit_once('/')?;
        let name = queue::downgraded(name, self.held.token).filter(|_| self.held.kind == NodeKind::Exclusive)?;
        Some(HeldNode { node: format!("{directory}/{name}"), kind: NodeKind::Shared, ..self.held.clone() })
    }

    /// Starts the exchange. It runs to its end in any case: what its caller does not receive is removed.
    fn exchange(&self, reader: HeldNode) -> oneshot::Receiver<ExchangeResult> {
        let (answer, answered) = oneshot::channel();
        let (writer, name, payload) = (self.held.node.clone(), self.name.clone(), self.payload.clone());
        let (validity, lapsed) = (self.validity.clone(), self.lapsed.clone());
        self.session().context().cleanup().spawn(async move {
            let session = &reader.session;
            let exchanged = match session.replace(&writer, &reader.node, &payload).await {
                Ok(()) => Ok(watch_node(&reader, &validity, &lapsed, None)),
                Err(error) => Err(match error.outcome() {
                    Outcome::SessionEnded => Error::Lost { name, loss: Loss::SessionEnded },
                    Outcome::Refused if matches!(error, RequestError::NoNode) => {
                        Error::Lost { name, loss: Loss::Revoked }
                    }
                    Outcome::Refused | Outcome::Throttled | Outcome::Unknown => {
                        // Either node may be there; the unique id finds it.
                        withdraw_by_id(session, reader.path.clone());
                        let url = session.config().url();
                        Error::unavailable(url, "a downgrade was not done, or is not known to be", error)
                    }
                }),
            };
            let held = reader.clone();
            if let Err(Ok((_, watch))) = answer.send(exchanged.map(|watch| (held, watch))) {
                watch.ended.cancel();
                // Safeguard: a downgrade that nobody waits for is undone (ZooKeeper)
                reader.withdraw();
            }
        });
        answered
    }
}
