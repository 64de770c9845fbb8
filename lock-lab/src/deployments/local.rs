//! Files of this machine: no server, any number of processes. What the kernel keeps is asked of it here.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use lock_core::{LockName, conformance::Kept};
use tempfile::TempDir;

use crate::{
    LabError,
    deployment::{Connection, Decides, Description, GroundTruth, Left, Sample, Servers, Trials},
    servers::process::data_directory,
};

inventory::submit! {
    Description {
        scheme: "local",
        servers: 0,
        // The kernel gives back at once what a dead process held.
        lease: None,
        decides: Decides::Kernel,
        trials: Trials::All,
        is_compared: true,
        column: Some("local"),
        ..Description::new("local", "local", |_| Box::pin(async {
            Ok(Box::new(LocalDeployment { files: LocalTruth(Arc::new(data_directory()?)) }) as Box<dyn Servers>)
        }))
    }
}

/// A temporary directory of lock files, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct LocalDeployment {
    files: LocalTruth,
}

#[async_trait]
impl Servers for LocalDeployment {
    fn authority(&self, _way: &Connection) -> String {
        self.files.0.path().display().to_string()
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::new(self.files.clone())
    }
}

/// The [`GroundTruth`] of a directory of lock files, read from the files themselves.
#[derive(Debug, Clone)]
struct LocalTruth(Arc<TempDir>);

impl LocalTruth {
    /// The files of the lock and of the semaphore of that name that belong to contenders, dead or alive.
    fn of(&self, name: &LockName) -> Result<Vec<PathBuf>, LabError> {
        let mut root = self.0.path().to_owned();
        let component = name.to_component();
        let mut parts: Vec<_> = component.as_bytes().chunks(240).map(String::from_utf8_lossy).collect();
        let last = parts.pop().unwrap_or_default();
        root.extend(parts.into_iter().map(|part| format!("{part}.more")));
        let mut files = Vec::new();
        for kind in ["lock", "permits"] {
            files.extend(contenders(&root.join(format!("{last}.{kind}"))).map_err(io_error)?);
        }
        Ok(files)
    }
}

/// A contender of a lock has a file beside the door.
fn contenders(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    Ok(paths?.into_iter().filter(|path| !path.ends_with("door")).collect())
}

fn io_error(error: io::Error) -> LabError {
    LabError::io("looking at the files of a lock", error)
}

#[async_trait]
impl GroundTruth for LocalTruth {
    async fn holders(&self, _name: &LockName) -> Vec<Sample> {
        Vec::new()
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, LabError> {
        let called = |file: &PathBuf| file.file_name().and_then(|name| name.to_str()?.parse().ok()) == Some(token);
        let Some(file) = self.of(name)?.into_iter().find(called).and_then(|file| File::open(file).ok()) else {
            return Ok(Kept::Gone);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Kept::Gone),
            Err(TryLockError::WouldBlock) => Ok(Kept::Held),
            Err(TryLockError::Error(error)) => Err(io_error(error)),
        }
    }

    async fn residue(&self, names: &[LockName], _has_died: bool) -> Left {
        let mut left = Left::default();
        for name in names {
            match self.of(name) {
                Ok(files) => left.things.extend(files.into_iter().map(|file| file.display().to_string())),
                Err(error) => left.silent.push(error.to_string()),
            }
        }
        left
    }

    async fn delete(&self, name: &LockName) -> Result<(), LabError> {
        self.of(name)?.into_iter().try_for_each(fs::remove_file).map_err(io_error)
    }

    async fn serves(&self, _number: usize, _name: &LockName) {}
}
