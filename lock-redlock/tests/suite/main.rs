//! What the tests of this crate have in common is built once: they are one program.

mod cancelled;
mod deployment;
mod faults;
mod lock;
mod members;
mod readers;
mod readers_faults;
mod replace;
mod simulation;
mod stragglers;
