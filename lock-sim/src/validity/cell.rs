//! The operations on the cell of `lock_core::Validity`, one atomic access at a time.

use lock_core::Loss;

/// Losses by their code, as in `lock-core`.
pub(super) const LOSSES: [Loss; 7] = [
    Loss::Expired,
    Loss::Unreachable,
    Loss::Revoked,
    Loss::SessionEnded,
    Loss::Closed,
    Loss::Released,
    Loss::MaxHoldExceeded,
];

/// What is taken out of the operations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// A renewal is stored only over what was read.
    pub(super) compare_and_swap: bool,
    /// So is the end.
    pub(super) first_reason: bool,
    /// What was seen expired is made final.
    pub(super) seen_is_final: bool,
    /// The limit counts.
    pub(super) limit: bool,
}

/// What all share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: u64,
    pub(super) limit: u64,
    pub(super) suspicion: u64,
    pub(super) now: u64,
}

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// `is_valid`, `loss`, `valid_until`.
    Look,
    /// `observe`, before a renewal is sent.
    Observe,
    /// `advance`, after it was acknowledged.
    Advance { from: u64, until: u64 },
    /// `end`.
    End(u64),
    /// `limit`.
    Limit(u64),
    /// `suspect`.
    Suspect(u64),
}

/// What an operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// It is valid until then.
    Valid(u64),
    /// It was read so, for a renewal.
    Observed(u64),
    /// It is lost, for that reason.
    Lost(u64),
    /// A renewal found it lost, by what it had read.
    Refused,
    /// It is done.
    Done,
}

/// Where an operation is.
#[derive(Debug, Clone, Copy)]
enum At {
    Begin,
    /// It has read that, and is to look at limit and clock.
    Read {
        seen: u64,
    },
    /// It has seen that expired, and is to make it final.
    Finish {
        seen: u64,
        reason: u64,
    },
    /// A renewal is to be stored over that.
    Store {
        seen: u64,
    },
    /// An end is to be stored over that.
    Close {
        seen: u64,
        reason: u64,
    },
    /// It was valid: the value is read once more.
    Again,
}

/// An operation under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    operation: Operation,
    at: At,
}

fn loss(state: u64) -> Option<u64> {
    (state < LOSSES.len() as u64).then_some(state)
}

impl Running {
    pub(super) const fn new(operation: Operation) -> Self {
        Self { operation, at: At::Begin }
    }

    /// One atomic access. What it came to, when that was the last one.
    pub(super) fn step(&mut self, cell: &mut Shared, rules: Rules) -> Option<Came> {
        match self.at {
            At::Begin => self.begin(cell),
            At::Read { seen } => self.read(seen, cell, rules),
            At::Finish { seen, reason } => {
                if !rules.seen_is_final {
                    return Some(Came::Lost(reason));
                }
                if cell.state == seen {
                    cell.state = reason;
                    return Some(Came::Lost(reason));
                }
                self.look_at(cell.state)
            }
            At::Store { seen } => {
                let Operation::Advance { until, .. } = self.operation else { return Some(Came::Done) };
                if cell.state == seen || !rules.compare_and_swap {
                    cell.state = until;
                    cell.suspicion = 0;
                    self.at = At::Read { seen: until };
                    self.operation = Operation::Look;
                    return None;
                }
                self.judge(cell.state, cell)
            }
            At::Close { seen, reason } => {
                if cell.state == seen || !rules.first_reason {
                    cell.state = reason;
                    return Some(Came::Done);
                }
                if loss(cell.state).is_some() {
                    return Some(Came::Done);
                }
                self.close(cell.state, cell);
                None
            }
            At::Again => Some(Came::Observed(cell.state)),
        }
    }

    fn begin(&mut self, cell: &mut Shared) -> Option<Came> {
        match self.operation {
            Operation::Look | Operation::Observe => self.look_at(cell.state),
            Operation::Advance { from, .. } => self.judge(from, cell),
            Operation::End(_) if loss(cell.state).is_some() => Some(Came::Done),
            Operation::End(_) => {
                self.close(cell.state, cell);
                None
            }
            Operation::Limit(limit) => {
                cell.limit = cell.limit.min(limit);
                Some(Came::Done)
            }
            Operation::Suspect(loss) => {
                cell.suspicion = loss;
                Some(Came::Done)
            }
        }
    }

    fn look_at(&mut self, seen: u64) -> Option<Came> {
        self.at = At::Read { seen };
        loss(seen).map(Came::Lost)
    }

    fn read(&mut self, seen: u64, cell: &Shared, rules: Rules) -> Option<Came> {
        let limited = if rules.limit { seen.min(cell.limit) } else { seen };
        if cell.now >= limited {
            self.at = At::Finish { seen, reason: reason(seen, cell) };
            return None;
        }
        if self.operation == Operation::Observe {
            self.at = At::Again;
            return None;
        }
        Some(Came::Valid(limited))
    }

    /// A renewal that starts from `seen`.
    fn judge(&mut self, seen: u64, cell: &Shared) -> Option<Came> {
        let Operation::Advance { until, .. } = self.operation else { return Some(Came::Done) };
        if loss(seen).is_some() {
            return Some(Came::Refused);
        }
        if cell.now >= seen || until <= seen {
            // Whether it is still valid is for the present value to say.
            self.operation = Operation::Look;
            self.at = At::Begin;
            return None;
        }
        self.at = At::Store { seen };
        None
    }

    fn close(&mut self, seen: u64, cell: &Shared) {
        let Operation::End(wanted) = self.operation else { return };
        let ran_out = LOSSES.get(usize::try_from(wanted).unwrap_or(0)) != Some(&Loss::Released)
            && cell.now >= seen.min(cell.limit);
        self.at = At::Close { seen, reason: if ran_out { reason(seen, cell) } else { wanted } };
    }
}

/// Why what ends at `seen` runs out.
fn reason(seen: u64, cell: &Shared) -> u64 {
    if cell.limit < seen { 6 } else { cell.suspicion }
}
