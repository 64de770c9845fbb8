//! Failover, measured: faults strike real servers under load, every event is recorded on one clock, the promises are
//! checked, and a report shows what came out.

pub mod check;
pub mod events;
pub mod fault;
pub mod frozen;
pub mod matrix;
mod record;
mod registers;
pub mod report;
mod run;
pub mod scene;
pub mod sink;
pub mod worker;
pub mod workers;

pub use self::run::{Options, run};
