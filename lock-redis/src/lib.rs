//! The Redis backend.

mod attempt;
mod backend;
mod config;
pub mod keys;
mod lease;
mod lines;
pub mod node;
pub mod scripts;
pub mod token;
mod waiting;

pub use crate::{backend::Redis, config::Config};
