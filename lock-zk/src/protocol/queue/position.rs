//! Who stands where among the children of a lock's directory.

use std::num::NonZeroU32;

use lock_core::safeguard;

use super::{ContenderKind, Layout, NodeName};

/// Where a contender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePosition<'a> {
    /// It holds what it is after: nobody is in its way.
    Holds,
    /// Behind that node, whose going it waits for.
    Behind(&'a str),
    /// The first without a permit: it waits for the going of anybody ahead of it.
    FirstBlocked,
    /// The oldest contender of the semaphore has named another number of permits.
    Disagrees {
        /// That number.
        there: NonZeroU32,
    },
    /// A program of Curator's is after a lock of its other kind on this path, and would not take notice of this contender.
    OtherKind,
    /// Its node is not there.
    Gone,
}

/// Where the contender called `own` stands among `children`.
#[must_use]
pub fn position<'a>(children: &'a [String], own: &str) -> QueuePosition<'a> {
    match NodeName::parse(own) {
        None => QueuePosition::Gone,
        Some(own) if own.permits().is_some() => among_permits(children, &own),
        Some(own) => in_line(children, &own),
    }
}

/// The children that are in the same line as `own`.
fn line<'a>(children: &'a [String], own: &NodeName<'_>) -> impl Iterator<Item = NodeName<'a>> {
    // Safeguard: the contenders of other libraries count (ZooKeeper)
    children.iter().filter_map(|name| NodeName::parse(name)).filter(|node| node.is_in_line_with(own))
}

/// A writer waits for the nearest one ahead, whoever that is, and a reader for the nearest writer ahead. So whoever waits
/// waits for somebody who came before: there is no circle. And with the nearest one gone it looks again, so that it
/// holds only when nobody is left that it could be in conflict with.
fn in_line<'a>(children: &'a [String], own: &NodeName<'_>) -> QueuePosition<'a> {
    // Safeguard: Curator's other kind of lock on one path is refused (ZooKeeper)
    if line(children, own).any(|node| own.form.is_apart_from(node.form, node.unique)) {
        return QueuePosition::OtherKind;
    }
    let mut there = false;
    let mut in_the_way: Option<NodeName<'a>> = None;
    // Safeguard: a writer waits for readers (ZooKeeper)
    for node in line(children, own) {
        if node.name == own.name {
            there = true;
        } else if (own.is_exclusive() || node.is_exclusive())
            && (node.is_exclusive() || safeguard("writer-behind-readers"))
            // Safeguard: catalogue: nobody waits for who came later (ZooKeeper)
            && node.arrival(own).is_lt()
            && in_the_way.is_none_or(|nearest| nearest.arrival(&node).is_lt())
        {
            in_the_way = Some(node);
        }
    }
    match in_the_way {
        _ if !there => QueuePosition::Gone,
        Some(_) if !safeguard("predecessor") => QueuePosition::Holds,
        // Safeguard: the predecessor check (ZooKeeper)
        Some(node) => QueuePosition::Behind(node.name),
        None => QueuePosition::Holds,
    }
}

/// The rule of the semaphore: a contender holds a permit when fewer than all permits are taken by those ahead of it, and
/// all of those believe in the same number of permits as it does.
///
/// That bounds the holders: take the one that arrived last. When it was granted all other present holders stood ahead of it,
/// so there were fewer of them than its number; and each of them, as each ahead of each, believes in that same number. It is
/// not enough to compare with the oldest: one in between that believes in another number is on its way out, but when the
/// oldest goes first it is the oldest itself, and newcomers go by its number.
fn among_permits<'a>(children: &'a [String], own: &NodeName<'_>) -> QueuePosition<'a> {
    let (mut there, mut agreed, mut ahead) = (false, true, 0_u64);
    let (mut oldest, mut nearest): (Option<NodeName<'a>>, Option<NodeName<'a>>) = (None, None);
    for node in line(children, own) {
        if node.name == own.name {
            there = true;
        } else if node.arrival(own).is_lt() {
            ahead += 1;
            // Safeguard: all ahead agree on the number of permits (ZooKeeper)
            agreed &= node.kind == own.kind;
            if oldest.is_none_or(|oldest| node.arrival(&oldest).is_lt()) {
                oldest = Some(node);
            }
            if nearest.is_none_or(|nearest| nearest.arrival(&node).is_lt()) {
                nearest = Some(node);
            }
        }
    }
    let permits = u64::from(own.permits().map_or(0, NonZeroU32::get));
    match (oldest.and_then(|oldest| oldest.permits()), nearest) {
        _ if !there => QueuePosition::Gone,
        (Some(named), _) if own.kind != (ContenderKind::Permit { of: named }) => {
            QueuePosition::Disagrees { there: named }
        }
        (_, Some(nearest)) if ahead > permits => QueuePosition::Behind(nearest.name),
        _ if ahead == permits || (!agreed && safeguard("all-agree")) => QueuePosition::FirstBlocked,
        _ => QueuePosition::Holds,
    }
}

/// Whether somebody stands behind the contender called `own`, in its line.
///
/// A contender that gets a permit and is followed has to tell: whoever stands behind it may have seen it wait, and waits for
/// news of it. Who is not among these `children` came later, and saw what is here or what came after: to it, this contender
/// was a holder from the start.
#[must_use]
pub fn is_followed(children: &[String], own: &str) -> bool {
    // Safeguard: who has got a permit tells whoever is behind (ZooKeeper)
    NodeName::parse(own).is_some_and(|own| line(children, &own).any(|node| own.arrival(&node).is_lt()))
}

/// Whether what the node ahead says of itself has to be looked into before waiting for it: it was written to, and not all
/// that was written was heard of before the last look. `now` is its name and how often it was written to when it was
/// watched, `heard` the same of the time before.
///
/// Between a look and the watch that follows, the one ahead may have got its permit and told so: nobody would tell again.
/// One look after the news is enough, since it shows all that the teller saw; whoever else writes causes no more than that.
#[must_use]
pub fn is_news(now: &(String, i32), heard: &(String, i32)) -> bool {
    // Safeguard: news of a permit before the watch counts (ZooKeeper)
    now.1 != 0 && now != heard
}

/// The holders and the waiters of one lock or semaphore, in the order of their arrival.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupants<'a> {
    pub(crate) holders: Vec<NodeName<'a>>,
    pub(crate) queue: Vec<NodeName<'a>>,
}

/// Who holds and who waits among `children`, for the lock and for the semaphore of that name.
pub(crate) fn occupants(layout: Layout, children: &[String]) -> Occupants<'_> {
    let mut nodes: Vec<_> = children.iter().filter_map(|name| NodeName::parse(name)).collect();
    nodes.retain(|node| node.is_foreign() == layout.is_foreign());
    nodes.sort_by(NodeName::arrival);
    let mut occupants = Occupants::default();
    let (mut anybody, mut writer) = (false, false);
    let (mut permits, mut taken, mut agreed): (Option<NonZeroU32>, u32, bool) = (None, 0, true);
    for node in nodes {
        let holds = match node.kind {
            ContenderKind::Exclusive => !anybody,
            ContenderKind::Read { .. } => !writer,
            ContenderKind::Permit { of } => {
                agreed &= *permits.get_or_insert(of) == of;
                agreed && taken < of.get()
            }
        };
        // A writer of Curator's that reads, too, has both nodes for a while, with one number.
        let is_holders = occupants.holders.last().is_some_and(|last| last.sequence == node.sequence);
        let holds = holds || (is_holders && node.is_foreign());
        match node.kind {
            ContenderKind::Permit { .. } => taken = taken.saturating_add(1),
            ContenderKind::Exclusive | ContenderKind::Read { .. } => {
                anybody = true;
                writer |= node.is_exclusive();
            }
        }
        if holds { &mut occupants.holders } else { &mut occupants.queue }.push(node);
    }
    occupants
}

/// The nodes among `children` that the attempt called `unique` made in `session`, oldest first. More than one can only
/// come of a request that was sent again.
#[must_use]
pub(crate) fn made_by<'a>(children: &'a [String], unique: &str, session: i64) -> Vec<&'a str> {
    let mut nodes: Vec<_> = children
        .iter()
        .filter_map(|name| NodeName::parse(name))
        .filter(|node| node.is_made_by(unique, session))
        .collect();
    nodes.sort_by(NodeName::arrival);
    nodes.into_iter().map(|node| node.name).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::queue::{NUMBERS_END, NameForm, downgraded, prefix};

    const READ: ContenderKind = ContenderKind::Read { was: None };

    fn name(unique: &str, session: i64, kind: ContenderKind, sequence: i32) -> String {
        format!("{}{sequence:010}", prefix(NameForm::Native, unique, session, kind))
    }

    fn writer(sequence: i32) -> String {
        name(&format!("w{sequence}"), 1, ContenderKind::Exclusive, sequence)
    }

    fn reader(sequence: i32) -> String {
        name(&format!("r{sequence}"), 1, READ, sequence)
    }

    fn permit(of: u32, sequence: i32) -> String {
        name(&format!("p{sequence}"), 1, ContenderKind::Permit { of: NonZeroU32::new(of).unwrap() }, sequence)
    }

    #[test]
    fn children_that_are_called_otherwise_take_no_part() {
        let mut children: Vec<String> =
            ["", "lock-0000000001", "a-0000000000000001-w-0000000001"].map(str::to_owned).into();
        let own = name("me", 1, ContenderKind::Exclusive, 9);
        children.push(own.clone());
        assert_eq!(position(&children, &own), QueuePosition::Holds);
        assert_eq!(occupants(Layout::Native, &children).holders, [NodeName::parse(&own).unwrap()]);
    }

    #[test]
    fn contenders_of_other_libraries_take_part_where_the_own_node_has_a_form_of_theirs() {
        let curators = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-0000000001";
        let native = writer(2);
        let own = format!("{}0000000003", prefix(NameForm::CuratorMutex, "me", 1, ContenderKind::Exclusive));
        let children = [curators.to_owned(), native.clone(), own.clone()];
        assert_eq!(position(&children, &own), QueuePosition::Behind(curators));
        assert_eq!(position(&children, &native), QueuePosition::Holds);
        assert_eq!(occupants(Layout::Curator, &children).holders, [NodeName::parse(curators).unwrap()]);
        assert_eq!(occupants(Layout::Native, &children).holders, [NodeName::parse(&native).unwrap()]);
    }

    #[test]
    fn a_lock_of_curators_other_kind_is_refused_and_one_of_ours_is_waited_for() {
        let name = |unique: &str, marker: &str, number: u32| format!("_c_{unique}-{marker}{number:010}");
        let theirs = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let ours = NameForm::CuratorMutex.unique("0f8fad5bd9cb469fa16570867728950e".to_owned());
        let own = name(&ours, "lock-", 5);
        for (unique, marker, number, expected) in [
            (theirs, "lock-", 4, None),
            (theirs, "__WRIT__", 4, Some(QueuePosition::OtherKind)),
            (theirs, "__READ__", 4, Some(QueuePosition::OtherKind)),
            (theirs, "__WRIT__", 6, Some(QueuePosition::OtherKind)),
            (ours.as_str(), "__WRIT__", 4, None),
            (ours.as_str(), "__READ__", 4, None),
        ] {
            let children = [name(unique, marker, number), own.clone()];
            assert_eq!(position(&children, &own), expected.unwrap_or(QueuePosition::Behind(&children[0])));
        }
    }

    #[test]
    fn a_writer_of_curators_that_reads_by_its_own_number_is_one_holder_with_two_nodes() {
        let name = |unique: &str, marker: &str, number: u32| format!("_c_{unique}-{marker}{number:010}");
        let children = [name("a", "__WRIT__", 5), name("b", "__READ__", 5), name("c", "__READ__", 6)];
        let shown = occupants(Layout::Curator, &children);
        assert_eq!((shown.holders.len(), shown.queue.len()), (2, 1));
        assert_eq!(position(&children, &children[2]), QueuePosition::Behind(&children[0]));
        assert_eq!(position(&children[1..], &children[2]), QueuePosition::Holds);
    }

    #[test]
    fn the_order_is_that_of_the_numbers_and_not_of_the_names() {
        let kind = ContenderKind::Exclusive;
        let children = [name("zzz", 1, kind, 1), name("aaa", 2, kind, 3), name("mmm", 3, kind, 2)];
        assert_eq!(position(&children, &children[1]), QueuePosition::Behind(&children[2]));
        assert_eq!(position(&children, &children[2]), QueuePosition::Behind(&children[0]));
    }

    #[test]
    fn a_contender_whose_node_is_missing_is_gone_even_with_nobody_ahead() {
        for (own, other) in [(writer(1), writer(2)), (reader(1), reader(2)), (permit(2, 1), permit(2, 2))] {
            assert_eq!(position(&[other], &own), QueuePosition::Gone);
            assert_eq!(position(&[], &own), QueuePosition::Gone);
        }
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_ahead_and_a_writer_for_whoever_is_ahead() {
        let children = [reader(1), writer(2), reader(3), reader(4), writer(5), reader(6)];
        let [first, second, third, fourth, fifth, sixth] = &children;
        assert_eq!(position(&children, first), QueuePosition::Holds);
        assert_eq!(position(&children, second), QueuePosition::Behind(first));
        assert_eq!(position(&children, third), QueuePosition::Behind(second));
        assert_eq!(position(&children, fourth), QueuePosition::Behind(second));
        assert_eq!(position(&children, fifth), QueuePosition::Behind(fourth));
        assert_eq!(position(&children, sixth), QueuePosition::Behind(fifth));
        assert_eq!(position(&children[2..], fourth), QueuePosition::Holds);
    }

    #[test]
    fn a_writer_that_became_a_reader_stands_in_its_old_place() {
        let old = writer(1);
        let own = downgraded(&old, 7).unwrap();
        let children = [own.clone(), reader(2), writer(3)];
        assert_eq!(position(&children, &own), QueuePosition::Holds);
        assert_eq!(position(&children, &children[1]), QueuePosition::Holds);
        assert_eq!(position(&children[..1], &own), QueuePosition::Holds);
        // A look that showed both would not make it wait for its former self.
        assert_eq!(position(&[own.clone(), old.clone()], &own), QueuePosition::Holds);
        assert_eq!(made_by(&children, "w1", 1), [own.as_str()]);
    }

    #[test]
    fn a_lock_and_a_semaphore_of_one_name_have_nothing_to_do_with_each_other() {
        let children = [permit(1, 1), writer(2), permit(1, 3), reader(4)];
        assert_eq!(position(&children, &children[1]), QueuePosition::Holds);
        assert_eq!(position(&children, &children[3]), QueuePosition::Behind(&children[1]));
        assert_eq!(position(&children, &children[0]), QueuePosition::Holds);
        assert_eq!(position(&children, &children[2]), QueuePosition::FirstBlocked);
        assert!(is_followed(&children, &children[0]) && !is_followed(&children, &children[2]));
        assert!(is_followed(&children, &children[1]) && !is_followed(&children, &children[3]));
    }

    #[test]
    fn the_first_without_a_permit_is_the_first_blocked_and_the_others_wait_for_the_one_before_them() {
        let children = [permit(2, 1), permit(2, 2), permit(2, 3), permit(2, 4), permit(2, 5)];
        let stands = children.each_ref().map(|own| position(&children, own));
        let behind = |at: usize| QueuePosition::Behind(&children[at]);
        assert_eq!(
            stands,
            [QueuePosition::Holds, QueuePosition::Holds, QueuePosition::FirstBlocked, behind(2), behind(3)]
        );
    }

    #[test]
    fn the_number_of_the_oldest_counts_and_who_disagrees_in_between_is_waited_out() {
        let children = [permit(2, 1), permit(3, 2), permit(2, 3)];
        let [_, second, third] = &children;
        assert_eq!(position(&children, second), QueuePosition::Disagrees { there: NonZeroU32::new(2).unwrap() });
        let four = [permit(4, 1), permit(3, 2), permit(4, 3)];
        assert_eq!(position(&four, &four[2]), QueuePosition::FirstBlocked, "it could hold but for the one in between");
        assert_eq!(position(&children[1..], second), QueuePosition::Holds);
        assert_eq!(position(&children[1..], third), QueuePosition::Disagrees { there: NonZeroU32::new(3).unwrap() });
    }

    #[test]
    fn what_the_one_ahead_wrote_is_news_once() {
        let node = |name: &str, version| (name.to_owned(), version);
        assert!(!is_news(&node("a", 0), &node("", 0)));
        assert!(!is_news(&node("a", 0), &node("b", 3)));
        assert!(is_news(&node("a", 1), &node("", 0)));
        assert!(!is_news(&node("a", 1), &node("a", 1)));
        assert!(is_news(&node("a", 2), &node("a", 1)));
    }

    #[test]
    fn only_the_own_unique_id_and_session_together_find_a_node() {
        let kind = ContenderKind::Exclusive;
        let children = [name("a", 2, kind, 4), name("a", 1, READ, 3), name("b", 1, kind, 2), name("a", 1, kind, 1)];
        assert_eq!(made_by(&children, "a", 1), [&*children[3], &*children[1]]);
    }

    /// A line of any kinds, in the order of arrival, and the same in the order in which a server may give it.
    fn lines() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
        let kind = prop_oneof![
            2 => Just(ContenderKind::Exclusive),
            3 => Just(READ),
            2 => (1..4_u32).prop_map(|of| ContenderKind::Permit { of: NonZeroU32::new(of).unwrap() }),
        ];
        let contenders = proptest::collection::vec((kind, 1..1000_i32, any::<u32>()), 1..30);
        let first = prop_oneof![Just(0), Just(i32::MIN), Just(i32::MAX - 30_000), 0..NUMBERS_END];
        (first, contenders).prop_map(|(first, contenders)| {
            let mut sequence = first;
            let mut arrived = Vec::new();
            let mut given = BTreeMap::new();
            for (at, (kind, gap, salt)) in contenders.into_iter().enumerate() {
                sequence += gap;
                let name = name(&format!("{salt:x}"), 1, kind, sequence);
                given.insert((salt, at), name.clone());
                arrived.push(name);
            }
            (arrived, given.into_values().collect())
        })
    }

    fn kind(name: &str) -> ContenderKind {
        NodeName::parse(name).unwrap().kind
    }

    /// Who holds, by Curator's own rule: it sorts by the text behind the markers, and a reader counts from the first writer.
    fn holds_for_curator(children: &[String], own: &str) -> bool {
        let after = |name: &String| name.rsplit_once("__").unwrap().1.to_owned();
        let mut sorted = children.to_vec();
        sorted.sort_by_key(after);
        let place = sorted.iter().position(|name| name == own).unwrap();
        let ahead = &sorted[..place];
        if own.contains("__WRIT__") { ahead.is_empty() } else { !ahead.iter().any(|name| name.contains("__WRIT__")) }
    }

    proptest! {
        #[test]
        fn in_a_line_of_curators_those_hold_who_hold_by_its_own_rule(kinds: Vec<bool>, first in 0..NUMBERS_END - 200, salts: [u8; 8]) {
            let mut children: Vec<_> = kinds.into_iter().zip(first..).map(|(reads, number)| {
                let salt = salts[number.unsigned_abs() as usize % salts.len()];
                format!("_c_{salt:02x}-{}{number:010}", if reads { "__READ__" } else { "__WRIT__" })
            }).collect();
            children.sort();
            for own in &children {
                prop_assert_eq!(position(&children, own) == QueuePosition::Holds, holds_for_curator(&children, own));
            }
        }

        #[test]
        fn in_any_line_everybody_stands_where_the_order_of_arrival_puts_it((arrived, children) in lines()) {
            for (place, own) in arrived.iter().enumerate() {
                let expected = match kind(own) {
                    ContenderKind::Exclusive => arrived[..place].iter().rfind(|other| !matches!(kind(other), ContenderKind::Permit { .. })),
                    ContenderKind::Read { .. } => arrived[..place].iter().rfind(|other| kind(other) == ContenderKind::Exclusive),
                    ContenderKind::Permit { .. } => continue,
                };
                let expected = expected.map_or(QueuePosition::Holds, |name| QueuePosition::Behind(name));
                prop_assert_eq!(position(&children, own), expected);
            }
        }

        #[test]
        fn no_writer_holds_beside_anybody_and_no_more_permits_are_held_than_each_holder_believes_in((_, children) in lines()) {
            let holders: Vec<_> = children.iter().filter(|own| position(&children, own) == QueuePosition::Holds).collect();
            let of_lock = holders.iter().filter(|own| !matches!(kind(own), ContenderKind::Permit { .. })).count();
            let permits = holders.len() - of_lock;
            for holder in &holders {
                match kind(holder) {
                    ContenderKind::Exclusive => prop_assert_eq!(of_lock, 1),
                    ContenderKind::Read { .. } => {}
                    ContenderKind::Permit { of } => prop_assert!(permits <= of.get() as usize, "{} of {}", permits, of),
                }
            }
        }

        #[test]
        fn whoever_waits_waits_for_one_who_came_before_in_its_own_line((arrived, children) in lines()) {
            let place = |name: &str| arrived.iter().position(|other| other == name).unwrap();
            for own in &children {
                if let QueuePosition::Behind(ahead) = position(&children, own) {
                    prop_assert!(place(ahead) < place(own));
                    prop_assert_eq!(NodeName::parse(ahead).unwrap().permits().is_some(), matches!(kind(own), ContenderKind::Permit { .. }));
                }
            }
        }

        #[test]
        fn a_look_from_outside_shows_those_as_holders_who_know_that_they_hold((arrived, children) in lines()) {
            let occupants = occupants(Layout::Native, &children);
            let names = |nodes: &[NodeName<'_>]| nodes.iter().map(|node| node.name.to_owned()).collect::<Vec<_>>();
            let (holding, waiting): (Vec<_>, Vec<_>) =
                arrived.into_iter().partition(|own| position(&children, own) == QueuePosition::Holds);
            prop_assert_eq!(names(&occupants.holders), holding);
            prop_assert_eq!(names(&occupants.queue), waiting);
        }
    }
}
