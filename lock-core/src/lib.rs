//! A backend-neutral distributed lock: the vocabulary, the SPI, and everything that is written once on top of it.
//!
//! Programs use the facade crate `lock`, which re-exports this one and connects to a backend by URL. A backend implements
//! [`Backend`] and [`Lease`].

mod acquire_options;
mod backoff;
mod capabilities;
mod cleanup;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod context;
mod driver;
mod election;
mod error;
pub mod fence;
mod guard;
mod held;
mod locks;
pub mod memory;
mod multi;
mod mutex;
mod name;
mod operation;
mod owner;
mod renewer;
mod run_to_completion;
mod rwlock;
mod semaphore;
pub mod settings;
mod snapshot;
mod spi;
mod token;
pub mod validity;
pub mod watch;

pub use crate::{
    backoff::Backoff,
    capabilities::{Capabilities, Feature},
    cleanup::Cleanup,
    clock::{BootInstant, Clock, TimeSource},
    context::{Context, Executor, Task},
    driver::{Driver, Registry, Scheme},
    election::{Election, Leader, Leaders, Term},
    error::{Error, Loss, Source},
    fence::{Fence, StaleToken},
    guard::Guard,
    locks::{Locks, LocksOptions},
    multi::{MultiGuard, MultiLock, Tokens},
    mutex::Mutex,
    name::LockName,
    operation::{Abandoned, Cause, Committed, Operation, StateAfter},
    owner::{Owner, Reentrant, ReentrantGuard},
    renewer::{Renew, RenewalHandle, Renewer},
    rwlock::{DowngradeFailed, RwLock, WriteGuard},
    semaphore::{Permit, Semaphore},
    settings::{Setting, SettingDoc, Settings},
    snapshot::{Contender, Snapshot},
    spi::{Backend, Lease, Mode, ReleaseOutcome, Request, Wait},
    token::FencingToken,
    validity::Validity,
};
