//! A backend-neutral distributed lock: the vocabulary, the SPI, and everything that is written once on top of it.
//!
//! Programs use the facade crate `lock`, which re-exports this one and connects to a backend by URL. A backend implements
//! [`Backend`] and [`Lease`].
//!
//! It runs on Linux only: validity is counted on `CLOCK_BOOTTIME`, the clock of Linux that goes on while the machine is suspended.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "lock-core runs on Linux only: it counts the validity of locks on CLOCK_BOOTTIME, which goes on while the machine is suspended"
);

mod acquire_options;
mod backoff;
mod capabilities;
mod cleanup;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connection;
mod context;
pub mod diagnosis;
mod driver;
mod due;
mod election;
mod error;
mod feature;
pub mod fence;
mod guard;
mod held;
mod locks;
mod locks_options;
pub mod memory;
mod mode;
mod multi;
mod mutex;
mod name;
mod name_check;
mod observe;
mod operation;
mod outage;
mod owner;
mod renewer;
mod run_to_completion;
mod rwlock;
mod safeguard;
mod scheme;
mod semaphore;
pub mod settings;
mod snapshot;
mod spi;
mod tasks;
pub mod testing;
mod time_limits;
mod token;
pub mod validity;

#[cfg(feature = "simulation")]
pub use crate::safeguard::take_out;
pub use crate::{
    backoff::Backoff,
    capabilities::Capabilities,
    cleanup::Cleanup,
    clock::{BootInstant, Clock, TimeSource},
    context::Context,
    diagnosis::{Diagnosis, Fact, Finding, Severity},
    driver::{Driver, Registry},
    election::{Election, Leader, Leaders, Term},
    error::{DowngradeFailed, Error, Loss, Source},
    feature::Feature,
    fence::{Fence, StaleToken},
    guard::Guard,
    locks::Locks,
    locks_options::LocksOptions,
    mode::Mode,
    multi::{MultiGuard, MultiLock, Tokens},
    mutex::Mutex,
    name::LockName,
    observe::RenewalOutcome,
    operation::{Abandoned, Cause, Committed, Operation, StateAfter},
    outage::Outage,
    owner::{Owner, Reentrant, ReentrantGuard},
    renewer::{Renew, RenewalHandle, Renewer},
    rwlock::{RwLock, WriteGuard},
    safeguard::safeguard,
    scheme::Scheme,
    semaphore::{Permit, Semaphore},
    settings::{Password, Setting, SettingDoc, Settings},
    snapshot::{Contender, Snapshot},
    spi::{Backend, Lease, ReleaseOutcome, Request, Wait},
    tasks::{Executor, Task},
    time_limits::{TimeLimit, TimeLimits},
    token::FencingToken,
    validity::Validity,
};
