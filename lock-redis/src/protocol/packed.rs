//! The packed strings on the server: numbers of a fixed width, the least significant byte first, and what follows them.

use std::time::Duration;

/// How long the value of an attempt is.
pub const VALUE: usize = 32;

/// A number as scripts pack it: a double, which holds whole numbers up to 2^53 exactly.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "numbers on the server are doubles, and stay below 2^53 until the year 2255"
)]
pub fn pack(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// The number in front of `bytes`, and what follows it.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked to be whole and in range")]
pub fn unpack(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    let number = f64::from_le_bytes(*number);
    let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    is_whole.then_some((number as u64, rest))
}

/// What the lock key holds while one of this library's holders has it alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The number of the grant.
    pub number: u64,
    /// The value of the attempt.
    pub value: Vec<u8>,
    /// When it was granted, in microseconds of the server's clock.
    pub since: u64,
    /// Who holds it.
    pub payload: Vec<u8>,
}

/// What is noted of a reader or of a holder of a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The number of the grant.
    pub number: u64,
    /// When it was granted, in microseconds of the server's clock.
    pub since: u64,
    /// The lock delay.
    pub delay: Duration,
    /// Of how many permits it holds one; 0 for a reader.
    pub of: u64,
    /// Who holds it.
    pub payload: Vec<u8>,
}

/// What is noted of one who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// `w` for one who would hold the lock alone, `r` for a reader, `p` for one who waits for a permit.
    pub kind: u8,
    /// Since when it waits, in microseconds of the server's clock.
    pub since: u64,
    /// Of how many permits it wants one; 0 for the lock.
    pub of: u64,
    /// Who waits.
    pub payload: Vec<u8>,
}

impl Lock {
    /// Reads it; `None` when another library has written it.
    #[must_use]
    pub fn read(packed: &[u8]) -> Option<Self> {
        let (since, rest) = unpack(packed.strip_prefix(&[1])?)?;
        let (number, rest) = unpack(rest)?;
        let (value, payload) = rest.split_at_checked(VALUE)?;
        Some(Self { number, value: value.to_vec(), since, payload: payload.to_vec() })
    }

    /// Reads of the record of the strategy `plain` what it says of the newest grant; `None` when somebody else has written it.
    #[must_use]
    pub fn read_record(packed: &[u8]) -> Option<Self> {
        let (number, rest) = unpack(packed.strip_prefix(&[2])?)?;
        let (value, rest) = rest.split_at_checked(VALUE)?;
        let (since, rest) = unpack(rest)?;
        // Until when somebody waits, and looks on.
        let (_, payload) = rest.split_at_checked(16)?;
        Some(Self { number, value: value.to_vec(), since, payload: payload.to_vec() })
    }
}

impl Note {
    /// Reads it; `None` when another library has written it.
    #[must_use]
    pub fn read(packed: &[u8]) -> Option<Self> {
        let (number, rest) = unpack(packed)?;
        let (since, rest) = unpack(rest)?;
        let (delay, rest) = unpack(rest)?;
        let (of, payload) = unpack(rest)?;
        Some(Self { number, since, delay: Duration::from_millis(delay), of, payload: payload.to_vec() })
    }
}

impl Waiter {
    /// Reads it; `None` when another library has written it.
    #[must_use]
    pub fn read(packed: &[u8]) -> Option<Self> {
        let (kind, mut rest) = packed.split_first()?;
        let mut numbers = [0; 6];
        for number in &mut numbers {
            (*number, rest) = unpack(rest)?;
        }
        let [_claim, _delay, _proposal, since, of, channel] = numbers;
        let payload = rest.get(usize::try_from(channel).ok()?..)?.to_vec();
        Some(Self { kind: *kind, since, of, payload })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_read(
            number in 0..1_u64 << 53, since in 0..1_u64 << 53, delay in 0..1_u64 << 40, of: u32, payload: Vec<u8>, rest in 0..7_usize,
        ) {
            let lock = [&[1], &pack(since)[..], &pack(number), &[b'v'; VALUE], &payload].concat();
            let expected = Lock { number, value: vec![b'v'; VALUE], since, payload: payload.clone() };
            prop_assert_eq!(Lock::read(&lock), Some(expected.clone()));
            let record = [&[2], &pack(number)[..], &[b'v'; VALUE], &pack(since), &[b't'; 16], &payload].concat();
            prop_assert_eq!(Lock::read_record(&record), Some(expected));
            let note = [&pack(number)[..], &pack(since), &pack(delay), &pack(of.into()), &payload].concat();
            let delay = Duration::from_millis(delay);
            let expected = Note { number, since, delay, of: of.into(), payload: payload.clone() };
            prop_assert_eq!(Note::read(&note), Some(expected));
            prop_assert_eq!(Note::read(&note[..24 + rest]), None);
            let numbers = [1, 2, 3, since, of.into(), 4].map(pack).concat();
            let waiter = [&b"r"[..], &numbers, b"here", &payload].concat();
            prop_assert_eq!(Waiter::read(&waiter), Some(Waiter { kind: b'r', since, of: of.into(), payload }));
        }

        #[test]
        fn whatever_others_write_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = (Lock::read(&bytes), Lock::read_record(&bytes), Note::read(&bytes), Waiter::read(&bytes), unpack(&bytes));
        }
    }
}
