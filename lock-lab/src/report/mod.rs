//! What a run found, and how it is shown.

use serde::{Deserialize, Serialize};

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {}
