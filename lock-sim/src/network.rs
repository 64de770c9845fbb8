//! Connections that keep an order.

use crate::Time;

/// One direction of one connection: what is sent first arrives first, as with TCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pipe {
    last: Time,
}

impl Pipe {
    /// When a message arrives that is sent now and would take `delay` by itself.
    pub fn arrival(&mut self, now: Time, delay: Time) -> Time {
        self.last = self.last.max(now.saturating_add(delay));
        self.last
    }
}
