//! The fair queue as plain values: node names, their order, and who stands where.
//!
//! A contender's node is called `<unique id>-<session id>-x-<the server's ten digits>`. The unique id tells contenders of
//! one session apart, the session id says whose node it is, and `x` stands for an exclusive contender. Children that
//! are called otherwise take no part.

use std::cmp::Ordering;

/// The kind of an exclusive contender.
const EXCLUSIVE: &str = "x";

/// What a contender's node is called, but for the digits that the server appends.
pub fn prefix(unique: &str, session: i64) -> String {
    format!("{unique}-{session:016x}-{EXCLUSIVE}-")
}

/// A contender's node, read from its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node<'a> {
    name: &'a str,
    unique: &'a str,
    session: i64,
    sequence: i32,
}

impl<'a> Node<'a> {
    /// Reads a name; `None` when it is no contender's.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        // A sequence number that wrapped brings its own minus sign, so only the first three separators count.
        let mut parts = name.splitn(4, '-');
        let (unique, session, kind, sequence) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if unique.is_empty() || session.len() != 16 || kind != EXCLUSIVE || sequence.len() < 10 {
            return None;
        }
        let session = u64::from_str_radix(session, 16).ok()?.cast_signed();
        Some(Self { name, unique, session, sequence: sequence.parse().ok()? })
    }

    /// The order of arrival. The server counts in 32 bits with a sign and wraps to negative numbers, so only the
    /// distance of two numbers tells which is older: right as long as live contenders are less than 2^31 apart. The
    /// rest of the name never counts, but for a tie that no server makes.
    fn arrival(&self, other: &Self) -> Ordering {
        let distance = self.sequence.wrapping_sub(other.sequence);
        distance.cmp(&0).then_with(|| self.name.cmp(other.name))
    }
}

/// The contenders among `children`, first in line first.
pub(crate) fn line(children: &[String]) -> Vec<&str> {
    let mut nodes: Vec<_> = children.iter().filter_map(|name| Node::parse(name)).collect();
    nodes.sort_by(Node::arrival);
    nodes.into_iter().map(|node| node.name).collect()
}

/// Where a contender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// Nobody is ahead: it holds the lock.
    First,
    /// Behind that node, the nearest one ahead.
    Behind(&'a str),
    /// Its node is not there.
    Gone,
}

/// Where the contender called `own` stands among `children`.
pub fn standing<'a>(children: &'a [String], own: &str) -> Standing<'a> {
    let Some(own) = Node::parse(own) else { return Standing::Gone };
    let mut there = false;
    let mut predecessor: Option<Node<'a>> = None;
    for node in children.iter().filter_map(|name| Node::parse(name)) {
        match node.arrival(&own) {
            Ordering::Equal => there = true,
            Ordering::Less if predecessor.is_none_or(|nearest| nearest.arrival(&node).is_lt()) => {
                predecessor = Some(node);
            }
            Ordering::Less | Ordering::Greater => {}
        }
    }
    match predecessor {
        _ if !there => Standing::Gone,
        Some(node) => Standing::Behind(node.name),
        None => Standing::First,
    }
}

/// The nodes among `children` that the attempt called `unique` made in `session`, oldest first. More than one can only
/// come of a request that was sent again.
pub(crate) fn made_by<'a>(children: &'a [String], unique: &str, session: i64) -> Vec<&'a str> {
    let mut nodes: Vec<_> = children
        .iter()
        .filter_map(|name| Node::parse(name))
        .filter(|node| node.unique == unique && node.session == session)
        .collect();
    nodes.sort_by(Node::arrival);
    nodes.into_iter().map(|node| node.name).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(unique: &str, session: i64, sequence: i32) -> String {
        format!("{}{sequence:010}", prefix(unique, session))
    }

    #[test]
    fn a_name_leads_back_to_its_parts() {
        for (session, sequence) in [(0x1000_0000_0001, 7), (-2, i32::MAX), (1, i32::MIN), (1, -5)] {
            let name = name("abc", session, sequence);
            let node = Node::parse(&name).unwrap();
            assert_eq!((node.unique, node.session, node.sequence), ("abc", session, sequence));
        }
    }

    #[test]
    fn children_that_are_called_otherwise_take_no_part() {
        let mut children: Vec<String> =
            ["", "lock-0000000001", "a-0000000000000001-w-0000000001", "a-1-x-0000000001", "a-0000000000000001-x-12"]
                .map(str::to_owned)
                .into();
        let own = name("me", 1, 9);
        children.push(own.clone());
        assert_eq!(standing(&children, &own), Standing::First);
        assert_eq!(line(&children), [own.as_str()]);
    }

    #[test]
    fn the_order_is_that_of_the_numbers_and_not_of_the_names() {
        let children = [name("zzz", 1, 1), name("aaa", 2, 3), name("mmm", 3, 2)];
        assert_eq!(line(&children), [&*children[0], &*children[2], &*children[1]]);
        assert_eq!(standing(&children, &children[1]), Standing::Behind(&children[2]));
    }

    #[test]
    fn a_contender_whose_node_is_missing_is_gone_even_with_nobody_ahead() {
        let children = [name("b", 1, 2)];
        assert_eq!(standing(&children, &name("a", 1, 1)), Standing::Gone);
        assert_eq!(standing(&[], &name("a", 1, 1)), Standing::Gone);
    }

    #[test]
    fn only_the_own_unique_id_and_session_together_find_a_node() {
        let children = [name("a", 2, 4), name("a", 1, 3), name("b", 1, 2), name("a", 1, 1)];
        assert_eq!(made_by(&children, "a", 1), [&*children[3], &*children[1]]);
    }

    proptest! {
        #[test]
        fn each_contender_stands_behind_the_one_before_it_also_across_a_wrap(
            first in any::<i32>(),
            gaps in proptest::collection::vec(1..1000_i32, 1..30),
            seed in any::<u64>(),
        ) {
            let mut sequence = first;
            let mut arrived = vec![name("first", 1, first)];
            for (at, gap) in gaps.iter().enumerate() {
                sequence = sequence.wrapping_add(*gap);
                arrived.push(name(&format!("{:x}", seed.wrapping_mul(at as u64 + 1)), 1, sequence));
            }
            let mut children = arrived.clone();
            children.sort_by_key(|name| name.bytes().fold(seed, |hash, byte| hash.rotate_left(5) ^ u64::from(byte)));
            prop_assert_eq!(line(&children), arrived.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert_eq!(standing(&children, &arrived[0]), Standing::First);
            for pair in arrived.windows(2) {
                prop_assert_eq!(standing(&children, &pair[1]), Standing::Behind(&pair[0]));
            }
        }

        #[test]
        fn no_name_makes_it_panic(name in "\\PC*") {
            let _ = Node::parse(&name);
        }
    }
}
