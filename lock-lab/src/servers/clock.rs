//! A wall clock of a process's own, that can be moved while the process runs.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tempfile::TempDir;

use super::process;
use crate::LabError;

/// What is preloaded into the process.
const SOURCE: &str = include_str!("../../shim/clock.c");
/// Where the preloaded library looks for the times.
const FILE: &str = "LOCK_LAB_CLOCK";

/// The wall clock of one server or worker process, which can be set apart from that of the machine. The process maps the
/// file, so what is written here counts at once.
#[derive(Debug)]
pub(crate) struct WallClock {
    file: File,
    environment: Vec<(&'static str, String)>,
    _dir: TempDir,
}

impl WallClock {
    /// A clock that is right, in a directory of its own: that of the server is emptied when it shall forget.
    pub(crate) fn new() -> Result<Self, LabError> {
        let dir = process::directory()?;
        let path = dir.path().join("offset");
        let file = File::options().create_new(true).read(true).write(true).open(&path);
        let file = file.map_err(|source| LabError::io("creating the file of a clock", source))?;
        let environment = vec![("LD_PRELOAD", compile(dir.path())?), (FILE, path.display().to_string())];
        let clock = Self { file, environment, _dir: dir };
        clock.stop_at(Duration::ZERO)?;
        clock.set_ahead(Duration::ZERO)?;
        Ok(clock)
    }

    /// What the process's environment needs.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.environment.clone()
    }

    /// Sets by how much it is ahead of this machine's.
    pub(crate) fn set_ahead(&self, by: Duration) -> Result<(), LabError> {
        self.write(by, 0)
    }

    /// Stops it at that time since 1970; at zero it runs.
    pub(super) fn stop_at(&self, time: Duration) -> Result<(), LabError> {
        self.write(time, 8)
    }

    fn write(&self, time: Duration, place: u64) -> Result<(), LabError> {
        let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX / 2);
        // Eight aligned bytes at once: the server sees the old number or the new one.
        let written = self.file.write_all_at(&nanos.to_ne_bytes(), place);
        written.map_err(|source| LabError::io("moving a clock", source))
    }
}

/// The machine code of the library, once it was compiled.
static LIBRARY: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// Puts the library into `dir` and returns its path. Compiled once by each program.
fn compile(dir: &Path) -> Result<String, LabError> {
    let library = dir.join("clock.so");
    let failed = |source| LabError::io("compiling the clock of a server", source);
    let mut compiled = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = &*compiled {
        std::fs::write(&library, code).map_err(failed)?;
        return Ok(library.display().to_string());
    }
    let source = dir.join("clock.c");
    std::fs::write(&source, SOURCE).map_err(failed)?;
    let compiler = process::find("cc").ok_or(LabError::Missing { program: "cc", package: "gcc" })?;
    let output = Command::new(compiler)
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        return Err(failed(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())));
    }
    *compiled = Some(std::fs::read(&library).map_err(failed)?);
    Ok(library.display().to_string())
}
