//! Where a run was taken.

use std::{
    fmt, fs,
    io::{Seek, Write},
};

use lock_core::Clock;
use serde::{Deserialize, Serialize};

use crate::latency::Recorder;

/// The machine of a run. Figures of different machines cannot be compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many of its threads this process may use.
    pub threads: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The operating system.
    pub system: String,
    /// The kernel.
    pub kernel: String,
    /// How many processes wanted to run when the run began (the load average of the last minute): others than the run's
    /// own, which had not started.
    pub load: f64,
    /// How long the disk below the temporary directory takes to have 4 KiB within a file for certain (median, in
    /// microseconds): each write of ZooKeeper waits for that.
    pub sync_us: f64,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        let uname = rustix::system::uname();
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(),
            system: system(),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            load: load().unwrap_or_default(),
            sync_us: sync_us().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, threads, memory_mib, system, kernel, load, sync_us } = self;
        write!(
            f,
            "{processor}, {threads} threads, {memory_mib} MiB, {system}, {kernel}; load average before the run {load}; a \
             synchronous write of 4 KiB takes {sync_us:.0} µs"
        )
    }
}

/// The value of the first line `key : value` of a file.
fn field(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_string())
}

fn memory_mib() -> u64 {
    let total = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    total.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn system() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| std::env::consts::OS.into(), |name| name.trim_matches('"').to_string())
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn sync_us() -> std::io::Result<f64> {
    const BLOCK: [u8; 4096] = [0; 4096];
    const BLOCKS: usize = 64;
    let file = tempfile::tempfile()?;
    // The space is taken before, as ZooKeeper does it for its log: only data is to be written then.
    (&file).write_all(&BLOCK.repeat(BLOCKS))?;
    file.sync_all()?;
    let clock = Clock::boot();
    let mut times = Recorder::new();
    (&file).rewind()?;
    for _ in 0..BLOCKS {
        let start = clock.now();
        (&file).write_all(&BLOCK)?;
        file.sync_data()?;
        times.record(clock.now().saturating_since(start));
    }
    Ok(times.latency().p50)
}
