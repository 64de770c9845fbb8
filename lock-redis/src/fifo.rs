//! The strategy `queue=fifo`: those who wait stand in line on the server, and a release hands the lock over.
//!
//! Each waiter has a place in the queue of its lock, which its heartbeat keeps. The script that releases takes out the
//! first one that is alive, makes it the holder, and tells its client, on a channel that only this client listens to:
//! nobody else wakes, and nobody asks. A message that is missed is made good by the next heartbeat.

mod board;
mod claim;
mod rhythm;
#[doc(hidden)]
pub mod scripts;
mod turn;

use std::{fmt, sync::Arc};

use lock_core::{Context, Renewer};

use self::board::{Beats, Board, Place};
use crate::{
    node::{Node, Subscription},
    servers::Servers,
};

/// What a client that stands in line has of its own.
pub(crate) struct Fifo {
    /// The channel on which this client is told of its grants.
    channel: String,
    board: Arc<Board>,
    /// The heartbeats of all its places, together.
    places: Renewer<Place>,
}

impl Fifo {
    pub(crate) fn new(servers: &Servers, prefix: &str, context: &Context) -> Self {
        let channel = format!("{prefix}:grants:{}", context.unique_id());
        let places = Renewer::new(context, Arc::new(Beats { servers: servers.clone() }));
        Self { channel, board: Arc::default(), places }
    }

    /// Listens to what this client is granted on a node.
    fn listen(&self, node: &Node) -> Subscription {
        let board = Arc::clone(&self.board);
        node.subscribe_each(&self.channel, Arc::new(move |message| board.granted(message)))
    }
}

impl fmt::Debug for Fifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo").field("channel", &self.channel).finish_non_exhaustive()
    }
}
