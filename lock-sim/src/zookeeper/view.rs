//! The list of a directory as the rules of the queue see it, with one of these rules taken out where that is asked for: names
//! are changed so that the very same code comes to the conclusion of the lesser rule.

use std::borrow::Cow;

use lock_zk::protocol::queue::ContenderKind as Kind;

use super::guard::Guard;

/// A list, and the own name in it.
#[derive(Debug)]
pub(super) struct View<'a> {
    real: &'a [String],
    /// What the rules see, in the places of the real names.
    shown: Cow<'a, [String]>,
    own: String,
}

impl<'a> View<'a> {
    pub(super) fn new(children: &'a [String], own: &str, kind: Kind, has: impl Fn(Guard) -> bool) -> Self {
        let mut shown = Cow::Borrowed(children);
        if !has(Guard::AllAgree) && matches!(kind, Kind::Permit { .. }) {
            shown = agreeing(children, kind).into();
        } else if !has(Guard::WriterBehindReaders) && kind == Kind::Exclusive {
            shown = children.iter().map(|name| if is_reader(name) { String::new() } else { name.clone() }).collect();
        }
        let place = children.iter().position(|name| name == own);
        let own = place.map_or_else(|| own.to_owned(), |place| shown[place].clone());
        Self { real: children, shown, own }
    }

    pub(super) fn names(&self) -> &[String] {
        &self.shown
    }

    pub(super) fn own(&self) -> &str {
        &self.own
    }

    /// The real name of one that is shown.
    pub(super) fn real(&self, shown: &str) -> &'a str {
        let place = self.shown.iter().position(|name| name == shown);
        place.and_then(|place| self.real.get(place)).map_or("", String::as_str)
    }
}

/// A name in its parts: unique id, session, kind, sequence.
fn parts(name: &str) -> Option<(&str, &str, &str, i32)> {
    let mut parts = name.splitn(4, '-');
    Some((parts.next()?, parts.next()?, parts.next()?, parts.next()?.parse().ok()?))
}

fn is_reader(name: &str) -> bool {
    parts(name).is_some_and(|(_, _, kind, _)| kind.starts_with('r'))
}

/// The same with everybody but the oldest believing in the own number of permits.
fn agreeing(children: &[String], kind: Kind) -> Vec<String> {
    let age = |name: &String| parts(name).map(|(_, _, _, sequence)| sequence);
    let permits = children.iter().filter(|name| parts(name).is_some_and(|(_, _, kind, _)| kind.starts_with('p')));
    let oldest = permits.min_by_key(|name| age(name));
    let show = |name: &String| match parts(name) {
        Some((unique, session, found, sequence)) if found.starts_with('p') && Some(name) != oldest => {
            format!("{unique}-{session}-{kind}-{sequence:010}")
        }
        _ => name.clone(),
    };
    children.iter().map(show).collect()
}
