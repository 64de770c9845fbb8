//! The decisions: which keys there are, what scripts are asked and what they answer, what a grant is worth. No input and
//! output, and no clock.

pub mod answers;
pub mod attempt;
pub mod claim;
pub mod keys;
pub mod list;
pub mod look;
pub mod packed;
mod plain;
pub mod token;
pub mod values;

use std::time::Duration;

/// How long an undo is remembered, should its acquisition still be on its way: longer than a socket goes on sending what is
/// not acknowledged, and the socket of an acquisition that is undone on another connection has ended by then.
pub const TOMBSTONE: Duration = Duration::from_secs(5);
