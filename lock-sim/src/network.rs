//! What happens to messages.

use crate::{Chance, Time};

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

/// What becomes of a message without a connection that keeps an order, or of a request that is sent again on the next one.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// The shortest delay.
    pub least: Time,
    /// The longest delay of most messages.
    pub most: Time,
    /// The longest delay of those that are late.
    pub late: Time,
    /// How many of a thousand are late.
    pub late_per_mille: u64,
    /// How many of a thousand are lost.
    pub lost_per_mille: u64,
    /// How many of a thousand arrive twice.
    pub twice_per_mille: u64,
}

impl Wire {
    /// How long one message takes.
    pub fn delay(&self, chance: &mut Chance) -> Time {
        let most = if chance.per_mille(self.late_per_mille) { self.late } else { self.most };
        chance.between(self.least, most)
    }

    /// The delays of the copies of one message that arrive: none, one or two.
    pub fn copies(&self, chance: &mut Chance) -> impl Iterator<Item = Time> + use<> {
        let first = (!chance.per_mille(self.lost_per_mille)).then(|| self.delay(chance));
        let second = chance.per_mille(self.twice_per_mille).then(|| self.delay(chance));
        first.into_iter().chain(second)
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

    #[test]
    fn messages_are_late_lost_and_doubled() {
        let wire = Wire { least: 1, most: 5, late: 90, late_per_mille: 100, lost_per_mille: 100, twice_per_mille: 100 };
        let mut chance = Chance::new(3);
        let (mut lost, mut twice, mut late) = (0, 0, 0);
        for _ in 0..1000 {
            let delays: Vec<Time> = wire.copies(&mut chance).collect();
            lost += u32::from(delays.is_empty());
            twice += u32::from(delays.len() == 2);
            late += u32::from(delays.iter().any(|delay| *delay > wire.most));
            assert!(delays.iter().all(|delay| (1..=90).contains(delay)));
        }
        assert!(lost > 50 && twice > 50 && late > 50, "{lost} {twice} {late}");
    }
}
