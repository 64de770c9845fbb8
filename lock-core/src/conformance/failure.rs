//! Why a case failed.

use std::{error::Error, fmt, fmt::Write as _, panic::Location};

/// Why a case failed, and where in it. Any error becomes one by `?`.
pub struct Failure {
    what: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure at the caller's place.
    #[track_caller]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), at: Location::caller() }
    }
}

impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let mut what = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let _ = write!(what, ": {source}");
            cause = source.source();
        }
        Self::new(what)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {})", self.what, self.at)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a conformance case, or of a part of one.
pub(super) type CaseResult<T = ()> = Result<T, Failure>;

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::new(format!($($message)+)));
        }
    };
}
pub(super) use ensure;
