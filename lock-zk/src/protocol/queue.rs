//! The fair queue as plain values: node names, their order, and who stands where.
//!
//! A contender's node is called `<unique id>-<session id>-<kind>-<the server's ten digits>`. The unique id tells contenders
//! of one session apart, the session id says whose node it is, and the kind says what it is after: `x` to hold the lock
//! alone, `r` to read, `r<number>` a reader that was a writer with that fencing token, `p<permits>` a permit of a semaphore.
//! Those who are after the lock and those who are after a permit are two lines that have nothing to do with each other.
//! Children that are called otherwise take no part. In the layouts of other libraries the nodes have their names ([`NameForm`]),
//! and stand in one line with those that these libraries made.

mod form;
mod name;
mod position;

pub use self::{
    form::{Layout, NameForm},
    name::{ContenderKind, NUMBERS_END, downgraded, is_contender, is_out_of_numbers, marks, prefix},
    position::{QueuePosition, is_followed, is_news, position},
};
pub(crate) use self::{
    name::NodeName,
    position::{made_by, occupants},
};
