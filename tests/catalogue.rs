//! Other people's bugs, tried on us: each test brings about, on real servers, the situation in which a lock of another
//! project went wrong. The table in docs/reliability.md says which, and what guards against it; a test keeps it true.
//!
//! The part that concerns the program `lock` is `tests/catalogue/command_line.rs`, which the package of the program builds.

#[path = "catalogue/failed_tries.rs"]
mod failed_tries;
#[path = "catalogue/failover.rs"]
mod failover;
#[path = "catalogue/loss.rs"]
mod loss;
#[path = "catalogue/names.rs"]
mod names;
#[path = "catalogue/outage.rs"]
mod outage;
#[path = "catalogue/queue.rs"]
mod queue;
#[path = "catalogue/quorum.rs"]
mod quorum;
#[path = "catalogue/release.rs"]
mod release;
#[path = "catalogue/renewal.rs"]
mod renewal;
#[path = "catalogue/table.rs"]
mod table;
#[path = "catalogue/world.rs"]
mod world;
