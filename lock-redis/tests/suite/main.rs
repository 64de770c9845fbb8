//! What the tests of this crate have in common is built once: they are one program.

mod answers;
mod cluster;
mod common;
mod evicting;
mod exclusive;
mod faults;
mod fixtures;
mod foreign_types;
mod given_up;
mod line;
mod other_libraries;
mod plain;
mod plain_servers;
mod queue;
mod queue_faults;
mod replicas;
mod rights;
mod scripts;
mod sentinel;
mod sharing_faults;
