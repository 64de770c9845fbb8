//! A backend-neutral distributed lock: the vocabulary, the SPI, and everything that is written once on top of it.
//!
//! Programs use the facade crate `lock`, which re-exports this one and connects to a backend by URL. A backend implements
//! [`Backend`] and [`Lease`].

mod asking;
mod backoff;
mod capabilities;
pub mod changes;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod election;
mod error;
pub mod fence;
mod guard;
mod janitor;
mod keeper;
mod locks;
pub mod memory;
mod multi;
mod mutex;
mod name;
mod operation;
mod orderly;
mod owner;
mod rwlock;
mod semaphore;
pub mod settings;
mod snapshot;
mod spi;
mod token;
pub mod validity;

pub use crate::{
    backoff::Backoff,
    capabilities::{Capabilities, Feature},
    clock::{BootInstant, Clock},
    election::{Election, Leader, Leaders, Term},
    error::{Error, Loss, Source},
    fence::{Fence, StaleToken},
    guard::Guard,
    janitor::Janitor,
    keeper::{Keeper, Kept, Renewer},
    locks::{Locks, LocksOptions},
    multi::{MultiGuard, MultiLock, Tokens},
    mutex::Mutex,
    name::LockName,
    operation::{Abandoned, Cause, Committed, Operation, StateAfter},
    owner::{Owner, Reentrant, ReentrantGuard},
    rwlock::{DowngradeFailed, RwLock, WriteGuard},
    semaphore::{Permit, Semaphore},
    settings::Settings,
    snapshot::{Contender, Snapshot},
    spi::{Backend, Lease, Mode, Request, Wait},
    token::FencingToken,
    validity::Validity,
};
