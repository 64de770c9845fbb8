//! What a backend can do, and what it cannot.

use std::{fmt, ops::RangeInclusive, time::Duration};

use crate::{Error, Feature};

/// What a backend can do; see also [`Locks::capabilities`](crate::Locks::capabilities).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name, as in its URL.
    pub backend: &'static str,
    /// The ttls that a single request may ask for; `None` where it may not.
    pub ttl: Option<RangeInclusive<Duration>>,
    features: u32,
}

impl Capabilities {
    /// Capabilities of a backend that promises nothing beyond the SPI.
    #[must_use]
    pub const fn new(backend: &'static str) -> Self {
        Self { backend, ttl: None, features: 0 }
    }

    /// And `feature`.
    #[must_use]
    pub const fn with(mut self, feature: Feature) -> Self {
        self.features |= feature.bit();
        self
    }

    /// A request may choose its ttl within this range: [`Feature::Ttl`].
    #[must_use]
    pub const fn with_ttl(mut self, range: RangeInclusive<Duration>) -> Self {
        self.ttl = Some(range);
        self.with(Feature::Ttl)
    }

    /// Whether it promises that.
    #[must_use]
    pub const fn supports(&self, feature: Feature) -> bool {
        self.features & feature.bit() != 0
    }

    /// Refuses what it does not promise.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the names of the feature and of the backend.
    pub const fn require(&self, feature: Feature) -> Result<(), Error> {
        if self.supports(feature) { Ok(()) } else { Err(Error::unsupported(feature, self.backend)) }
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let features: Vec<_> = Feature::ALL.iter().filter(|feature| self.supports(**feature)).collect();
        f.debug_struct("Capabilities")
            .field("backend", &self.backend)
            .field("ttl", &self.ttl)
            .field("features", &features)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_promised_is_refused_by_its_name() {
        let capabilities = Capabilities::new("chalk").with(Feature::Fifo);
        for feature in Feature::ALL {
            match capabilities.require(*feature) {
                Ok(()) => assert_eq!(*feature, Feature::Fifo),
                Err(error) => {
                    let said = format!("{feature} is not supported by the backend chalk");
                    assert_eq!(error.to_string(), said);
                }
            }
        }
    }

    #[test]
    fn a_range_of_ttls_is_the_feature_of_choosing_one() {
        let range = Duration::from_secs(1)..=Duration::from_secs(2);
        assert!(Capabilities::new("chalk").with_ttl(range).supports(Feature::Ttl));
        assert!(!Capabilities::new("chalk").supports(Feature::Ttl));
    }
}
