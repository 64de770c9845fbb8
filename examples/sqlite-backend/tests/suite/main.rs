//! What the conformance suite does not know of.

mod guide;
mod sqlite;
