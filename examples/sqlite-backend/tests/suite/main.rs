//! What the conformance suite does not know of.

mod sqlite;
