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
    /// A setting, and the features that the backend would have without it.
    withheld: Option<(&'static str, u32)>,
}

impl Capabilities {
    /// Capabilities of a backend that promises nothing beyond the SPI.
    #[must_use]
    pub const fn new(backend: &'static str) -> Self {
        Self { backend, ttl: None, features: 0, withheld: None }
    }

    /// And `feature`.
    #[must_use]
    pub const fn with(mut self, feature: Feature) -> Self {
        self.features |= feature.bit();
        self
    }

    /// And each of `features`.
    #[must_use]
    pub fn with_all(self, features: &[Feature]) -> Self {
        features.iter().copied().fold(self, Self::with)
    }

    /// Not `features`, because of `setting`, which errors name as `key=value`: without that setting the backend has them.
    #[must_use]
    pub fn withheld_by(mut self, setting: &'static str, features: &[Feature]) -> Self {
        self.withheld = Some((setting, features.iter().fold(0, |all, feature| all | feature.bit())));
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
    /// [`Error::Unsupported`] with the names of the feature, of the backend, and of the setting that withholds the feature.
    pub fn require(&self, feature: Feature) -> Result<(), Error> {
        if self.supports(feature) {
            return Ok(());
        }
        let setting = self.withheld.filter(|(_, features)| features & feature.bit() != 0).map(|(setting, _)| setting);
        Err(Error::Unsupported { feature: feature.name(), backend: self.backend, setting })
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
    fn a_setting_that_withholds_a_feature_is_named() {
        let slate = Capabilities::new("slate").withheld_by("order=none", &[Feature::Fifo]);
        let said = |feature| slate.require(feature).unwrap_err().to_string();
        assert!(said(Feature::Fifo).ends_with("by the backend slate with order=none; leave that setting out"));
        assert!(said(Feature::Queue).ends_with("by the backend slate"));
    }

    #[test]
    fn a_range_of_ttls_is_the_feature_of_choosing_one() {
        let range = Duration::from_secs(1)..=Duration::from_secs(2);
        assert!(Capabilities::new("chalk").with_ttl(range).supports(Feature::Ttl));
        assert!(!Capabilities::new("chalk").supports(Feature::Ttl));
    }
}
