//! The Redis backend.

pub mod keys;
pub mod node;
pub mod scripts;
pub mod token;
