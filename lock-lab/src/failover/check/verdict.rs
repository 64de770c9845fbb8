//! What a run says about one promise.

use serde::{Deserialize, Serialize};

/// Whether something is to be expected of a run: what cannot happen, what may, and what must show or the run was too tame
/// to prove anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chance {
    /// It must not happen: once is a broken promise.
    #[default]
    Never,
    /// It may happen: the backend does not promise against it.
    Possible,
    /// It must happen; a run without it could not have shown that the guards against it work.
    Certain,
}

/// What a run says about one promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was put to the test and was kept.
    Holds,
    /// It was broken where the backend is not promised to keep it, as was expected.
    Expected {
        /// What was seen.
        what: String,
    },
    /// The run was such that it could not have been broken, or that it would not have shown.
    ProvesNothing {
        /// What was missing.
        why: String,
    },
    /// It was broken.
    Broken {
        /// What was seen.
        what: String,
    },
}

impl Verdict {
    /// Of a promise that was seen broken `count` times, as `what` tells, in a run that counts unless `tame` says why not.
    pub(super) fn of(count: usize, chance: Chance, what: impl FnOnce() -> String, tame: Option<&str>) -> Self {
        match (count, chance, tame) {
            (1.., Chance::Never, _) => Self::Broken { what: what() },
            (1.., _, _) => Self::Expected { what: what() },
            // Safeguard: a run that could not have failed proves nothing (checker)
            (0, _, Some(why)) => Self::ProvesNothing { why: why.into() },
            (0, Chance::Certain, None) => {
                Self::ProvesNothing { why: "what this fault must lead to did not show".into() }
            }
            (0, _, None) => Self::Holds,
        }
    }

    /// Whether a promise was broken that the backend gives.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Whether the run counts and nothing was seen that should not be.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Holds | Self::Expected { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize, chance: Chance, tame: Option<&str>) -> Verdict {
        Verdict::of(count, chance, || "seen".into(), tame)
    }

    #[test]
    fn what_must_never_be_is_broken_even_in_a_tame_run() {
        assert!(of(1, Chance::Never, Some("no traffic")).is_broken());
        assert_eq!(of(0, Chance::Never, None), Verdict::Holds);
    }

    #[test]
    fn a_run_that_could_not_have_failed_proves_nothing() {
        assert!(matches!(of(0, Chance::Never, Some("no traffic")), Verdict::ProvesNothing { .. }));
        assert!(matches!(of(0, Chance::Certain, None), Verdict::ProvesNothing { .. }));
    }

    #[test]
    fn what_may_be_is_expected() {
        assert!(matches!(of(2, Chance::Possible, None), Verdict::Expected { .. }));
        assert!(matches!(of(2, Chance::Certain, None), Verdict::Expected { .. }));
        assert_eq!(of(0, Chance::Possible, None), Verdict::Holds);
    }
}
