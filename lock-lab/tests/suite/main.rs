//! What the tests of this crate have in common is built once: they are one program.

mod arrangements;
mod commands;
mod measurements;
mod proxy;
mod scenes;
mod send;
mod servers;
mod workers;
