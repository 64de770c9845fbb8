//! What the tests of this crate have in common is built once: they are one program.

mod local;
mod rules;
mod shared;
