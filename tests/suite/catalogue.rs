//! Other people's bugs, tried on us: each test brings about, on real servers, the situation in which a lock of another
//! project went wrong. The table in docs/reliability.md says which, and what guards against it; a test keeps it true.
//!
//! The part that concerns the program `lock` is `tests/suite/catalogue/command_line.rs`, which the package of the program builds.

mod failed_tries;
mod failover;
mod loss;
mod names;
mod outage;
mod queue;
mod quorum;
mod release;
mod renewal;
mod table;
mod world;
