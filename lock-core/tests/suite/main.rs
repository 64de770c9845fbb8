//! What the tests of this crate have in common is built once: they are one program.

mod conformance;
mod draining;
mod held;
mod line;
mod locks;
mod max_hold;
mod memory;
mod metrics;
mod multi;
mod operation;
mod outage;
mod owner;
mod renewer;
mod testing;
mod tracing;
mod validity;
mod world;
