//! How contenders' nodes are called: as this library has it, or as another one does whose programs share the locks.
//!
//! Curator calls them `_c_<uuid>-lock-<digits>` (`InterProcessMutex`), `_c_<uuid>-__WRIT__<digits>` and
//! `_c_<uuid>-__READ__<digits>` (`InterProcessReadWriteLock`), kazoo `<hex>__lock__<digits>` (`Lock`, `WriteLock`) and
//! `<hex>__rlock__<digits>` (`ReadLock`). A contender is known by the marker before its digits, whatever stands before that:
//! each of these libraries looks at no more of somebody else's name.

/// Whose format the nodes of locks have. All who use a name have to use the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Layout {
    /// This library's own.
    #[default]
    Native,
    /// That of Apache Curator's `InterProcessMutex` and `InterProcessReadWriteLock`.
    Curator,
    /// That of kazoo's `Lock`, `ReadLock` and `WriteLock`.
    Kazoo,
}

impl Layout {
    /// Whether contenders of other libraries stand in line, too.
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::Native
    }

    /// What the layout is called in settings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }
}

/// How the node of one contender is called. Curator has two forms in its layout, each for a lock of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameForm {
    /// As this library has it.
    Native,
    /// As Curator's mutex.
    CuratorMutex,
    /// As Curator's read-write lock.
    CuratorReadWrite,
    /// As kazoo's locks.
    Kazoo,
}

impl NameForm {
    /// The form of a contender, of a read-write lock or not.
    #[must_use]
    pub const fn of(layout: Layout, by_rwlock: bool) -> Self {
        match (layout, by_rwlock) {
            (Layout::Native, _) => Self::Native,
            (Layout::Curator, false) => Self::CuratorMutex,
            (Layout::Curator, true) => Self::CuratorReadWrite,
            (Layout::Kazoo, _) => Self::Kazoo,
        }
    }

    /// What an attempt is known by, in this form, made of `id`, which has 32 hexadecimal digits.
    #[must_use]
    pub fn unique(self, id: String) -> String {
        match self {
            Self::Native | Self::Kazoo => id,
            Self::CuratorMutex | Self::CuratorReadWrite => hyphenated(&id),
        }
    }

    /// Whether Curator keeps locks of the two forms apart on one path: a mutex does not count the contenders of a read-write lock, nor
    /// the other way round. `unique` is what the node in the form `other` is known by. A contender of this library counts both.
    pub(super) fn is_apart_from(self, other: Self, unique: &str) -> bool {
        let is_ours = unique.get(VERSION_AT..).is_some_and(|rest| rest.starts_with(OUR_VERSION));
        let apart = matches!(
            (self, other),
            (Self::CuratorMutex, Self::CuratorReadWrite) | (Self::CuratorReadWrite, Self::CuratorMutex)
        );
        apart && !is_ours
    }

    /// What a contender's node is called in a foreign form, but for the digits. `was`: the number of the grant as a writer
    /// that a reader goes on from.
    pub(super) fn foreign_prefix(self, unique: &str, reads: bool, was: Option<u64>) -> String {
        let (before, _, after) = self.around_unique();
        let was = was.map(|number| format!("-{number}")).unwrap_or_default();
        format!("{before}{unique}{was}{after}{}", self.marker(reads))
    }

    /// What stands before the unique id, the length of the id, and what stands before the marker.
    const fn around_unique(self) -> (&'static str, usize, &'static str) {
        match self {
            Self::CuratorMutex | Self::CuratorReadWrite => ("_c_", 36, "-"),
            Self::Native | Self::Kazoo => ("", 32, ""),
        }
    }

    /// What stands before the digits of a contender that reads, or that holds the lock alone. Nothing in the native form.
    const fn marker(self, reads: bool) -> &'static str {
        match (self, reads) {
            (Self::Native, _) => "",
            (Self::CuratorMutex, _) => "lock-",
            (Self::CuratorReadWrite, false) => "__WRIT__",
            (Self::CuratorReadWrite, true) => "__READ__",
            (Self::Kazoo, false) => "__lock__",
            (Self::Kazoo, true) => "__rlock__",
        }
    }
}

/// The digit of a UUID that says its version, as it is usually written, and what it is in ours: the version whose content is
/// whoever's makes it (RFC 9562). Curator's are of version 4.
const VERSION_AT: usize = 14;
const OUR_VERSION: char = '8';

/// A UUID as it is usually written, of [`OUR_VERSION`].
fn hyphenated(id: &str) -> String {
    let mut written = String::with_capacity(id.len() + 4);
    for (at, digit) in id.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            written.push('-');
        }
        written.push(if written.len() == VERSION_AT { OUR_VERSION } else { digit });
    }
    written
}

/// The parts of a name in a form that is not native.
pub(super) struct ForeignName<'a> {
    pub(super) form: NameForm,
    pub(super) reads: bool,
    /// What the attempt is known by; empty where another library has another use for that place.
    pub(super) unique: &'a str,
    /// The number of a downgraded writer.
    pub(super) was: Option<&'a str>,
    pub(super) digits: &'a str,
}

/// Takes a name in a foreign form apart. `None` for what is called otherwise.
pub(super) fn foreign(name: &str) -> Option<ForeignName<'_>> {
    let kinds = [
        (NameForm::CuratorMutex, false),
        (NameForm::CuratorReadWrite, false),
        (NameForm::CuratorReadWrite, true),
        (NameForm::Kazoo, false),
        (NameForm::Kazoo, true),
    ];
    kinds.into_iter().find_map(|(form, reads)| {
        // Curator goes by the last marker in a name.
        let (stem, digits) = name.rsplit_once(form.marker(reads))?;
        let bare = digits.strip_prefix('-').unwrap_or(digits);
        let is_number = digits.len() >= 10 && bare.bytes().all(|byte| byte.is_ascii_digit());
        let (before, length, after) = form.around_unique();
        let inner = stem.strip_prefix(before).and_then(|stem| stem.strip_suffix(after));
        let (unique, was) = inner.and_then(|inner| inner.split_at_checked(length)).unwrap_or_default();
        is_number.then_some(ForeignName { form, reads, unique, was: was.strip_prefix('-'), digits })
    })
}
