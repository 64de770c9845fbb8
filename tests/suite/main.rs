//! The tests of the facade on every backend: one program.

#[cfg(feature = "blocking")]
mod blocking;
mod capabilities;
mod catalogue;
mod config;
mod config_text;
mod configuration;
mod counter;
mod example;
mod examples;
mod fences;
mod guides;
#[cfg(feature = "metrics")]
mod observability;
mod operations;
mod readme;
mod round_trips;
mod security;
mod testing_guide;
