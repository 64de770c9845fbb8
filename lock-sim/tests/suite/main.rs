//! The tests of the simulator: one program, so that what they have in common is built once.

mod framework;
mod machines;
mod parts;
mod protocol;
mod redis;
mod redis_beside_a_real_one;
mod safeguards;
mod scripts;
mod world;
