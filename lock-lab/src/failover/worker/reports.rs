//! Events to standard output.

use std::{
    fs::File,
    io::{Write, stdout},
    os::fd::AsFd,
    process,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    LabError,
    failover::events::{Attempt, Event, What, now},
};

/// Writes the events of a worker process to its standard output.
#[derive(Debug)]
pub(super) struct EventWriter {
    output: Mutex<File>,
    pub(super) process: usize,
}

impl EventWriter {
    pub(super) fn to_standard_output(process: usize) -> Result<Arc<Self>, LabError> {
        let output = stdout().as_fd().try_clone_to_owned();
        let output = output.map_err(|error| LabError::io("opening standard output", error))?;
        Ok(Arc::new(Self { output: Mutex::new(output.into()), process }))
    }

    /// Stamped and written as one step, so that the lines are in the order of their stamps.
    pub(super) fn event(&self, whose: Attempt, what: What) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::to_string(&Event { at: now(), whose, what });
        let written = line.map_err(Into::into).and_then(|line| output.write_all(format!("{line}\n").as_bytes()));
        if written.is_err() {
            // Nobody reads any more: the laboratory has ended.
            process::exit(0);
        }
    }
}
