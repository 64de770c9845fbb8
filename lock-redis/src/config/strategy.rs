//! How contenders take turns.

use std::time::Duration;

/// How contenders of one name take turns. All who use a name have to use the same strategy: with different ones they use
/// different keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Strategy {
    /// In line on the server: writers, readers and permits, in the order of arrival.
    #[default]
    Queue,
    /// By `SET key value NX PX ttl` on a key that clients of other libraries use in the same way, and share locks with. Only
    /// the exclusive lock, in no order.
    Plain {
        /// After how long those who wait look by themselves: other libraries tell nobody of a release.
        look_again: Duration,
    },
}

impl Strategy {
    /// After how long those who wait with the strategy `plain` look by themselves, unless something else is set.
    pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(500);

    /// The strategy `plain`, with everything as it is by default.
    #[must_use]
    pub const fn plain() -> Self {
        Self::Plain { look_again: Self::LOOK_AGAIN }
    }
}
