//! Which texts are lock names.

use crate::{Error, LockName};

impl LockName {
    /// Checks and keeps a name.
    ///
    /// # Errors
    /// [`Error::InvalidName`] when it is empty, longer than [`LockName::MAX_BYTES`], or holds a NUL character.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let problem = if name.is_empty() {
            "it is empty"
        } else if name.len() > Self::MAX_BYTES {
            "it is too long"
        } else if name.contains('\0') {
            "it holds a NUL character"
        } else {
            return Ok(Self(name.into()));
        };
        Err(Error::InvalidName { name: name.to_owned(), problem })
    }

    /// Reads back what [`LockName::to_component`] wrote; `None` for anything that it never writes.
    #[must_use]
    pub fn from_component(component: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(component.len());
        let mut rest = component.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            if first == b'%' {
                let (hex, tail) = tail.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
                rest = tail;
            } else {
                bytes.push(first);
                rest = tail;
            }
        }
        let name = Self::new(String::from_utf8(bytes).ok()?).ok()?;
        (name.to_component() == component).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_outside_the_bounds_are_refused() {
        assert!(LockName::new("").is_err());
        assert!(LockName::new("a\0b").is_err());
        assert!(LockName::new("x".repeat(513)).is_err());
        assert!(LockName::new("x".repeat(512)).is_ok());
    }

    proptest! {
        #[test]
        fn a_component_is_safe_and_leads_back_to_its_name(name in "\\PC{1,100}") {
            let name = LockName::new(name).unwrap();
            let component = name.to_component();
            prop_assert!(component.bytes().all(|b| b.is_ascii_alphanumeric() || b"%_-".contains(&b)));
            prop_assert_eq!(LockName::from_component(&component), Some(name));
        }

        #[test]
        fn two_names_never_share_a_component(a in "[a%/.2F]{1,6}", b in "[a%/.2F]{1,6}") {
            let (a, b) = (LockName::new(a).unwrap(), LockName::new(b).unwrap());
            prop_assert_eq!(a == b, a.to_component() == b.to_component());
        }
    }
}
