//! Fencing tokens.

use std::{fmt, str::FromStr};

use crate::Error;

/// A number that rises with every grant of a name. Pass it to the store that the lock protects, and let the store refuse
/// a token lower than the highest that it has seen: then a holder that was paused past its lease cannot write any more
/// (M. Kleppmann, *How to do distributed locking*, 2016; M. Burrows, *The Chubby lock service*, 2006, "sequencer").
///
/// Ordered by era, then number. It has two more forms, which are ordered in the same way:
///
/// * *text* ([`Display`](fmt::Display), [`FromStr`]): every token, in 31 characters that sort byte by byte;
/// * *integer* ([`FencingToken::to_i64`], [`FencingToken::from_i64`]): for columns of 64 bits and the arithmetic of a shell.
///   In era 0 the integer is the number itself.
///
/// ```
/// use lock_core::FencingToken;
/// let token = FencingToken { era: 1, number: 42 };
/// assert_eq!(token.to_string(), "0000000001-00000000000000000042");
/// assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
/// assert_eq!(token.to_i64().unwrap(), 1_0000000000000042);
/// assert_eq!(FencingToken::from_i64(1_0000000000000042).unwrap(), token);
/// assert!(token < FencingToken { era: 2, number: 1 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    /// A setting that operators raise when they move to another backend or restore a backup, whose numbers start lower.
    pub era: u32,
    /// The backend's number, rising within an era.
    pub number: u64,
}

/// The integer form counts eras in steps of this: its last 16 digits are the number.
const ERA_STEP: u64 = 10_u64.pow(16);

/// The highest era whose numbers all fit into the integer form.
const MAX_ERA: u32 = 921;

impl FencingToken {
    /// The token as one integer, era included: `era * 10^16 + number`. Never negative; higher for a later token, and below
    /// `i64::MAX`.
    ///
    /// It has room for eras up to 921 and numbers below 10^16, so that people and any language tell the two apart by the
    /// decimal digits. Microseconds since 1970, from which the numbers of Redis and of local locks come, stay below 10^16
    /// until the year 2286; the transaction numbers of ZooKeeper for the first 2.3 million elections of its leader; the
    /// revisions of etcd and the counts of the memory backend for 10^16 writes.
    ///
    /// In era 0 the integer is exact in a double, too (below 2^53, until the year 2255). In later eras it is not: Lua,
    /// JavaScript, awk and most readers of JSON must not calculate with it there. They have the text form.
    ///
    /// # Errors
    /// [`Error::Config`] for a higher era or number. Such a token has only the text form.
    pub fn to_i64(self) -> Result<i64, Error> {
        let fits = self.era <= MAX_ERA && self.number < ERA_STEP;
        // Safeguard: the integer form of a fencing token has the era in it
        let integer = fits.then(|| u64::from(self.era) * ERA_STEP + self.number);
        integer.and_then(|integer| integer.try_into().ok()).ok_or_else(|| {
            let allowed = format!("as an integer: an era up to {MAX_ERA} and a number below 10^16");
            Error::config("fencing token", self.to_string(), allowed)
        })
    }

    /// The token of that integer; see [`FencingToken::to_i64`].
    ///
    /// # Errors
    /// [`Error::Config`] for a negative integer, and for one beyond those that [`FencingToken::to_i64`] gives.
    pub fn from_i64(integer: i64) -> Result<Self, Error> {
        let token = u64::try_from(integer).ok().and_then(|integer| {
            let era = u32::try_from(integer / ERA_STEP).ok().filter(|era| *era <= MAX_ERA)?;
            Some(Self { era, number: integer % ERA_STEP })
        });
        token.ok_or_else(|| {
            let allowed = format!("an integer from 0 to {}", u64::from(MAX_ERA + 1) * ERA_STEP - 1);
            Error::config("fencing token", integer.to_string(), allowed)
        })
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010}-{:020}", self.era, self.number)
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    /// Reads the text form, or the integer form of [`FencingToken::to_i64`] in decimal digits.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parse = || {
            // No signs: each form has one spelling, but for zeros in front.
            if text.contains('+') {
                return None;
            }
            match text.split_once('-') {
                Some((era, number)) => Some(Self { era: era.parse().ok()?, number: number.parse().ok()? }),
                None => Self::from_i64(text.parse().ok()?).ok(),
            }
        };
        let allowed = "ERA-NUMBER, as 0000000000-00000000000000000042, or its integer form, as 42";
        parse().ok_or_else(|| Error::config("fencing token", text, allowed))
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

        #[test]
        fn the_integer_form_sorts_like_the_token(a in (0..=MAX_ERA, 0..ERA_STEP), b in (0..=MAX_ERA, 0..ERA_STEP)) {
            let a = FencingToken { era: a.0, number: a.1 };
            let b = FencingToken { era: b.0, number: b.1 };
            prop_assert_eq!(a.cmp(&b), a.to_i64().unwrap().cmp(&b.to_i64().unwrap()));
            prop_assert_eq!(FencingToken::from_i64(a.to_i64().unwrap()).unwrap(), a);
            prop_assert_eq!(a.to_i64().unwrap().to_string().parse::<FencingToken>().unwrap(), a);
        }

        #[test]
        fn an_integer_is_a_token_or_refused(integer: i64) {
            match FencingToken::from_i64(integer) {
                Ok(token) => prop_assert_eq!(token.to_i64().unwrap(), integer),
                Err(_) => prop_assert!(!(0..9_220_000_000_000_000_000).contains(&integer)),
            }
        }

        #[test]
        fn a_token_has_an_integer_form_or_is_refused(era: u32, number: u64) {
            let fits = era <= MAX_ERA && number < ERA_STEP;
            prop_assert_eq!(FencingToken { era, number }.to_i64().is_ok(), fits);
        }
    }

    #[test]
    fn what_is_no_token_is_refused_with_both_forms() {
        for text in ["", "-", "7x", "+7", "-7", "1-", "1-+2", "1-2-3", "4294967296-0", "9220000000000000000", " 7"] {
            let refused = text.parse::<FencingToken>().unwrap_err().to_string();
            assert!(refused.contains("ERA-NUMBER") && refused.contains("as 42"), "{text}: {refused}");
        }
    }

    #[test]
    fn the_ends_of_the_integer_form() {
        let last = FencingToken { era: MAX_ERA, number: ERA_STEP - 1 };
        assert_eq!(last.to_i64().unwrap(), 9_219_999_999_999_999_999);
        assert_eq!(FencingToken::from_i64(9_219_999_999_999_999_999).unwrap(), last);
        assert_eq!(FencingToken::from_i64(0).unwrap(), FencingToken { era: 0, number: 0 });
        for beyond in [9_220_000_000_000_000_000, i64::MAX, -1, i64::MIN] {
            let refused = FencingToken::from_i64(beyond).unwrap_err().to_string();
            assert!(refused.contains(&beyond.to_string()) && refused.contains("9219999999999999999"), "{refused}");
        }
        for beyond in [FencingToken { number: ERA_STEP, ..last }, FencingToken { era: MAX_ERA + 1, number: 0 }] {
            let refused = beyond.to_i64().unwrap_err().to_string();
            assert!(refused.contains(&beyond.to_string()) && refused.contains("921"), "{refused}");
        }
    }
}
