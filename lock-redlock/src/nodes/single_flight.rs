//! Work that is done by one task at a time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Lets one task at a time do some work; the others go on without it.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(Arc<AtomicBool>);

/// The right to do the work of a [`SingleFlight`], until this value is dropped.
#[derive(Debug)]
pub(crate) struct FlightGuard(Arc<AtomicBool>);

impl SingleFlight {
    /// `None` while another task does the work.
    pub(crate) fn try_begin(&self) -> Option<FlightGuard> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| FlightGuard(Arc::clone(&self.0)))
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
