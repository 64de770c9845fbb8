//! A measurement, or why there is none.

use serde::{Deserialize, Serialize};

use crate::LabError;

/// A measurement, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// The measurement.
    Measured(T),
    /// The measurement was tried, and failed with this error.
    Failed(String),
    /// The reason why nothing can be measured here; for missing servers, how to get them.
    Missing(String),
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self::Missing("not measured".into())
    }
}

impl<T> Outcome<T> {
    /// What was measured.
    pub const fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::Failed(_) | Self::Missing(_) => None,
        }
    }

    /// Why there is no measurement.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Measured(_) => None,
            Self::Failed(error) => Some(format!("failed: {error}")),
            Self::Missing(why) => Some(why.clone()),
        }
    }

    /// The cells of a row with the figures, or why there are none.
    pub(crate) fn cells(&self, cells: impl FnOnce(&T) -> Vec<String>) -> Result<Vec<String>, String> {
        self.measured().map(cells).ok_or_else(|| self.problem().unwrap_or_default())
    }
}

impl<T> From<Result<T, LabError>> for Outcome<T> {
    fn from(result: Result<T, LabError>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(error @ LabError::Missing { .. }) => Self::Missing(error.to_string()),
            Err(error) => Self::Failed(error.with_causes()),
        }
    }
}
