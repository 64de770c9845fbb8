//! A backend-neutral distributed lock: the vocabulary, the SPI, and everything that is written once on top of it.
//!
//! Programs use the facade crate `lock`, which re-exports this one and connects to a backend by URL. A backend implements
//! [`Backend`] and [`Lease`].

mod backoff;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod guard;
mod janitor;
mod keeper;
mod locks;
pub mod memory;
mod mutex;
mod name;
mod orderly;
pub mod settings;
mod spi;
mod token;
pub mod validity;

pub use crate::{
    backoff::Backoff,
    clock::{BootInstant, Clock},
    error::{Error, Loss, Source},
    guard::Guard,
    janitor::Janitor,
    keeper::{Keeper, Kept, Renewer},
    locks::{Locks, LocksOptions},
    mutex::Mutex,
    name::LockName,
    settings::Settings,
    spi::{Backend, Capabilities, Contender, Lease, Mode, Request, Snapshot, Wait},
    token::FencingToken,
    validity::Validity,
};
