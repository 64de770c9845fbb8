//! Names of contenders' nodes.

use std::{cmp::Ordering, fmt, num::NonZeroU32};

use lock_core::{Mode, safeguard};

use super::form::{NameForm, foreign};

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
pub fn prefix(form: NameForm, unique: &str, session: i64, kind: ContenderKind) -> String {
    if form == NameForm::Native {
        return format!("{unique}-{session:016x}-{kind}-");
    }
    let (reads, was) = match kind {
        ContenderKind::Read { was } => (true, was),
        ContenderKind::Exclusive | ContenderKind::Permit { .. } => (false, None),
    };
    form.foreign_prefix(unique, reads, was)
}

/// What the node of the writer called `name` is called once it goes on as a reader with its `number`: in the writer's
/// place, and still found by its unique id. `None` when it is no writer's name, as that of a mutex in Curator's layout, beside
/// which nobody reads.
#[must_use]
pub fn downgraded(name: &str, number: u64) -> Option<String> {
    let node = NodeName::parse(name).filter(|node| node.is_exclusive() && node.form != NameForm::CuratorMutex)?;
    let prefix = |kind| prefix(node.form, node.unique, node.session, kind);
    let digits = name.strip_prefix(&prefix(node.kind))?;
    Some(format!("{}{digits}", prefix(ContenderKind::Read { was: Some(number) })))
}

/// Whether a change of the data of the node called `name` says that its owner held the lock and gave it up. Only
/// exclusive holders mark: a reader's going says nothing about the readers beside it, and the holder of a permit writes
/// to tell that it has got one. In the layout of another library nobody marks: its clients do not, and Curator's write to a
/// holder's node to ask for the lock.
#[must_use]
pub fn marks(name: &str) -> bool {
    // Safeguard: a change of a node in a foreign layout hands nothing on (ZooKeeper)
    let is_ours = |node: &NodeName<'_>| node.form == NameForm::Native;

    // Safeguard: only an exclusive holder's mark hands on (ZooKeeper)
    NodeName::parse(name).is_some_and(|node| node.kind == ContenderKind::Exclusive && is_ours(&node))
        || !safeguard("only-writers-mark")
}

/// Whether a node of that name would stand in line for a lock.
#[must_use]
pub fn is_contender(name: &str) -> bool {
    NodeName::parse(name).is_some()
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
    pub(super) form: NameForm,
    pub(super) unique: &'a str,
    /// 0 in foreign forms, which do not say.
    pub(super) session: i64,
    pub(crate) kind: ContenderKind,
    pub(super) sequence: i32,
}

impl<'a> NodeName<'a> {
    /// Reads a name; `None` when it is no contender's.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        Self::parse_native(name).or_else(|| Self::parse_foreign(name))
    }

    fn parse_foreign(name: &'a str) -> Option<Self> {
        let parts = foreign(name)?;
        let kind = if parts.reads {
            ContenderKind::Read { was: parts.was.and_then(|number| digits(number)?.parse().ok()) }
        } else {
            ContenderKind::Exclusive
        };
        let sequence = parts.digits.parse().ok()?;
        Some(Self { name, form: parts.form, unique: parts.unique, session: 0, kind, sequence })
    }

    fn parse_native(name: &'a str) -> Option<Self> {
        // A negative number brings a separator of its own, so only the first three count.
        let mut parts = name.splitn(4, '-');
        let (unique, session, kind, sequence) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if unique.is_empty() || session.len() != 16 || sequence.len() < 10 {
            return None;
        }
        let session = u64::from_str_radix(session, 16).ok()?.cast_signed();
        let (kind, sequence) = (ContenderKind::parse(kind)?, sequence.parse().ok()?);
        Some(Self { name, form: NameForm::Native, unique, session, kind, sequence })
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

    /// Whether `self` and `other` stand in one line. A child in the native form counts in a directory of the native layout only,
    /// one in a foreign form in that of any foreign layout: kazoo's clients can be told to count Curator's, and who waits for
    /// somebody too many does no harm.
    pub(super) fn is_in_line_with(&self, other: &Self) -> bool {
        self.is_foreign() == other.is_foreign() && self.permits().is_some() == other.permits().is_some()
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.form != NameForm::Native
    }

    /// Whether that attempt made it, in `session` where its name says so.
    pub(super) fn is_made_by(&self, unique: &str, session: i64) -> bool {
        self.unique == unique && (self.is_foreign() || self.session == session || !safeguard("own-session"))
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
    use crate::protocol::queue::Layout;

    const KINDS: [ContenderKind; 5] = [
        ContenderKind::Exclusive,
        ContenderKind::Read { was: None },
        ContenderKind::Read { was: Some(u64::MAX) },
        ContenderKind::Permit { of: NonZeroU32::MIN },
        ContenderKind::Permit { of: NonZeroU32::MAX },
    ];

    fn name(unique: &str, session: i64, kind: ContenderKind, sequence: i32) -> String {
        format!("{}{sequence:010}", prefix(NameForm::Native, unique, session, kind))
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
        for name in [
            "",
            "0000000001",
            "lock-000000001",
            "lock-00000000x1",
            "-LOCK-0000000001",
            "a-1-x-0000000001",
            "a-0000000000000001-x-12",
        ] {
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
        let name = |number: &str| format!("{}{number}", prefix(NameForm::Native, "abc", 9, ContenderKind::Exclusive));
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

    #[test]
    fn names_of_other_libraries_lead_to_their_parts() {
        const READ: ContenderKind = ContenderKind::Read { was: None };
        let (curators, kazoos) = ("0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5bd9cb469fa16570867728950e");
        for (name, form, unique, kind, sequence) in [
            (format!("_c_{curators}-lock-0000000007"), NameForm::CuratorMutex, curators, ContenderKind::Exclusive, 7),
            (
                format!("_c_{curators}-__WRIT__0000000007"),
                NameForm::CuratorReadWrite,
                curators,
                ContenderKind::Exclusive,
                7,
            ),
            (format!("_c_{curators}-__READ__0000000007"), NameForm::CuratorReadWrite, curators, READ, 7),
            (format!("{kazoos}__lock__2147483647"), NameForm::Kazoo, kazoos, ContenderKind::Exclusive, i32::MAX),
            (format!("{kazoos}__rlock__-2147483648"), NameForm::Kazoo, kazoos, READ, i32::MIN),
            // Whatever stands before the marker: the other libraries do not look at it, either.
            ("lock-0000000001".to_owned(), NameForm::CuratorMutex, "", ContenderKind::Exclusive, 1),
            ("a-lock-1-lock-0000000003".to_owned(), NameForm::CuratorMutex, "", ContenderKind::Exclusive, 3),
            ("__rlock__-000000001".to_owned(), NameForm::Kazoo, "", READ, -1),
        ] {
            let node = NodeName::parse(&name).unwrap();
            assert_eq!((node.form, node.unique, node.kind, node.sequence), (form, unique, kind, sequence), "{name}");
        }
    }

    #[test]
    fn a_name_in_the_form_of_another_library_is_found_by_its_id_and_keeps_its_place_in_a_downgrade() {
        let id = "0f8fad5bd9cb469fa16570867728950e".to_owned();
        for (layout, by_rwlock, expected, downgrades_to) in [
            (Layout::Curator, false, "_c_0f8fad5b-d9cb-869f-a165-70867728950e-lock-", None),
            (
                Layout::Curator,
                true,
                "_c_0f8fad5b-d9cb-869f-a165-70867728950e-__WRIT__",
                Some("_c_0f8fad5b-d9cb-869f-a165-70867728950e-42-__READ__0000000007"),
            ),
            (
                Layout::Kazoo,
                false,
                "0f8fad5bd9cb469fa16570867728950e__lock__",
                Some("0f8fad5bd9cb469fa16570867728950e-42__rlock__0000000007"),
            ),
        ] {
            let form = NameForm::of(layout, by_rwlock);
            let unique = form.unique(id.clone());
            let prefix = prefix(form, &unique, 9, ContenderKind::Exclusive);
            assert_eq!(prefix, expected);
            let name = format!("{prefix}0000000007");
            let reader = downgraded(&name, 42);
            assert_eq!(reader.as_deref(), downgrades_to);
            for name in reader.iter().chain([&name]) {
                let node = NodeName::parse(name).unwrap();
                assert!(node.is_made_by(&unique, 9) && node.sequence == 7 && node.is_foreign(), "{name}");
                assert!(!node.is_made_by(&form.unique("0f8fad5bd9cb469fa16570867728950f".to_owned()), 9), "{name}");
            }
            if let Some(reader) = reader {
                assert_eq!(NodeName::parse(&reader).unwrap().kind, ContenderKind::Read { was: Some(42) });
            }
            assert!(!marks(&name) && !is_out_of_numbers(&name) && is_out_of_numbers(&format!("{prefix}2147483647")));
        }
    }

    /// A name that is nearly a contender's.
    fn nearly() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            "[0-9a-f]{16}",
            "[+]?[0-9A-Fa-f]{0,17}",
            "[xrp][0-9+]{0,21}",
            "[+-]?[0-9]{9,11}",
            "(_c_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}",
            "(lock|[0-9a-f]{32}__r?lock__|__READ__|__WRIT__)[0-9]{0,11}",
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
