//! Clients that compete for one lock by the public face of the library, and what may not be true of what they are granted.
//!
//! What is checked knows true time, the validity that each holder believes in, and what the servers keep; none of the rules
//! by which the backends decide.

pub mod faults;
mod oracle;
mod program;
mod stage;
mod strike;
mod without;

pub(crate) use self::stage::nanos;
pub use self::{
    oracle::{Grant, New, Oracle},
    program::{Habits, compete, probe},
    stage::{Scene, Stage},
    without::{Placed, Stands, Without, alone, placed, script},
};
