//! A directory whose sequence numbers are used up: how its contenders leave it, and how a directory that counts from 0 takes its
//! place.
//!
//! Those who stand by good numbers go on. Whoever is given a number beyond them withdraws, and waits without a node until all
//! have left: a waiter that tried again and again to enter would keep the directory from ever being empty.

use lock_core::{Error, Wait, safeguard};

use super::{Attempt, AttemptError};
use crate::{
    session::{ContenderNode, retry_backoff},
    wire::RequestError,
    withdraw::Leftover,
};

impl Attempt<'_> {
    /// Withdraws from a directory whose counter is near its end, and waits until another one may be made. A contender that
    /// does not wait is refused. The directory counts as out of service meanwhile: `lock-core` limits how long that is bridged.
    pub(super) async fn leave_full_directory(&self, entered: &ContenderNode) -> AttemptError {
        let refused = AttemptError::Failed(self.used_up());
        let refused = self.give_up(refused, Some(Leftover::Node(self.path.of(&entered.name)))).await;
        let mut backoff = retry_backoff();
        loop {
            match self.unless_interrupted(self.remove_when_empty(entered)).await {
                Ok(true) => {
                    self.request.outage.answered();
                    return AttemptError::Restart;
                }
                Ok(false) if self.request.wait == Wait::No || !safeguard("waits-outside") => return refused,
                Ok(false) => self.request.outage.failed(self.used_up()),
                Err(interrupted) => return interrupted,
            }
            if let Err(interrupted) = self.unless_interrupted(self.zk.clock().sleep(backoff.pause())).await {
                return interrupted;
            }
        }
    }

    fn used_up(&self) -> Error {
        let directory = &self.path.directory;
        let reason = format!(
            "the sequence numbers of {directory} are used up; the lock is available again when all who hold it or wait for it \
             have left"
        );
        Error::no_answer(self.zk.config().url(), reason)
    }

    /// Removes the directory that the contender's node was in, if nobody is in it any more. Whether it is gone. The servers remove
    /// only containers, and some time after the last child has gone. A directory that other libraries use is left to them.
    async fn remove_when_empty(&self, entered: &ContenderNode) -> bool {
        let directory = &self.path.directory;
        match self.session.read(directory).await {
            Err(RequestError::NoNode) => true,
            // Another one, made after the contender's node.
            Ok((_, stat)) if stat.token() > entered.token => true,
            // The server refuses that when somebody has entered it since.
            Ok((_, stat)) if stat.num_children == 0 && !self.zk.config().layout.is_foreign() => {
                self.session.delete(directory).await.is_ok()
            }
            _ => false,
        }
    }
}
