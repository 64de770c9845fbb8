//! Names of contenders' nodes.

use std::{cmp::Ordering, fmt, num::NonZeroU32};

use lock_core::{Mode, safeguard};

/// What a contender is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContenderKind {
    /// To hold the lock alone.
    Exclusive,
    /// To hold the lock beside other readers.
    Read {
        /// The number of the grant as a writer that it goes on from; `None` for one that came as a reader.
        was: Option<u64>,
    },
    /// To hold one of the semaphore's permits.
    Permit {
        /// How many it believes there are.
        of: NonZeroU32,
    },
}

impl ContenderKind {
    /// The kind of a contender that asks for `mode`; `None` for a mode that has none.
    #[must_use]
    pub const fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Self::Exclusive),
            Mode::Read => Some(Self::Read { was: None }),
            Mode::Permit { of } => Some(Self::Permit { of }),
            _ => None,
        }
    }

    /// How such a contender shares what it is after.
    #[must_use]
    pub const fn mode(self) -> Mode {
        match self {
            Self::Exclusive => Mode::Exclusive,
            Self::Read { .. } => Mode::Read,
            Self::Permit { of } => Mode::Permit { of },
        }
    }

    /// Reads the kind in a name.
    fn parse(text: &str) -> Option<Self> {
        let (letter, number) = text.split_at_checked(1)?;
        match letter {
            "x" if number.is_empty() => Some(Self::Exclusive),
            "r" if number.is_empty() => Some(Self::Read { was: None }),
            "r" => Some(Self::Read { was: Some(digits(number)?.parse().ok()?) }),
            "p" => Some(Self::Permit { of: digits(number)?.parse().ok()? }),
            _ => None,
        }
    }
}

/// `text` if it is a number as this backend writes it: without a sign, without zeros in front.
fn digits(text: &str) -> Option<&str> {
    (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}

impl fmt::Display for ContenderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("x"),
            Self::Read { was: None } => f.write_str("r"),
            Self::Read { was: Some(number) } => write!(f, "r{number}"),
            Self::Permit { of } => write!(f, "p{of}"),
        }
    }
}

/// What a contender's node is called, but for the digits that the server appends.
#[must_use]
pub fn prefix(unique: &str, session: i64, kind: ContenderKind) -> String {
    format!("{unique}-{session:016x}-{kind}-")
}

/// What the node of the writer called `name` is called once it goes on as a reader with its `number`: in the writer's
/// place, and still found by its unique id. `None` when it is no writer's name.
#[must_use]
pub fn downgraded(name: &str, number: u64) -> Option<String> {
    let node = NodeName::parse(name).filter(|node| node.kind == ContenderKind::Exclusive)?;
    let (_, digits) = name.split_at(prefix(node.unique, node.session, node.kind).len());
    Some(format!("{}{digits}", prefix(node.unique, node.session, ContenderKind::Read { was: Some(number) })))
}

/// Whether a change of the data of the node called `name` says that its owner held the lock and gave it up. Only
/// exclusive holders mark: a reader's going says nothing about the readers beside it, and the holder of a permit writes
/// to tell that it has got one.
#[must_use]
pub fn marks(name: &str) -> bool {
    // Safeguard: only an exclusive holder's mark hands on (ZooKeeper)
    NodeName::parse(name).is_some_and(|node| node.kind == ContenderKind::Exclusive) || !safeguard("only-writers-mark")
}

/// The first number of a directory that no contender stands by.
///
/// A directory counts its sequential nodes in 32 bits with a sign, and ends in no order: near 2^31 ZooKeeper 3.8.0 gives one
/// number to several nodes. Up to a million creates may be under way when the first contender sees a number from here on.
// Safeguard: catalogue: the order ends before an overflow (ZooKeeper)
pub const NUMBERS_END: i32 = i32::MAX - (1 << 20) + 1;

/// Whether the server's number in the own name is beyond those that order the queue: the contender has to withdraw. A
/// name whose number cannot be read, such as one of more than 32 bits, is beyond them, too.
#[must_use]
pub fn is_out_of_numbers(name: &str) -> bool {
    safeguard("counter-end") && NodeName::parse(name).is_none_or(|node| !(0..NUMBERS_END).contains(&node.sequence))
}

/// The name of a contender's node, parsed into its unique id, session, kind and sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeName<'a> {
    pub(crate) name: &'a str,
    pub(super) unique: &'a str,
    pub(super) session: i64,
    pub(crate) kind: ContenderKind,
    pub(super) sequence: i32,
}

impl<'a> NodeName<'a> {
    /// Reads a name; `None` when it is no contender's.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        // A negative number brings a separator of its own, so only the first three count.
        let mut parts = name.splitn(4, '-');
        let (unique, session, kind, sequence) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if unique.is_empty() || session.len() != 16 || sequence.len() < 10 {
            return None;
        }
        let session = u64::from_str_radix(session, 16).ok()?.cast_signed();
        Some(Self { name, unique, session, kind: ContenderKind::parse(kind)?, sequence: sequence.parse().ok()? })
    }

    /// The order of arrival: that of the server's numbers, which rise while the directory is there and begin at 0 in the
    /// next one. Whoever is given a number beyond [`NUMBERS_END`] withdraws without having held, so no two that may hold have
    /// one number. The rest of the name never counts, but for a tie.
    ///
    /// The only tie is a writer and the reader that it became. They are never there together; should a look show both,
    /// the reader is the one that stands, so it comes first: behind its own former self it would wait for nobody.
    pub(super) fn arrival(&self, other: &Self) -> Ordering {
        // Safeguard: catalogue: only the server's digits order the queue (ZooKeeper)
        self.sequence
            .cmp(&other.sequence)
            .then_with(|| self.is_exclusive().cmp(&other.is_exclusive()))
            .then_with(|| self.name.cmp(other.name))
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.kind == ContenderKind::Exclusive
    }

    /// The number of permits that it believes in; `None` for who is after the lock.
    pub(super) const fn permits(&self) -> Option<NonZeroU32> {
        match self.kind {
            ContenderKind::Permit { of } => Some(of),
            ContenderKind::Exclusive | ContenderKind::Read { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [ContenderKind; 5] = [
        ContenderKind::Exclusive,
        ContenderKind::Read { was: None },
        ContenderKind::Read { was: Some(u64::MAX) },
        ContenderKind::Permit { of: NonZeroU32::MIN },
        ContenderKind::Permit { of: NonZeroU32::MAX },
    ];

    fn name(unique: &str, session: i64, kind: ContenderKind, sequence: i32) -> String {
        format!("{}{sequence:010}", prefix(unique, session, kind))
    }

    #[test]
    fn a_name_leads_back_to_its_parts() {
        for kind in KINDS {
            for (session, sequence) in [(0x1000_0000_0001, 7), (-2, i32::MAX), (1, i32::MIN), (1, -5)] {
                let name = name("abc", session, kind, sequence);
                let node = NodeName::parse(&name).unwrap();
                assert_eq!((node.unique, node.session, node.kind, node.sequence), ("abc", session, kind, sequence));
            }
        }
    }

    #[test]
    fn names_of_another_form_are_no_contenders() {
        let start = "a-0000000000000001";
        for kind in ["w", "", "X", "xx", "x1", "r0", "r+1", "r-1", "p", "p0", "p04", "p-4", "p4294967296", "é"] {
            assert_eq!(NodeName::parse(&format!("{start}-{kind}-0000000001")), None, "{kind}");
        }
        for name in ["", "lock-0000000001", "a-1-x-0000000001", "a-0000000000000001-x-12"] {
            assert_eq!(NodeName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_writer_that_goes_on_as_a_reader_keeps_its_place_its_id_and_its_number() {
        for sequence in [7, -5, i32::MIN] {
            let writer = name("abc", 9, ContenderKind::Exclusive, sequence);
            let reader = downgraded(&writer, 42).unwrap();
            let (writer, reader) = (NodeName::parse(&writer).unwrap(), NodeName::parse(&reader).unwrap());
            assert_eq!((reader.unique, reader.session, reader.sequence), (writer.unique, writer.session, sequence));
            assert_eq!(reader.kind, ContenderKind::Read { was: Some(42) });
            assert_eq!(reader.arrival(&writer), Ordering::Less);
        }
        assert_eq!(downgraded(&name("abc", 9, ContenderKind::Read { was: None }, 7), 42), None);
    }

    #[test]
    fn a_number_near_the_end_of_the_counter_or_beyond_it_is_none() {
        let name = |number: &str| format!("{}{number}", prefix("abc", 9, ContenderKind::Exclusive));
        for number in ["0000000000", "0000000007", "2146435071"] {
            assert!(!is_out_of_numbers(&name(number)), "{number}");
        }
        for number in ["2146435072", "2147483647", "-2147483648", "-000000001", "0000000002147483648", "x"] {
            assert!(is_out_of_numbers(&name(number)), "{number}");
        }
    }

    #[test]
    fn only_exclusive_holders_mark() {
        assert_eq!(KINDS.map(|kind| marks(&name("abc", 9, kind, 1))), [true, false, false, false, false]);
    }

    /// A name that is nearly a contender's.
    fn nearly() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            "[0-9a-f]{16}",
            "[+]?[0-9A-Fa-f]{0,17}",
            "[xrp][0-9+]{0,21}",
            "[+-]?[0-9]{9,11}",
            "[x]",
            "\\PC{0,3}",
        ];
        proptest::collection::vec(part, 1..6).prop_map(|parts| parts.join("-"))
    }

    proptest! {
        #[test]
        fn what_is_read_from_a_name_stays_and_the_way_to_a_reader_keeps_its_place(name in nearly()) {
            if let Some(node) = NodeName::parse(&name) {
                prop_assert_eq!(node.arrival(&node), Ordering::Equal);
                if let Some(reader) = downgraded(&name, 42) {
                    let reader = NodeName::parse(&reader).map(|reader| (reader.unique.to_owned(), reader.session, reader.sequence));
                    prop_assert_eq!(reader, Some((node.unique.to_owned(), node.session, node.sequence)));
                }
            }
        }

        #[test]
        fn no_name_makes_it_panic(name in "\\PC*") {
            let _ = NodeName::parse(&name);
            let _ = downgraded(&name, 1);
        }
    }
}
