//! The deployments: a backend on one arrangement of servers, with what is particular to it.
//!
//! Each is a [`Description`] in one file of `deployments/`, and everything that goes over the backends goes over
//! [`Deployment::all`]: the conformance suite, the trials of the catalogue and of cancellations, the comparison, the load of
//! readers and writers, the failover matrix, the table of capabilities.

mod connection;
mod description;
mod ground_truth;
mod running;
mod servers;

use std::{cmp::Reverse, fmt, hash, ops::Deref, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) use self::description::{SUCCESSION_SLACK, StartFuture};
pub use self::{
    connection::Connection,
    description::{Decides, Description, Lease, StartOptions, Trials},
    ground_truth::{GroundTruth, Held, Left, Sample},
    running::Running,
    servers::Servers,
};

/// A backend on one arrangement of servers, by its description.
#[derive(Clone, Copy)]
pub struct Deployment(&'static Description);

inventory::collect!(Description);

impl Deployment {
    /// Every one, by family, in the order of reports: those without servers, a single server or ensemble first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = inventory::iter::<Description>.into_iter().map(Self).collect();
        all.sort_by_key(|one| (Reverse(one.servers == 0), one.title.to_lowercase()));
        all
    }

    /// The one with this key; `None` when there is none.
    #[must_use]
    pub fn named(key: &str) -> Option<Self> {
        inventory::iter::<Description>.into_iter().find(|one| one.key == key).map(Self)
    }

    /// Those that `is_wanted` picks.
    #[must_use]
    pub fn those(is_wanted: impl Fn(&Description) -> bool) -> Vec<Self> {
        Self::all().into_iter().filter(|one| is_wanted(one)).collect()
    }

    /// Those that are measured beside each other.
    #[must_use]
    pub fn compared() -> Vec<Self> {
        Self::those(|one| one.is_compared)
    }

    /// Those on which cases of the conformance suite are tried out, and those that are compared.
    #[must_use]
    pub fn tried_or_compared() -> Vec<Self> {
        Self::those(|one| one.is_compared || one.trials != Trials::None)
    }

    /// Those that faults strike.
    #[must_use]
    pub fn struck() -> Vec<Self> {
        Self::those(|one| one.is_struck)
    }

    /// The one of [`Deployment::compared`] with this key.
    ///
    /// # Errors
    /// Their keys.
    pub fn parse_compared(key: &str) -> Result<Self, String> {
        Self::among(&Self::compared(), key)
    }

    /// The one of [`Deployment::tried_or_compared`] with this key.
    ///
    /// # Errors
    /// Their keys.
    pub fn parse_tried_or_compared(key: &str) -> Result<Self, String> {
        Self::among(&Self::tried_or_compared(), key)
    }

    /// The one of [`Deployment::struck`] with this key.
    ///
    /// # Errors
    /// Their keys.
    pub fn parse_struck(key: &str) -> Result<Self, String> {
        Self::among(&Self::struck(), key)
    }

    fn among(those: &[Self], key: &str) -> Result<Self, String> {
        let known = || format!("one of {}", those.iter().map(|one| one.key).collect::<Vec<_>>().join(", "));
        those.iter().find(|one| one.key == key).copied().ok_or_else(known)
    }

    /// Starts its servers.
    ///
    /// # Errors
    /// [`LabError`](crate::LabError); `Missing` when they are not installed.
    pub async fn start(self) -> Result<Running, crate::LabError> {
        self.start_with(StartOptions::default()).await
    }

    /// As [`Deployment::start`], with options.
    ///
    /// # Errors
    /// As those of [`Deployment::start`].
    pub async fn start_with(self, options: StartOptions) -> Result<Running, crate::LabError> {
        Running::new(self, (self.0.start)(options).await?, options.tls.is_some())
    }
}

impl Deref for Deployment {
    type Target = Description;

    fn deref(&self) -> &Description {
        self.0
    }
}

impl PartialEq for Deployment {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Deployment {}

impl hash::Hash for Deployment {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl FromStr for Deployment {
    type Err = String;

    fn from_str(key: &str) -> Result<Self, String> {
        Self::among(&Self::all(), key)
    }
}

impl Serialize for Deployment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key)
    }
}

impl<'de> Deserialize<'de> for Deployment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deployment_is_found_by_its_key_and_written_as_it() {
        let all = Deployment::all();
        for one in &all {
            assert_eq!(one.key.parse(), Ok(*one));
            assert_eq!(serde_json::to_value(one).unwrap(), one.key);
            assert_eq!(all.iter().filter(|other| other.key == one.key || other.title == one.title).count(), 1, "{one}");
        }
        assert!("redis6".parse::<Deployment>().unwrap_err().contains("redlock5-durable"));
    }

    #[test]
    fn every_scheme_of_the_facade_is_deployed_and_tried_out() {
        for scheme in lock::registry().schemes() {
            let those = Deployment::those(|one| one.scheme == scheme.name);
            assert!(those.iter().any(|one| one.column.is_some()), "{} has no column in the table", scheme.name);
            assert!(those.iter().any(|one| one.is_compared || one.is_struck), "{} is not measured", scheme.name);
        }
    }
}
