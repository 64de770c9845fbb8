//! A writer goes on as a reader.

use lock_core::{Error, Lease, Loss};
use tokio::sync::oneshot;
use zookeeper_client::Error as ClientError;

use super::{Footing, Guarding, Hold, ZkLease, guard};
use crate::{
    backend::NAME,
    queue,
    sweep::{ONE_TRY, withdraw_by_id},
    wire::{Outcome, outcome},
};

/// What the exchange of the nodes ended with.
type Exchanged = Result<(Hold, Guarding), Error>;

impl ZkLease {
    /// Exchanges the writer's node for a reader's in the same place, in one transaction. Number and validity stay.
    ///
    /// There is no gap: at each moment one of the two nodes is there, and both stand in the writer's place. So no writer
    /// comes in between, and those that wait behind it stay behind it. They watch the writer's node, hear that it is deleted
    /// and not that it is marked, and look again: a reader next in line holds, a writer watches the reader.
    pub(super) async fn go_on_as_reader(mut self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Some(hold) = self.as_reader() else {
            let error = Error::unsupported(lock_core::Feature::Downgrade, NAME);
            self.release().await?;
            return Err(error);
        };
        // The exchange deletes the guarded node.
        self.guarding.ended.cancel();
        let mut exchanging = self.exchange(hold);
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
            Ok((hold, guarding)) => {
                (self.hold, self.guarding) = (hold, guarding);
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
    fn as_reader(&self) -> Option<Hold> {
        let (directory, name) = self.hold.node.rsplit_once('/')?;
        let name = queue::downgraded(name, self.hold.token).filter(|_| self.hold.footing == Footing::Exclusive)?;
        Some(Hold { node: format!("{directory}/{name}"), footing: Footing::Shared, ..self.hold.clone() })
    }

    /// Starts the exchange. It runs to its end in any case: what its caller does not receive is removed.
    fn exchange(&self, reader: Hold) -> oneshot::Receiver<Exchanged> {
        let (answer, answered) = oneshot::channel();
        let (writer, name, payload) = (self.hold.node.clone(), self.name.clone(), self.payload.clone());
        let (validity, lapsed) = (self.validity.clone(), self.lapsed.clone());
        self.hold.keeping.cleanup.spawn(async move {
            let session = &reader.keeping.session;
            let exchanged = match session.replace(&writer, &reader.node, &payload).await {
                Ok(()) => Ok(guard(&reader, &validity, &lapsed, None)),
                Err(error) => Err(match outcome(&error) {
                    Outcome::SessionEnded => Error::Lost { name, loss: Loss::SessionEnded },
                    Outcome::Refused if error == ClientError::NoNode => Error::Lost { name, loss: Loss::Revoked },
                    Outcome::Refused | Outcome::Throttled | Outcome::Unknown => {
                        // Either node may be there; the unique id finds it.
                        withdraw_by_id(&reader.keeping, reader.spot.clone());
                        let url = session.config().url();
                        Error::unavailable(url, "a downgrade was not done, or is not known to be", error)
                    }
                }),
            };
            let hold = reader.clone();
            if let Err(Ok((_, guarding))) = answer.send(exchanged.map(|guarding| (hold, guarding))) {
                guarding.ended.cancel();
                reader.withdraw();
            }
        });
        answered
    }
}
