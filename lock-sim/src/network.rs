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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_order_and_two_of_them_do_not() {
        let (mut one, mut other) = (Pipe::default(), Pipe::default());
        assert_eq!((one.arrival(10, 50), one.arrival(11, 3), other.arrival(11, 3)), (60, 60, 14));
    }
}
