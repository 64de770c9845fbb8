//! Fencing tokens.

use std::{fmt, str::FromStr};

use crate::Error;

/// A number that rises with every grant of a name. Pass it to the store that the lock protects, and let the store refuse
/// a token lower than the highest that it has seen: then a holder that was paused past its lease cannot write any more
/// (M. Kleppmann, *How to do distributed locking*, 2016; M. Burrows, *The Chubby lock service*, 2006, "sequencer").
///
/// Ordered by era, then number. The text form has a fixed width, so that it sorts the same way.
///
/// ```
/// use lock_core::FencingToken;
/// let token = FencingToken { era: 1, number: 42 };
/// assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
/// assert!(token < FencingToken { era: 2, number: 1 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    /// A setting that operators raise when they move to another backend or restore a backup, whose numbers start lower.
    pub era: u32,
    /// The backend's number, rising within an era.
    pub number: u64,
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{:020}", self.era, self.number)
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            let (era, number) = text.split_once('-')?;
            // No sign: it has one form, but for zeros in front.
            if era.starts_with('+') || number.starts_with('+') {
                return None;
            }
            Some(Self { era: era.parse().ok()?, number: number.parse().ok()? })
        };
        parse().ok_or_else(|| Error::config("fencing token", text, "ERA-NUMBER, as 0000000000-00000000000000000042"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_text_form_sorts_like_the_token(a: (u32, u64), b: (u32, u64)) {
            let a = FencingToken { era: a.0, number: a.1 };
            let b = FencingToken { era: b.0, number: b.1 };
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
            prop_assert_eq!(a.to_string().parse::<FencingToken>().unwrap(), a);
        }
    }
}
